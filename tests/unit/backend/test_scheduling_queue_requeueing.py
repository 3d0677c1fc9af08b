"""What becomes of pods that a change concerns when it takes more than one slice to find them."""

from itertools import pairwise

import pytest

from stellwerk.backend import requeue_backlog, unschedulable_pods
from stellwerk.backend.queued_pod import Place
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.models.pod import PodInfo
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, pod_info
from tests.support.queue_driver import Policy, QueueDriver

PODS = 9


def fits(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    assert isinstance(change.new, NodeInfo)
    return queue_if(pod.amounts.requests["cpu"] <= change.new.allocatable["cpu"])


def node_of(cpu: int) -> ClusterChange:
    return ClusterChange(Resource.NODE, Action.ADD, None, parse_node(make_node("n", cpu=str(cpu))))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> QueueDriver:
    """Pods p1 to p9 that want 1 to 9 CPUs, all rejected; two specs are a slice."""
    monkeypatch.setattr(requeue_backlog, "MAX_UNITS_PER_SLICE", 2)
    monkeypatch.setattr(unschedulable_pods, "MAX_SPECS_PER_STEP", 2)
    hints = {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD, fits)]}
    driver = QueueDriver(Policy(registered=hints))
    for cpu in range(1, PODS + 1):
        driver.reject(pod_info(f"p{cpu}", cpu=str(cpu)), "Fit")
    driver.now += 60
    return driver


def active(driver: QueueDriver) -> set[str]:
    return {
        entry.pod.name for entry in driver.queue.entries.values() if entry.place is Place.ACTIVE
    }


def work_off(driver: QueueDriver) -> int:
    slices = 1
    while driver.queue.backlog.work_off():
        slices += 1
    return slices


def test_all_that_a_change_concerns_are_moved_in_the_end(driver: QueueDriver) -> None:
    driver.change(node_of(6))
    assert len(active(driver)) < 6
    assert work_off(driver) > 3
    assert active(driver) == {f"p{cpu}" for cpu in range(1, 7)}


def test_several_changes_are_answered_in_their_order(driver: QueueDriver) -> None:
    driver.change(node_of(2))
    driver.change(node_of(4))
    work_off(driver)
    assert active(driver) == {"p1", "p2", "p3", "p4"}


def test_a_pod_that_is_updated_before_its_turn_is_not_missed(driver: QueueDriver) -> None:
    driver.change(node_of(8))
    driver.queue.update(pod_info("p8", cpu="8", labels={"new": "label"}), driver.now)
    work_off(driver)
    assert "p8" in active(driver)


def test_many_that_are_updated_before_their_turn_are_looked_at_in_slices(
    driver: QueueDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unschedulable_pods, "MAX_MOVED_PODS_PER_STEP", 1)
    driver.change(node_of(PODS))
    for cpu in range(3, PODS + 1):
        driver.queue.update(pod_info(f"p{cpu}", cpu=str(cpu), labels={"new": "label"}), driver.now)
    counts = [len(active(driver))]
    while driver.queue.backlog.work_off():
        counts.append(len(active(driver)))
    assert active(driver) == {f"p{cpu}" for cpu in range(1, PODS + 1)}
    assert max(after - before for before, after in pairwise(counts)) == 1


def test_a_pod_that_was_tried_since_is_left_alone(driver: QueueDriver) -> None:
    driver.change(node_of(PODS))
    entry = driver.queue.entries["uid-default-p9"]
    driver.queue.activate([entry.pod], driver.now)
    driver.now += 1
    while (popped := driver.pop()) is not entry:
        assert popped is not None
    driver.fail(entry, "Fit")
    work_off(driver)
    assert entry.place is Place.UNSCHEDULABLE


def test_a_pod_that_is_deleted_before_its_turn_stays_deleted(driver: QueueDriver) -> None:
    driver.change(node_of(PODS))
    driver.queue.delete("uid-default-p9")
    work_off(driver)
    assert driver.queue.place("uid-default-p9") is None
    assert driver.queue.pending()["active"] == PODS - 1


def test_of_too_many_changes_every_pod_is_tried_once(
    driver: QueueDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requeue_backlog, "MAX_PENDING_CHANGES", 3)
    for _ in range(10):
        driver.change(node_of(1))
    work_off(driver)
    assert len(active(driver)) == PODS


def test_a_profile_that_changes_gets_all_its_pods_back(driver: QueueDriver) -> None:
    driver.queue.retry_profile("default-scheduler", driver.now)
    work_off(driver)
    assert len(active(driver)) == PODS


def test_backoff_and_the_timeout_move_all_in_slices(driver: QueueDriver) -> None:
    driver.now += 301
    driver.queue.flush_unschedulable(driver.now)
    assert work_off(driver) > 2
    assert len(active(driver)) == PODS
    assert all(entry.was_flushed for entry in driver.queue.entries.values())
