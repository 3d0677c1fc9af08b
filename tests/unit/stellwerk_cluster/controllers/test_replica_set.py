"""ReplicaSets: adoption, release, and what is said when no pod can be made."""

from typing import Any

import pytest

from tests.support.cluster_driver import TEMPLATE, Driver


def start(driver: Driver, replicas: int = 2) -> None:
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": replicas, "selector": selector, "template": TEMPLATE}
    driver.create("replicasets", {"metadata": {"name": "web"}, "spec": spec}, "apps")


def bare_pod(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": TEMPLATE["spec"]}


def owners(driver: Driver, name: str) -> list[str]:
    found = driver.get("pods", name)["metadata"].get("ownerReferences") or []
    return [each["name"] for each in found]


def test_a_bare_pod_that_the_selector_chooses_is_adopted() -> None:
    driver = Driver()
    driver.create("pods", bare_pod("first", app="web"))
    start(driver)
    assert len(driver.pods()) == 2
    assert owners(driver, "first") == ["web"]


def test_a_pod_that_comes_later_is_adopted_and_is_one_too_many() -> None:
    driver = Driver()
    start(driver)
    driver.run(2)
    driver.create("pods", bare_pod("late", app="web"))
    driver.run(2)
    assert len(driver.pods()) == 2


def test_a_pod_whose_labels_are_taken_away_is_released_and_replaced() -> None:
    driver = Driver()
    start(driver)
    name = driver.names()[0]
    driver.patch("pods", name, {"metadata": {"labels": {"app": "debug"}}})
    assert len(driver.pods()) == 3
    assert owners(driver, name) == []


def test_a_quota_that_refuses_pods_shows_as_condition_and_event_until_there_is_room() -> None:
    driver = Driver()
    quota = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "1"}}}
    driver.create("resourcequotas", quota)
    start(driver)
    status = driver.get("replicasets.apps", "web")["status"]
    assert status["replicas"] == 1
    (condition,) = status["conditions"]
    assert (condition["type"], condition["reason"]) == ("ReplicaFailure", "FailedCreate")
    assert "exceeded quota" in condition["message"]
    assert ("Warning", "FailedCreate") in [each[:2] for each in driver.events("web")]
    assert driver.cluster.work.busy == ["ReplicaSetController"]
    driver.patch("resourcequotas", "small", {"spec": {"hard": {"pods": "5"}}})
    driver.run(10)
    status = driver.get("replicasets.apps", "web")["status"]
    assert (status["replicas"], status.get("conditions")) == (2, None)
    assert driver.cluster.work.busy == []


def test_a_created_pod_and_a_deleted_one_are_told_in_events() -> None:
    driver = Driver()
    start(driver, 1)
    (name,) = driver.names()
    driver.patch("replicasets", "web", {"spec": {"replicas": 0}}, "apps")
    assert driver.events("web") == [
        ("Normal", "SuccessfulCreate", f"Created pod: {name}"),
        ("Normal", "SuccessfulDelete", f"Deleted pod: {name}"),
    ]


def test_pods_that_fail_at_once_are_replaced_ever_later() -> None:
    driver = Driver(kubelet=None)
    start(driver, 1)
    for _ in range(40):
        for pod in driver.pods():
            if pod["status"]["phase"] != "Failed":
                driver.report(pod["metadata"]["name"], "Failed")
        driver.advance(1)
    assert 5 <= len(driver.pods()) <= 7


def test_a_pod_that_fails_after_a_long_life_is_replaced_at_once() -> None:
    driver = Driver()
    start(driver, 1)
    driver.advance(1000)
    driver.report(driver.names()[0], "Failed")
    assert len(driver.pods()) == 2


def test_a_set_of_many_pods_is_not_gone_through_for_each_of_their_changes() -> None:
    driver = Driver(kubelet=None)
    start(driver, replicas=120)
    driver.run(2)
    revision = int(driver.get("replicasets.apps", "web")["metadata"]["resourceVersion"])
    for name in driver.names():
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        driver.patch("pods", name, {"status": ready}, subresource="status")
    assert driver.cluster.work.busy == ["ReplicaSetController"]
    assert int(driver.get("replicasets.apps", "web")["metadata"]["resourceVersion"]) == revision
    driver.run(2)
    assert driver.get("replicasets.apps", "web")["status"]["readyReplicas"] == 120
    assert driver.cluster.work.busy == []


def test_pods_that_are_being_deleted_are_counted_until_they_are_gone() -> None:
    driver = Driver()
    start(driver)
    driver.run(2)
    counted = [driver.get("replicasets.apps", "web")["status"]["terminatingReplicas"]]
    driver.patch("replicasets", "web", {"spec": {"replicas": 0}}, "apps")
    for seconds in (0, 40):
        driver.run(seconds)
        counted.append(driver.get("replicasets.apps", "web")["status"]["terminatingReplicas"])
    assert counted == [0, 2, 0]


@pytest.mark.parametrize(
    ("plural", "group", "selector"),
    [
        ("replicationcontrollers", "", {"app": "web"}),
        ("replicasets", "apps", {"matchLabels": {"app": "web"}}),
        ("deployments", "apps", {"matchLabels": {"app": "web"}}),
        ("statefulsets", "apps", {"matchLabels": {"app": "web"}}),
        ("daemonsets", "apps", {"matchLabels": {"app": "web"}}),
    ],
)
def test_a_status_that_somebody_else_writes_is_put_right(
    plural: str, group: str, selector: dict[str, Any]
) -> None:
    driver = Driver()
    replicas = {} if plural == "daemonsets" else {"replicas": 1}
    spec = {**replicas, "selector": selector, "template": TEMPLATE}
    driver.create(plural, {"metadata": {"name": "web"}, "spec": spec}, group)
    driver.run(3)
    stored = f"{plural}.{group}".rstrip(".")
    before = driver.get(stored, "web")["status"]
    ready = "numberReady" if plural == "daemonsets" else "readyReplicas"
    assert before[ready] == 1
    for wrong in ({ready: 0}, {ready: 7}):
        driver.patch(plural, "web", {"status": wrong}, group, "status")
        assert driver.get(stored, "web")["status"] == before


def test_work_that_fails_waits_although_it_writes_its_status() -> None:
    driver = Driver()
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "0"}}}
    driver.create("resourcequotas", quota)
    driver.run(1)
    start(driver)
    driver.run(0.5, 0.1)
    refused = [each for each in driver.events("web") if each[1] == "FailedCreate"]
    assert len(refused) == 1
