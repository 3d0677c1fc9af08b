"""Which pods of equal priority give way to which, and for how long."""

from itertools import pairwise

import pytest

from stellwerk.backend.scheduling_queue import (
    MOST_LAG_SECONDS,
    RETRY_GIVES_WAY_SECONDS,
    UNDELAYED_PODS,
    NamespaceFairness,
)
from stellwerk.framework.events import Action, ClusterChange, ClusterEventWithHint, Resource
from tests.support.builders import pod_info
from tests.support.queue_driver import Policy, QueueDriver

NODE_ADDED = ClusterChange(Resource.NODE, Action.ADD)


@pytest.fixture
def driver() -> QueueDriver:
    return QueueDriver(
        Policy(registered={"Fit": [ClusterEventWithHint(Resource.NODE, Action.ADD)]})
    )


def test_the_first_pods_of_a_namespace_count_as_having_come_when_they_came() -> None:
    fairness = NamespaceFairness()
    assert [
        fairness.queued_at("a", 7.0, waiting, retry=False)
        for waiting in range(1, UNDELAYED_PODS + 1)
    ] == ([7.0] * UNDELAYED_PODS)


def test_the_more_of_a_namespace_wait_the_later_a_pod_counts_up_to_a_bound() -> None:
    fairness = NamespaceFairness()
    found = [fairness.queued_at("a", 0.0, waiting, retry=False) for waiting in range(1, 20_000)]
    assert all(one <= other for one, other in pairwise(found))
    assert found[UNDELAYED_PODS] > 0
    assert found[-1] == MOST_LAG_SECONDS


def test_pods_of_a_namespace_keep_their_order_when_fewer_wait() -> None:
    fairness = NamespaceFairness()
    first = fairness.queued_at("a", 0.0, 1_000, retry=False)
    assert fairness.queued_at("a", 1.0, 3, retry=False) >= first
    assert fairness.queued_at("b", 1.0, 3, retry=False) == 1.0, "others have places of their own"
    assert fairness.queued_at("a", 1.0, 3, retry=True) == 1.0, "and so have retries"


# --- who gives way to whom ------------------------------------------------------------------------


def test_first_attempts_pass_retries_of_equal_priority_for_a_minute(driver: QueueDriver) -> None:
    for name, priority in (("old", 0), ("urgent", 1)):
        driver.reject(pod_info(name, priority=priority), "Fit")
    driver.now += 100
    driver.change(NODE_ADDED)
    driver.now += RETRY_GIVES_WAY_SECONDS - 1
    driver.add(pod_info("new"))
    driver.now += 2
    driver.add(pod_info("late"))
    assert driver.drain() == ["urgent", "new", "old", "late"]


def test_a_nominated_pod_keeps_its_place(driver: QueueDriver) -> None:
    entry = driver.reject(pod_info("nominated"), "Fit")
    driver.queue.nominate(entry.pod, "n1")
    driver.now += 100
    driver.change(NODE_ADDED)
    driver.add(pod_info("new"))
    assert driver.drain() == ["nominated", "new"]


def test_one_pod_does_not_wait_for_all_that_another_namespace_has_created(
    driver: QueueDriver,
) -> None:
    flood = [pod_info(f"f{number}", namespace="flood") for number in range(1000)]
    driver.add(*flood)
    driver.now += 0.01
    driver.add(pod_info("other"))
    names = driver.drain()
    assert names.index("other") == UNDELAYED_PODS
    names.remove("other")
    assert names == [pod.name for pod in flood], "among themselves they keep their order"


def test_one_pod_does_not_wait_for_all_retries_of_another_namespace(driver: QueueDriver) -> None:
    driver.add(*(pod_info(f"f{number}", namespace="flood") for number in range(100)))
    for number in range(100):
        driver.fail(driver.pop_named(f"f{number}"), "Fit")
    driver.reject(pod_info("other"), "Fit")
    driver.now += 100
    driver.change(NODE_ADDED)
    assert driver.drain().index("other") <= UNDELAYED_PODS
