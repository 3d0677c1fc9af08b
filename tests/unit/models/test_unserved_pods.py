"""A pod that nobody serves is told from one of another scheduler."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stellwerk.models.unserved_pods import NOT_SERVED, moment_of, sign_of_scheduler, unserved_pods
from stellwerk_kube.json_values import JsonObject
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
        pytest.param(pod(reason="Unschedulable"), True, id="its scheduler is gone since"),
        pytest.param(pod(reason="SchedulerError"), True, id="Stellwerk says that none serves it"),
        pytest.param(pod(node_name="n1"), False, id="it has a node"),
        pytest.param(pod(schedulingGates=[{"name": "a"}]), False, id="it has gates"),
    ],
)
def test_waiting_pods_of_no_served_name_are_candidates(
    given: JsonObject, *, is_unserved: bool
) -> None:
    assert unserved_pods([given], {"stellwerk"}, NOW) == (
        {"other": ["default/web"]} if is_unserved else {}
    )


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat()


def lease(age_seconds: float, name: str = "other", **spec: Any) -> JsonObject:
    held = {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": ago(age_seconds)}
    return {"metadata": {"name": name, "namespace": "kube-system"}, "spec": {**held, **spec}}


def event(age_seconds: float, name: str = "other", **fields: Any) -> JsonObject:
    about = {"namespace": "default", "name": "web"}
    reported = {"reportingComponent": name, "eventTime": ago(age_seconds)}
    return {"involvedObject": about, **reported, "message": "0/3 nodes", **fields}


@pytest.mark.parametrize(
    ("seen", "sign"),
    [
        pytest.param({}, "", id="nothing"),
        pytest.param(
            {"leases": [lease(5)]}, "the lease kube-system/other is renewed", id="a lease"
        ),
        pytest.param({"leases": [lease(120)]}, "", id="a lease that nobody renews"),
        pytest.param({"leases": [lease(5, holderIdentity="")]}, "", id="a lease without holder"),
        pytest.param({"leases": [lease(5, "another")]}, "", id="a lease of another name"),
        pytest.param({"events": [event(60)]}, "it has reported on default/web", id="an event"),
        pytest.param({"events": [event(3000)]}, "", id="an event of an hour ago"),
        pytest.param(
            {"events": [event(3000, series={"lastObservedTime": ago(9)})]},
            "it has reported on default/web",
            id="an old event that goes on",
        ),
        pytest.param(
            {"events": [event(60, "", source={"component": "other"})]},
            "it has reported on default/web",
            id="an event of the old API",
        ),
        pytest.param({"events": [event(60, "kubelet")]}, "", id="an event of another component"),
        pytest.param(
            {"events": [event(60, message=f'{NOT_SERVED} "other"')]},
            "",
            id="what Stellwerk itself reports",
        ),
        pytest.param(
            {"bindings": [("default/a", NOW - timedelta(seconds=599))]},
            "it has bound default/a",
            id="a binding",
        ),
        pytest.param({"bindings": [("default/a", NOW - timedelta(hours=1))]}, "", id="an old one"),
        pytest.param(
            {
                "bindings": [("default/a", NOW - timedelta(seconds=60))],
                "events": [event(60)],
                "since": NOW - timedelta(seconds=30),
            },
            "",
            id="signs of this operator, from before its profile went",
        ),
    ],
)
def test_another_scheduler_shows_by_one_of_three_signs(seen: Any, sign: str) -> None:
    assert sign_of_scheduler("other", now=NOW, **seen) == sign


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
