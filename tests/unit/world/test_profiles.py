"""A pod finds its profile in one place; without one, the queue has answers all the same."""

import pytest

from stellwerk.backend.backoff_queue import Backoff
from stellwerk.framework.types import OK
from stellwerk.world.profiles import Profiles, ServedProfile
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod, pod_info


@pytest.fixture
def profile() -> ServedProfile:
    """One that serves default-scheduler."""
    return Case({"id": "case", "pod": make_pod("p"), "nodes": [make_node("n1")]}).profile


def test_a_pod_belongs_to_the_profile_that_serves_its_scheduler_name(
    profile: ServedProfile,
) -> None:
    profiles = Profiles()
    profiles.serve([profile], {})
    assert profiles.of(pod_info("p")) is profile
    assert profiles.of(pod_info("p", scheduler_name="other")) is None


def test_what_is_served_no_more_is_gone(profile: ServedProfile) -> None:
    profiles = Profiles()
    profiles.serve([profile], {})
    profiles.serve([], {"default-scheduler": "SchedulerProfile a is not accepted: no such plugin"})
    pod = pod_info("p")
    assert profiles.of(pod) is None
    assert profiles.why_none(pod) == "SchedulerProfile a is not accepted: no such plugin"
    other = pod_info("p", scheduler_name="other")
    assert profiles.why_none(other) == 'no SchedulerProfile serves schedulerName "other"'


def test_without_a_profile_the_queue_goes_by_priority_and_time() -> None:
    profiles, pod = Profiles(), pod_info("p", priority=7)
    assert profiles.sort_key(pod, 3.0) == (-7, 3.0)
    assert profiles.pre_enqueue(pod, "") is OK
    assert profiles.hints("default-scheduler") == {}
    assert profiles.backoff(pod) == Backoff()
