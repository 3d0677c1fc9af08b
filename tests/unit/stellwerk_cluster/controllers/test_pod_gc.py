"""Pods that no kubelet will end: of vanished nodes, unbound, out of service, too many finished."""

from typing import Any

import pytest

from stellwerk_cluster.controllers.index import Index
from stellwerk_cluster.controllers.pod_gc import OUT_OF_SERVICE, PodGarbageCollector
from tests.support.cluster_driver import Driver

NO_KUBELET: dict[str, Any] = {"kubelet": None}
NOT_READY = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], **spec},
    }


def test_pods_of_a_vanished_node_go_after_its_quarantine() -> None:
    driver = Driver()
    driver.create("pods", pod("a", nodeName="node-1"))
    driver.run(2)
    driver.delete("nodes", "node-1")
    driver.advance(39)
    assert driver.names() == ["a"]
    driver.advance(1.5)
    assert driver.names() == []


def test_a_pod_of_a_node_that_came_back_stays() -> None:
    driver = Driver()
    driver.create("pods", pod("a", nodeName="node-1"))
    driver.delete("nodes", "node-1")
    driver.advance(20)
    driver.create("nodes", {"metadata": {"name": "node-1"}})
    driver.run(60)
    assert driver.names() == ["a"]


def test_a_pod_for_a_node_that_never_existed_is_collected() -> None:
    driver = Driver()
    driver.create("pods", pod("a", nodeName="kube-01"))
    driver.advance(41)
    assert driver.names() == []


def test_a_deleted_pod_of_a_vanished_node_fails_first_where_something_holds_it() -> None:
    driver = Driver()
    held = pod("a", nodeName="node-1")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    driver.create("pods", held)
    driver.run(2)
    driver.delete("nodes", "node-1")
    driver.advance(41)
    status = driver.get("pods", "a")["status"]
    assert status["phase"] == "Failed"
    (target,) = [each for each in status["conditions"] if each["type"] == "DisruptionTarget"]
    assert (target["reason"], target["message"]) == (
        "DeletionByPodGC",
        "PodGC: node no longer exists",
    )


def test_a_terminating_pod_goes_at_once_when_its_node_is_out_of_service() -> None:
    driver = Driver(**NO_KUBELET)
    driver.create("pods", pod("a", nodeName="node-1"))
    driver.create("pods", pod("stays", nodeName="node-1"))
    driver.patch("nodes", "node-1", NOT_READY, subresource="status")
    driver.delete("pods", "a")
    driver.advance(100)
    assert driver.names() == ["a", "stays"]
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoSchedule"}
    driver.patch("nodes", "node-1", {"spec": {"taints": [taint]}})
    assert driver.names() == ["stays"]


def test_a_ready_node_is_in_service_whatever_its_taints_say() -> None:
    driver = Driver(**NO_KUBELET)
    driver.create("pods", pod("a", nodeName="node-1"))
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoSchedule"}
    driver.patch("nodes", "node-1", {"spec": {"taints": [taint]}})
    driver.delete("pods", "a")
    driver.advance(100)
    assert driver.names() == ["a"]


@pytest.mark.parametrize(
    ("most", "left"), [(2, ["c", "d"]), (0, ["a", "b", "c", "d"]), (4, ["a", "b", "c", "d"])]
)
def test_the_oldest_finished_pods_go_when_there_are_too_many(most: int, left: list[str]) -> None:
    driver = Driver(chosen_controllers=(), **NO_KUBELET)
    for name in "abcd":
        driver.create("pods", pod(name, nodeName="node-1"))
        driver.advance(1)
    collector = PodGarbageCollector(driver.api, Index(driver.api), most_finished=most)
    for name in "abcd":
        driver.report(name, "Succeeded")
    driver.advance(21)
    while (key := collector.queue.take()) is not None:
        collector.reconcile(key)
    assert driver.names() == left
