"""Pods of profiles that observe, in the queue beside those that are scheduled."""

from collections.abc import Mapping
from heapq import heappop
from typing import Any

import pytest

from stellwerk.backend.queued_pod import ActiveItem, Place, QueuedPod
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    ClusterEventWithHint,
    QueueingHint,
    Resource,
)
from stellwerk.models.pod import PodInfo
from tests.support.builders import pod_info
from tests.support.queue_driver import Policy, QueueDriver

NODE_ADDED = ClusterChange(Resource.NODE, Action.ADD)
OTHERS = "others"


def helps(_: PodInfo, change: ClusterChange) -> QueueingHint:
    assert change is NODE_ADDED
    return QueueingHint.QUEUE


FIT = {"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD, helps)]}


class ObservingDriver(QueueDriver):
    """A queue of which one profile observes, and the activeQ of its pods."""

    def __init__(self) -> None:
        policy = Policy(registered=FIT)
        policy.observing = {OTHERS}
        super().__init__(policy)
        self.observed_items: list[ActiveItem] = []
        self.queue._push_observed = self.observed_items.append  # noqa: SLF001 as the wiring does

    def pop_observed(self) -> QueuedPod | None:
        """The next observed pod; None: there is none."""
        while self.observed_items:
            popped = self.queue.pop(heappop(self.observed_items))
            if popped is not None:
                return popped
        return None

    def decided(self, name: str, **spec: Any) -> QueuedPod:
        """An observed pod that was decided, and waits for the other scheduler."""
        self.add(others(name, **spec))
        entry = self.pop_observed()
        assert entry is not None
        self.queue.observe(entry, self.now)
        return entry


def others(name: str, **spec: Any) -> PodInfo:
    return pod_info(name, scheduler_name=OTHERS, **spec)


@pytest.fixture
def driver() -> ObservingDriver:
    return ObservingDriver()


def counts(driver: QueueDriver) -> Mapping[str, int]:
    return driver.queue.pending()


def test_observed_pods_have_an_active_queue_of_their_own(driver: ObservingDriver) -> None:
    driver.add(others("observed", priority=100), pod_info("mine"))
    assert driver.drain() == ["mine"]
    entry = driver.pop_observed()
    assert entry is not None
    assert (entry.pod.name, entry.is_observed) == ("observed", True)
    assert driver.pop_observed() is None


def test_an_observed_pod_is_in_no_count_of_kube_scheduler(driver: ObservingDriver) -> None:
    nothing = counts(driver)
    driver.decided("decided")
    driver.add(others("rejected"))
    rejected = driver.pop_observed()
    assert rejected is not None
    driver.fail(rejected, "Fit")
    driver.add(others("active"))
    assert counts(driver) == nothing
    assert (driver.observed.moves, driver.observed.rejected_pods) == ({}, {})
    assert driver.queue.observed(Place.ACTIVE, Place.UNSCHEDULABLE, Place.OBSERVED) == 3
    assert driver.queue.counted(Place.UNSCHEDULABLE) == 1
    driver.change(NODE_ADDED)
    assert driver.observed.hints == {}


def test_a_decided_pod_is_moved_by_no_timer_and_no_change(driver: ObservingDriver) -> None:
    entry = driver.decided("web")
    driver.change(NODE_ADDED)
    driver.advance(3600)
    driver.queue.activate([entry.newest], driver.now)
    assert (entry.place, driver.pop_observed()) == (Place.OBSERVED, None)


def test_a_rejected_pod_is_moved_by_a_change_alone_and_never_early(
    driver: ObservingDriver,
) -> None:
    driver.add(others("web"))
    entry = driver.pop_observed()
    assert entry is not None
    driver.fail(entry, "Fit")
    driver.advance(3600)
    assert entry.place is Place.UNSCHEDULABLE
    driver.change(NODE_ADDED)
    assert driver.pop_observed() is entry
    driver.fail(entry, "Fit")
    driver.change(NODE_ADDED)
    # It backs off, and an idle activeQ does not pop it.
    assert (entry.place, driver.pop()) == (Place.ERROR_BACKOFF, None)
    driver.advance(20)
    assert driver.pop_observed() is entry


def test_a_pod_that_changes_is_decided_again(driver: ObservingDriver) -> None:
    entry = driver.decided("web")
    driver.queue.update(others("web", labels={"a": "b"}), driver.now)
    assert driver.pop_observed() is entry
    assert entry.pod.labels == {"a": "b"}


def test_an_observed_pod_nominates_no_node(driver: ObservingDriver) -> None:
    driver.decided("web", nominated_node_name="a")
    driver.queue.update(others("web", nominated_node_name="b"), driver.now)
    driver.add(others("rejected", nominated_node_name="a"))
    entry = driver.pop_observed()
    assert entry is not None
    driver.fail(entry, "Fit")
    assert driver.queue.nominator.by_node == {}


def test_a_pod_follows_the_mode_of_its_profile(driver: ObservingDriver) -> None:
    driver.decided("decided")
    driver.add(others("active"))
    driver.policy.observing = set()
    driver.queue.retry_profile(OTHERS, driver.now)
    while driver.queue.backlog.work_off():
        pass
    assert sorted(driver.drain()) == ["active", "decided"]
    assert driver.pop_observed() is None
    assert driver.queue.observed(*Place) == 0
    driver.policy.observing = {OTHERS}
    for entry in list(driver.queue.entries.values()):
        driver.fail(entry, "Fit")
    assert all(each.is_observed for each in driver.queue.entries.values())
    assert counts(driver) == dict.fromkeys(counts(driver), 0)
    first, second = driver.pop_observed(), driver.pop_observed()
    assert first is not None
    assert second is not None


def test_a_popped_pod_of_a_profile_that_observes_by_now_is_handed_over(
    driver: ObservingDriver,
) -> None:
    driver.policy.observing = set()
    driver.add(others("web"))
    entry = driver.pop_named("web")
    driver.policy.observing = {OTHERS}
    driver.queue.hand_over(entry, driver.now)
    again = driver.pop_observed()
    assert again is not None
    assert (again.pod.name, again.is_observed) == ("web", True)
