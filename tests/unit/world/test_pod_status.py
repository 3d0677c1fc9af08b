"""Status patches, byte for byte those that kube-scheduler was recorded to send."""

from datetime import UTC, datetime

import pytest

from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.world.pod_status import (
    LEAVE_NOMINATION,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    NominatingInfo,
    disruption_patch,
    nomination_patch,
    status_patch,
)
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod

NOW = datetime(2026, 11, 20, 15, 53, 7, tzinfo=UTC)
MESSAGE = "0/1 nodes are available: 1 Insufficient cpu."
FIRST: JsonObject = {
    "lastProbeTime": None,
    "lastTransitionTime": "2026-11-20T15:53:07Z",
    "message": MESSAGE,
    "observedGeneration": 1,
    "reason": "Unschedulable",
    "status": "False",
    "type": "PodScheduled",
}
SAID: JsonObject = {**FIRST, "lastTransitionTime": "2026-11-20T15:50:00Z"}
READY: JsonObject = {"type": "Ready", "status": "True"}


def pod(*conditions: JsonObject, nominated: str | None = None, generation: int = 1) -> PodInfo:
    obj = make_pod("p", nominated_node_name=nominated)
    obj["metadata"]["generation"] = generation
    obj["status"]["conditions"] = list(conditions)
    return parse_pod(obj)


def patch(
    to: PodInfo,
    nomination: NominatingInfo = LEAVE_NOMINATION,
    message: str = MESSAGE,
    reason: str = UNSCHEDULABLE,
) -> JsonObject | None:
    return status_patch(to, NOW, reason=reason, message=message, nomination=nomination)


def test_the_first_time_the_whole_condition_is_written() -> None:
    assert patch(pod()) == {"status": {"conditions": [FIRST]}}


def test_a_nomination_goes_into_the_same_patch() -> None:
    assert patch(pod(), NominatingInfo("n1")) == {
        "status": {"conditions": [FIRST], "nominatedNodeName": "n1"}
    }


def test_then_only_what_changed_is_written() -> None:
    longer = "0/2 nodes are available: 2 Insufficient cpu."
    assert patch(pod(SAID), message=longer) == {
        "status": {
            "$setElementOrder/conditions": [{"type": "PodScheduled"}],
            "conditions": [{"message": longer, "type": "PodScheduled"}],
        }
    }


def test_nothing_is_written_when_nothing_changed() -> None:
    assert patch(pod(SAID)) is None
    assert patch(pod(SAID, nominated="n1"), NominatingInfo("n1")) is None


@pytest.mark.parametrize(
    ("before", "changes"),
    [
        pytest.param({"reason": "SchedulerError"}, {"reason": "Unschedulable"}, id="the reason"),
        pytest.param({"observedGeneration": 7}, {"observedGeneration": 1}, id="the generation"),
        pytest.param(
            {"status": "True"},
            {"status": "False", "lastTransitionTime": FIRST["lastTransitionTime"]},
            id="the status, and with it the time of its transition",
        ),
    ],
)
def test_each_change_by_itself(before: JsonObject, changes: JsonObject) -> None:
    made = patch(pod(SAID | before))
    assert made is not None
    assert made["status"]["conditions"] == [changes | {"type": "PodScheduled"}]


def test_an_error_has_a_reason_of_its_own() -> None:
    made = patch(pod(), reason=SCHEDULER_ERROR, message="boom")
    assert made is not None
    (condition,) = made["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("SchedulerError", "boom")


def test_other_conditions_keep_their_place() -> None:
    made = patch(pod(READY))
    assert made is not None
    order = made["status"]["$setElementOrder/conditions"]
    assert order == [{"type": "Ready"}, {"type": "PodScheduled"}]
    assert made["status"]["conditions"] == [FIRST]


def test_a_server_that_counts_no_generations_is_told_none() -> None:
    made = patch(pod(generation=0))
    assert made is not None
    assert "observedGeneration" not in made["status"]["conditions"][0]


@pytest.mark.parametrize(
    ("shown", "nomination", "expected"),
    [
        pytest.param("n1", LEAVE_NOMINATION, {}, id="nothing to say"),
        pytest.param("n1", NominatingInfo("n1"), {}, id="it is there already"),
        pytest.param("n1", NominatingInfo("n2"), {"nominatedNodeName": "n2"}, id="another node"),
        pytest.param("n1", NominatingInfo(""), {"nominatedNodeName": None}, id="no node any more"),
        pytest.param(None, NominatingInfo(""), {}, id="there was none"),
        pytest.param(
            None,
            NominatingInfo("", in_any_case=True),
            {"nominatedNodeName": None},
            id="the pod may not show it yet",
        ),
    ],
)
def test_nominations(shown: str | None, nomination: NominatingInfo, expected: JsonObject) -> None:
    assert nomination_patch(pod(nominated=shown), nomination) == expected


def test_a_victim_is_told_why_it_goes() -> None:
    obj = make_pod("v", node_name="n1")
    obj["metadata"]["generation"] = 1
    obj["status"]["conditions"] = [READY]
    message = "default-scheduler: preempting to accommodate a higher priority pod"
    made = disruption_patch(parse_pod(obj), NOW, reason="PreemptionByScheduler", message=message)
    assert made == {
        "status": {
            "$setElementOrder/conditions": [{"type": "Ready"}, {"type": "DisruptionTarget"}],
            "conditions": [
                {
                    "lastProbeTime": None,
                    "lastTransitionTime": "2026-11-20T15:53:07Z",
                    "message": message,
                    "observedGeneration": 1,
                    "reason": "PreemptionByScheduler",
                    "status": "True",
                    "type": "DisruptionTarget",
                }
            ],
        }
    }
