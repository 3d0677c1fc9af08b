"""Rollouts of Deployments: both strategies, revisions, undo, pause, deadlines, scaling midway."""

from typing import Any

import pytest

from tests.support.cluster_driver import TEMPLATE, Driver

STUCK = {"kubelet": None}


def template(image: str) -> dict[str, Any]:
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": image}]}
    return {"metadata": TEMPLATE["metadata"], "spec": spec}


def start(driver: Driver, replicas: int = 3, **spec: Any) -> None:
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("i:1"),
            **spec,
        },
    }
    driver.create("deployments", body, "apps")


def set_image(driver: Driver, image: str, **spec: Any) -> None:
    driver.patch("deployments", "web", {"spec": {"template": template(image), **spec}}, "apps")


def replica_sets(driver: Driver) -> dict[str, dict[str, Any]]:
    """By image."""
    return {
        each["spec"]["template"]["spec"]["containers"][0]["image"]: each
        for each in driver.api.all("replicasets.apps")
    }


def sizes(driver: Driver) -> dict[str, int]:
    return {image: each["spec"]["replicas"] for image, each in replica_sets(driver).items()}


def revisions(driver: Driver) -> dict[str, str]:
    key = "deployment.kubernetes.io/revision"
    return {
        image: each["metadata"]["annotations"][key] for image, each in replica_sets(driver).items()
    }


def conditions(driver: Driver) -> dict[str, tuple[str, str]]:
    status = driver.get("deployments.apps", "web")["status"]
    return {each["type"]: (each["status"], each["reason"]) for each in status["conditions"]}


def test_a_rollout_comes_to_its_end_with_conditions_and_events() -> None:
    driver = Driver()
    start(driver)
    assert conditions(driver)["Available"] == ("False", "MinimumReplicasUnavailable")
    assert conditions(driver)["Progressing"][0] == "True"
    driver.run(3)
    assert conditions(driver) == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    name = replica_sets(driver)["i:1"]["metadata"]["name"]
    message = f"Scaled up replica set {name} from 0 to 3"
    assert driver.events("web") == [("Normal", "ScalingReplicaSet", message)]
    assert len([each for each in driver.events(name) if each[1] == "SuccessfulCreate"]) == 3
    assert driver.cluster.work.busy == []


