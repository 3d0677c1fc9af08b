"""DaemonSets: where pods go, which taints end them, and how they are rolled over."""

from functools import partial
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.objects import with_value
from stellwerk_cluster.controllers.daemon_set import target_of
from stellwerk_cluster.defaults.workload_defaults import TEMPLATE_GENERATION
from tests.support.cluster_driver import Driver

TAINT = {"key": "k", "value": "v"}


def start(driver: Driver, strategy: dict[str, Any] | None = None, **pod: Any) -> None:
    containers = [{"name": "c", "image": "i:1"}]
    template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": containers, **pod}}
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    spec |= {"updateStrategy": strategy} if strategy else {}
    driver.create("daemonsets", {"metadata": {"name": "agent"}, "spec": spec}, "apps")
    place(driver)


def place(driver: Driver) -> None:
    """Bind the pods where their affinity wants them, as the scheduler does."""
    pods = driver.api.kinds.resource("pods")
    for pod in driver.pods():
        if not pod["spec"].get("nodeName"):
            affinity = pod["spec"]["affinity"]["nodeAffinity"]
            terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
            node_name = terms[0]["matchFields"][0]["values"][0]
            key = ("default", pod["metadata"]["name"])
            path = ("spec", "nodeName")
            driver.api.modify(pods, key, partial(with_value, path=path, value=node_name))
    driver.advance(1)


def taint(driver: Driver, node: str, effect: str) -> None:
    driver.patch("nodes", node, {"spec": {"taints": [{**TAINT, "effect": effect}]}})


def nodes(driver: Driver) -> list[str]:
    return sorted(
        pod["spec"]["nodeName"]
        for pod in driver.pods()
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    )


def status(driver: Driver) -> dict[str, Any]:
    found: dict[str, Any] = driver.get("daemonsets.apps", "agent")["status"]
    return found


def test_a_no_schedule_taint_ends_no_pod() -> None:
    driver = Driver()
    start(driver)
    taint(driver, "node-1", "NoSchedule")
    driver.run(5)
    assert nodes(driver) == ["node-1", "node-2", "node-3"]
    assert status(driver)["desiredNumberScheduled"] == 2
    assert status(driver)["numberMisscheduled"] == 1


def test_a_no_execute_taint_ends_the_pod_and_none_follows() -> None:
    driver = Driver()
    start(driver)
    taint(driver, "node-1", "NoExecute")
    driver.run(5)
    assert nodes(driver) == ["node-2", "node-3"]


def test_a_tolerated_no_execute_taint_does_not() -> None:
    driver = Driver()
    start(driver, tolerations=[{"key": "k", "operator": "Exists"}])
    taint(driver, "node-1", "NoExecute")
    driver.run(5)
    assert nodes(driver) == ["node-1", "node-2", "node-3"]


@pytest.mark.parametrize("host_network", [False, True])
def test_the_automatic_tolerations(host_network: bool) -> None:  # noqa: FBT001
    driver = Driver()
    start(driver, hostNetwork=host_network)
    wanted = {
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    } | ({("network-unavailable", "NoSchedule")} if host_network else set())
    for pod in driver.pods():
        found = pod["spec"]["tolerations"]
        assert all("tolerationSeconds" not in each for each in found)
        assert {(each["key"].rpartition("/")[2], each["effect"]) for each in found} == wanted


@pytest.mark.parametrize(
    ("rolling", "most_down"), [({"maxUnavailable": 1}, 1), ({"maxUnavailable": 2}, 2)]
)
def test_a_rolling_update_takes_down_as_many_as_it_may(
    rolling: dict[str, Any], most_down: int
) -> None:
    driver = Driver()
    start(driver, {"type": "RollingUpdate", "rollingUpdate": rolling})
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    driver.patch("daemonsets", "agent", image, "apps")
    for _ in range(12):
        assert len(nodes(driver)) >= 3 - most_down
        place(driver)
    assert {pod["spec"]["containers"][0]["image"] for pod in driver.pods()} == {"i:2"}
    assert status(driver)["updatedNumberScheduled"] == 3


