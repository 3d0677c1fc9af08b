"""A pod that nobody serves is told from one of another scheduler."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from stellwerk.models.unserved_pods import moment_of, unserved_pods
from tests.support.builders import make_pod

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(age_seconds: float = 60, reason: str = "", **fields: Any) -> JsonObject:
    made = make_pod("web", scheduler_name="other", **fields)
    created = NOW - timedelta(seconds=age_seconds)
    made["metadata"]["creationTimestamp"] = created.strftime("%Y-%m-%dT%H:%M:%SZ")
    if reason:
        condition = {"type": "PodScheduled", "status": "False", "reason": reason}
        made["status"] = {"phase": "Pending", "conditions": [condition]}
    return made


@pytest.mark.parametrize(
    ("given", "is_unserved"),
    [
        pytest.param(pod(), True, id="no scheduler has reported on it"),
        pytest.param(pod(age_seconds=3), False, id="it is new"),
        pytest.param(pod(reason="Unschedulable"), False, id="another scheduler found no node"),
        pytest.param(pod(reason="SchedulingGated"), False, id="it is gated"),
        pytest.param(pod(reason="SchedulerError"), True, id="Stellwerk says that none serves it"),
        pytest.param(pod(node_name="n1"), False, id="it has a node"),
        pytest.param(pod(schedulingGates=[{"name": "a"}]), False, id="it has gates"),
    ],
)
def test_only_pods_without_a_word_of_a_scheduler_are_unserved(
    given: JsonObject, *, is_unserved: bool
) -> None:
    assert unserved_pods([given], {"stellwerk"}, NOW) == (
        {"other": ["default/web"]} if is_unserved else {}
    )


def test_served_names_and_pods_that_end_are_left_out() -> None:
    assert unserved_pods([pod()], {"other"}, NOW) == {}
    ending = pod()
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    finished = pod()
    finished["status"] = {"phase": "Failed"}
    assert unserved_pods([ending, finished], (), NOW) == {}


def test_pods_without_a_name_are_the_default_schedulers() -> None:
    nameless = pod()
    del nameless["spec"]["schedulerName"]
    assert unserved_pods([nameless], (), NOW) == {"default-scheduler": ["default/web"]}


@pytest.mark.parametrize("text", [None, 7, "yesterday", "2026-01-01T00:00:00"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert moment_of(text) is None