@pytest.mark.parametrize(
    ("surge", "unavailable", "most", "least"),
    [(1, 0, 5, 4), (0, 1, 4, 3), ("50%", "25%", 6, 3), ("100%", 0, 8, 4)],
)
def test_a_rollout_keeps_within_surge_and_unavailable(
    surge: Any, unavailable: Any, most: int, least: int
) -> None:
    driver = Driver()
    rolling = {"maxSurge": surge, "maxUnavailable": unavailable}
    start(driver, 4, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    driver.run(3)
    set_image(driver, "i:2")
    for _ in range(60):
        pods = [each for each in driver.pods() if "deletionTimestamp" not in each["metadata"]]
        assert len(pods) <= most
        assert len([each for each in pods if each["status"]["phase"] == "Running"]) >= least
        driver.advance(0.25)
    assert sizes(driver) == {"i:1": 0, "i:2": 4}


def test_recreate_starts_new_pods_only_when_the_old_ones_are_gone() -> None:
    driver = Driver()
    start(driver, strategy={"type": "Recreate"})
    driver.run(2)
    set_image(driver, "i:2")
    assert sizes(driver) == {"i:1": 0, "i:2": 0}
    for _ in range(10):
        driver.advance(0.2)
        images = {each["spec"]["containers"][0]["image"] for each in driver.pods()}
        assert len(images) <= 1
    driver.run(2)
    assert sizes(driver) == {"i:1": 0, "i:2": 3}


def test_an_undone_rollout_gives_the_old_replica_set_the_newest_revision() -> None:
    driver = Driver()
    start(driver)
    driver.run(3)
    set_image(driver, "i:2")
    driver.run(10)
    assert revisions(driver) == {"i:1": "1", "i:2": "2"}
    set_image(driver, "i:1")
    driver.run(10)
    assert revisions(driver) == {"i:1": "3", "i:2": "2"}
    annotations = driver.get("deployments.apps", "web")["metadata"]["annotations"]
    assert annotations["deployment.kubernetes.io/revision"] == "3"
    assert sizes(driver) == {"i:1": 3, "i:2": 0}
    history = replica_sets(driver)["i:1"]["metadata"]["annotations"]
    assert history["deployment.kubernetes.io/revision-history"] == "1"


def test_the_cause_of_a_change_is_noted_on_its_replica_set() -> None:
    driver = Driver()
    start(driver)
    cause = {"metadata": {"annotations": {"kubernetes.io/change-cause": "first"}}}
    driver.patch("deployments", "web", cause, "apps")
    annotations = replica_sets(driver)["i:1"]["metadata"]["annotations"]
    assert annotations["kubernetes.io/change-cause"] == "first"


def test_only_the_last_revisions_are_kept() -> None:
    driver = Driver()
    start(driver, revisionHistoryLimit=1)
    for number in range(1, 5):
        set_image(driver, f"i:{number}")
        driver.run(10)
    assert sorted(sizes(driver)) == ["i:3", "i:4"]


def test_a_paused_deployment_does_not_roll_but_scales() -> None:
    driver = Driver()
    start(driver)
    driver.run(3)
    set_image(driver, "i:2", paused=True, replicas=5)
    driver.run(3)
    assert sizes(driver) == {"i:1": 5}
    assert conditions(driver)["Progressing"] == ("Unknown", "DeploymentPaused")
    driver.patch("deployments", "web", {"spec": {"paused": False}}, "apps")
    driver.run(10)
    assert sizes(driver) == {"i:1": 0, "i:2": 5}
    assert conditions(driver)["Progressing"] == ("True", "NewReplicaSetAvailable")


def test_a_rollout_that_does_not_move_exceeds_its_deadline() -> None:
    driver = Driver(**STUCK)
    start(driver, progressDeadlineSeconds=60)
    driver.run(60)
    assert conditions(driver)["Progressing"][0] == "True"
    driver.run(4)
    assert conditions(driver)["Progressing"] == ("False", "ProgressDeadlineExceeded")


def test_scaling_amid_a_rollout_keeps_the_shares() -> None:
    driver = Driver()
    rolling = {"maxSurge": 3, "maxUnavailable": 2}
    start(driver, 10, strategy={"type": "RollingUpdate", "rollingUpdate": rolling})
    driver.run(3)
    unbound = {"nodeName": None, "containers": [{"name": "c", "image": "i:2"}]}
    driver.patch("deployments", "web", {"spec": {"template": {"spec": unbound}}}, "apps")
    driver.run(3)
    assert sum(sizes(driver).values()) == 13
    before = sizes(driver)
    driver.patch("deployments", "web", {"spec": {"replicas": 15}}, "apps")
    after = sizes(driver)
    assert sum(after.values()) == 18
    assert all(after[image] > before[image] for image in before)


def test_pods_that_are_ready_count_as_available_only_after_min_ready_seconds() -> None:
    driver = Driver()
    start(driver, minReadySeconds=30)
    driver.run(5)
    status = driver.get("deployments.apps", "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (3, 0)
    driver.run(31)
    assert driver.get("deployments.apps", "web")["status"]["availableReplicas"] == 3


def test_a_deployment_adopts_the_replica_set_of_its_template() -> None:
    driver = Driver()
    start(driver)
    driver.run(2)
    driver.delete("deployments", "web", "apps", propagation="Orphan")
    start(driver)
    driver.run(2)
    assert sizes(driver) == {"i:1": 3}
    (owner,) = replica_sets(driver)["i:1"]["metadata"]["ownerReferences"]
    assert owner["uid"] == driver.get("deployments.apps", "web")["metadata"]["uid"]


def test_pods_that_are_being_deleted_are_counted_over_all_replica_sets() -> None:
    driver = Driver()
    start(driver)
    driver.run(2)
    counted = [driver.get("deployments.apps", "web")["status"]["terminatingReplicas"]]
    driver.patch("deployments", "web", {"spec": {"replicas": 1}}, "apps")
    for seconds in (0, 40):
        driver.run(seconds)
        counted.append(driver.get("deployments.apps", "web")["status"]["terminatingReplicas"])
    assert counted == [0, 2, 0]


def test_conditions_of_others_stay_where_they_are() -> None:
    driver = Driver()
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 1, "selector": selector, "template": TEMPLATE}
    driver.create("deployments", {"metadata": {"name": "web"}, "spec": spec}, "apps")
    driver.run(3)
    other = {"type": "example.com/Seen", "status": "True", "reason": "R", "message": "m"}
    before = driver.get("deployments.apps", "web")["status"]["conditions"]
    change = {"status": {"conditions": [other, *before]}}
    driver.patch("deployments", "web", change, "apps", "status")
    driver.patch("deployments", "web", {"spec": {"replicas": 2}}, "apps")
    driver.run(3)
    conditions = driver.get("deployments.apps", "web")["status"]["conditions"]
    assert [each["type"] for each in conditions] == [
        *(other["type"], *(each["type"] for each in before))
    ]