def test_a_surge_starts_the_new_pod_first() -> None:
    driver = Driver()
    start(driver, {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    driver.patch("daemonsets", "agent", image, "apps")
    assert len(driver.pods()) == 4
    for _ in range(12):
        place(driver)
    assert nodes(driver) == ["node-1", "node-2", "node-3"]
    assert {pod["spec"]["containers"][0]["image"] for pod in driver.pods()} == {"i:2"}


def test_on_delete_waits_for_the_user() -> None:
    driver = Driver()
    start(driver, {"type": "OnDelete"})
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    driver.patch("daemonsets", "agent", image, "apps")
    driver.run(5)
    assert {pod["spec"]["containers"][0]["image"] for pod in driver.pods()} == {"i:1"}


def test_a_failed_pod_is_replaced_with_an_event() -> None:
    driver = Driver()
    start(driver)
    name = driver.names()[0]
    driver.report(name, "Failed")
    place(driver)
    assert name not in driver.names()
    assert len(driver.pods()) == 3
    assert "FailedDaemonPod" in [each[1] for each in driver.events("agent")]


def test_each_template_has_a_revision_and_an_old_one_comes_to_the_front_again() -> None:
    driver = Driver()
    start(driver)
    for image in ("i:2", "i:1"):
        change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
        driver.patch("daemonsets", "agent", change, "apps")
    images = {
        each["revision"]: each["data"]["spec"]["template"]["spec"]["containers"][0]["image"]
        for each in driver.api.all("controllerrevisions.apps")
    }
    assert images == {2: "i:2", 3: "i:1"}


def test_a_node_where_every_pod_fails_gets_them_ever_more_seldom() -> None:
    driver = Driver(kubelet=None)
    start(driver)
    deletions = 0
    for _ in range(40):
        for pod in driver.pods():
            on_it = pod["spec"].get("nodeName") == "node-1"
            if on_it and pod["status"]["phase"] != "Failed":
                driver.report(pod["metadata"]["name"], "Failed")
                deletions += 1
        place(driver)
    assert 5 <= deletions <= 8


def test_a_pod_for_a_node_that_is_gone_goes_if_it_was_never_bound() -> None:
    driver = Driver()
    blocked = {"nodeSelector": {"kubernetes.io/os": "linux"}}
    containers = [{"name": "c", "image": "i:1"}]
    template = {
        "metadata": {"labels": {"app": "agent"}},
        "spec": {"containers": containers, **blocked},
    }
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    driver.create("daemonsets", {"metadata": {"name": "agent"}, "spec": spec}, "apps")
    assert len(driver.pods()) == 3  # that nobody has bound
    driver.delete("nodes", "node-3")
    driver.run(1)
    assert sorted(target_of(pod) for pod in driver.pods()) == ["node-1", "node-2"]


def generations(driver: Driver) -> tuple[str, int]:
    metadata = driver.get("daemonsets.apps", "agent")["metadata"]
    return metadata["annotations"][TEMPLATE_GENERATION], metadata["generation"]


def test_templates_are_counted_and_pods_carry_the_number() -> None:
    driver = Driver()
    start(driver)
    assert generations(driver) == ("1", 1)
    labels = {pod["metadata"]["labels"]["pod-template-generation"] for pod in driver.pods()}
    assert labels == {"1"}
    image = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}}}}
    driver.patch("daemonsets", "agent", image, "apps")
    assert generations(driver) == ("2", 2)
    driver.patch("daemonsets", "agent", {"spec": {"minReadySeconds": 1}}, "apps")
    assert generations(driver) == ("2", 3)
    for wrong in ("7", "no number", None):
        annotations = {"annotations": {TEMPLATE_GENERATION: wrong}}
        driver.patch("daemonsets", "agent", {"metadata": annotations}, "apps")
        driver.patch("daemonsets", "agent", {"metadata": annotations}, "apps", "status")
        assert generations(driver) == ("2", 3)


@pytest.mark.parametrize(
    ("given", "stored"), [("5", "5"), ("0", "1"), ("-3", "1"), ("x", "1"), ("007", "7")]
)
def test_a_new_daemon_set_may_begin_with_a_number(given: str, stored: str) -> None:
    driver = Driver()
    containers = [{"name": "c", "image": "i:1"}]
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": containers}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "agent", "annotations": {TEMPLATE_GENERATION: given}}
    driver.create("daemonsets", {"metadata": metadata, "spec": spec}, "apps")
    assert generations(driver) == (stored, 1)


@pytest.mark.parametrize("plural", ["daemonsets", "statefulsets"])
def test_a_revision_has_the_bytes_that_go_writes(plural: str) -> None:
    driver = Driver()
    container = {"name": "c", "image": "i:1", "command": ["sh", "-c", "a && b > c < d"]}
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    driver.create(plural, {"metadata": {"name": "agent"}, "spec": spec}, "apps")
    [entry] = driver.api.store.collection("controllerrevisions.apps").entries("default")
    data = entry.data[entry.data.index(b'"data":') + len(b'"data":') :]
    keys = list(entry.obj["data"]["spec"]["template"]["spec"])
    assert keys == sorted(keys)
    assert data.startswith(b'{"spec":{"template":{"$patch":"replace","metadata":')
    assert rb'["sh","-c","a \u0026\u0026 b \u003e c \u003c d"]' in data
