"""What is read from the queue: places, counts, position, the summary."""

import pytest

from stellwerk.backend.queued_pod import Place
from tests.support.builders import pod_info
from tests.support.queue_driver import QueueDriver


@pytest.fixture
def driver() -> QueueDriver:
    return QueueDriver()


def test_a_pod_that_is_not_in_the_queue_has_no_place(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    driver.queue.delete("uid-default-a")
    assert "uid-default-a" not in driver.queue.entries
    assert driver.queue.place("uid-default-a") is None
    assert driver.queue.pod("uid-default-a") is None


def test_popped_pods_are_in_the_queue_but_not_pending(driver: QueueDriver) -> None:
    driver.add(pod_info("a"))
    driver.pop_named("a")
    assert len(driver.queue.entries) == driver.queue.counted(Place.IN_FLIGHT) == 1
    assert not any(driver.queue.pending().values())


def test_position_counts_only_pods_still_in_activeq(driver: QueueDriver) -> None:
    driver.add(pod_info("a"), pod_info("b"), pod_info("c"))
    driver.queue.delete("uid-default-a")
    assert driver.queue.position("uid-default-c") == 1
    assert driver.queue.position("uid-default-a") is None


def test_the_summary_reads_as_kube_schedulers(driver: QueueDriver) -> None:
    driver.reject(pod_info("a"), "Fit")
    driver.add(pod_info("b"))
    driver.fail(driver.pop_named("b"))
    driver.add(pod_info("c"), pod_info("d"))
    assert driver.queue.describe() == "activeQ:2; backoffQ:1; unschedulablePods:1"
