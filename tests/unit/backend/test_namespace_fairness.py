"""Which pods of equal priority give way to which, and for how long."""

from itertools import pairwise

import pytest

from stellwerk.backend.namespace_fairness import (
    MAX_LAG_SECONDS,
    MAX_PODS_IN_ARRIVAL_ORDER,
    RETRY_DELAY_SECONDS,
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


def enter(fairness: NamespaceFairness, pods: int, namespace: str = "a") -> list[float]:
    """Pods of a namespace that come at 0 s and are not tried meanwhile: what each is sorted by."""
    found = []
    for _ in range(pods):
        fairness.count(namespace, 1)
        found.append(fairness.sorted_at(namespace, 0.0, is_retry=False))
    return found


def test_the_first_pods_of_a_namespace_count_as_having_come_when_they_came() -> None:
    fairness = NamespaceFairness()
    assert enter(fairness, MAX_PODS_IN_ARRIVAL_ORDER) == [0.0] * MAX_PODS_IN_ARRIVAL_ORDER


def test_the_more_of_a_namespace_wait_the_later_a_pod_counts_up_to_a_bound() -> None:
    found = enter(NamespaceFairness(), 20_000)
    assert all(one <= other for one, other in pairwise(found))
    assert found[MAX_PODS_IN_ARRIVAL_ORDER] > 0
    assert found[-1] == MAX_LAG_SECONDS


def test_pods_of_a_namespace_keep_their_order_when_fewer_wait() -> None:
    fairness = NamespaceFairness()
    latest = enter(fairness, 1_000)[-1]
    for _ in range(998):
        fairness.count("a", -1)
    fairness.count("a", 1)
    assert fairness.sorted_at("a", 1.0, is_retry=False) >= latest
    fairness.count("b", 1)
    assert fairness.sorted_at("b", 1.0, is_retry=False) == 1.0, "others have places of their own"
    retried_at = 1.0 + RETRY_DELAY_SECONDS
    assert fairness.sorted_at("a", 1.0, is_retry=True) == retried_at, "and so have retries"


def test_nothing_is_kept_of_a_namespace_of_which_no_pod_waits() -> None:
    fairness = NamespaceFairness()
    enter(fairness, 1_000)
    for _ in range(1_000):
        fairness.count("a", -1)
    assert enter(fairness, 1) == [0.0]


# --- who gives way to whom ------------------------------------------------------------------------


def test_first_attempts_pass_retries_of_equal_priority_for_a_minute(driver: QueueDriver) -> None:
    for name, priority in (("old", 0), ("urgent", 1)):
        driver.reject(pod_info(name, priority=priority), "Fit")
    driver.now += 100
    driver.change(NODE_ADDED)
    driver.now += RETRY_DELAY_SECONDS - 1
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
    assert names.index("other") == MAX_PODS_IN_ARRIVAL_ORDER
    names.remove("other")
    assert names == [pod.name for pod in flood], "among themselves they keep their order"


def test_one_pod_does_not_wait_for_all_retries_of_another_namespace(driver: QueueDriver) -> None:
    driver.add(*(pod_info(f"f{number}", namespace="flood") for number in range(100)))
    for number in range(100):
        driver.fail(driver.pop_named(f"f{number}"), "Fit")
    driver.reject(pod_info("other"), "Fit")
    driver.now += 100
    driver.change(NODE_ADDED)
    assert driver.drain().index("other") <= MAX_PODS_IN_ARRIVAL_ORDER
