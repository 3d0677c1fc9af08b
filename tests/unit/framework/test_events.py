"""Which kinds of change an update is."""

from dataclasses import replace
from typing import Any

import pytest

from stellwerk.framework.events import Action, node_update_actions, pod_update_actions
from stellwerk.models.pod_claims import GeneratedClaims
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, pod_info

GATED = {"schedulingGates": [{"name": "x/one"}]}
TOLERANT = {"tolerations": [{"operator": "Exists"}]}


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [
        pytest.param({}, {"labels": {"a": "b"}}, [Action.UPDATE_POD_LABEL], id="labels"),
        pytest.param(
            {"cpu": "2"}, {"cpu": "1"}, [Action.UPDATE_POD_SCALE_DOWN], id="a smaller request"
        ),
        pytest.param({"cpu": "2"}, {}, [Action.UPDATE_POD_SCALE_DOWN], id="a request gone"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, [Action.UPDATE_POD_OTHER], id="a larger request"),
        pytest.param({}, TOLERANT, [Action.UPDATE_POD_TOLERATION], id="a toleration"),
        pytest.param(
            GATED, {}, [Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED], id="the last gate"
        ),
        pytest.param(
            {"schedulingGates": [{"name": "x/one"}, {"name": "x/two"}]},
            GATED,
            [Action.UPDATE_POD_OTHER],
            id="a gate that was not the last",
        ),
        pytest.param({}, {}, [Action.UPDATE_POD_OTHER], id="nothing but the status"),
        pytest.param(
            {**GATED, "cpu": "2"},
            {"cpu": "1", "labels": {"a": "b"}},
            [
                Action.UPDATE_POD_LABEL,
                Action.UPDATE_POD_SCALE_DOWN,
                Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            ],
            id="several at once",
        ),
    ],
)
def test_a_pods_update(
    before: dict[str, Any], after: dict[str, Any], actions: list[Action]
) -> None:
    assert pod_update_actions(pod_info("a", **before), pod_info("a", **after)) == actions


TAINT = {"key": "k", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("before", "after", "actions"),
    [
        pytest.param({}, {}, [], id="a heartbeat"),
        pytest.param({"taints": [TAINT]}, {}, [Action.UPDATE_NODE_TAINT], id="taints"),
        pytest.param({"unschedulable": True}, {}, [Action.UPDATE_NODE_TAINT], id="uncordoned"),
        pytest.param({}, {"unschedulable": True}, [], id="cordoned helps no pod"),
        pytest.param({}, {"cpu": "8"}, [Action.UPDATE_NODE_ALLOCATABLE], id="allocatable"),
        pytest.param({}, {"labels": {"a": "b"}}, [Action.UPDATE_NODE_LABEL], id="labels"),
        pytest.param({}, {"images": [{"names": ["i"], "sizeBytes": 1}]}, [], id="images"),
    ],
)
def test_a_nodes_update(
    before: dict[str, Any], after: dict[str, Any], actions: list[Action]
) -> None:
    old, new = parse_node(make_node("n", **before)), parse_node(make_node("n", **after))
    assert node_update_actions(old, new) == actions


def test_annotations_and_declared_features_of_a_node_are_changes_of_their_own() -> None:
    node = parse_node(make_node("n"))
    changed = replace(node, annotations={"a": "b"}, declared_features=frozenset({"F"}))
    assert node_update_actions(node, changed) == [
        Action.UPDATE_NODE_ANNOTATION,
        Action.UPDATE_NODE_DECLARED_FEATURE,
    ]


def node_with_condition(status: str, beat: str) -> dict[str, Any]:
    node = make_node("n")
    node["status"]["conditions"] = [{"type": "Ready", "status": status, "lastHeartbeatTime": beat}]
    return node


def test_a_condition_of_a_node_is_a_change_and_a_heartbeat_is_none() -> None:
    """As `nodeConditionsChanged`: types and statuses are compared."""
    ready = parse_node(node_with_condition("True", "2026-01-01T00:00:00Z"))
    later = parse_node(node_with_condition("True", "2026-01-01T00:00:10Z"))
    lost = parse_node(node_with_condition("Unknown", "2026-01-01T00:00:10Z"))
    assert node_update_actions(ready, later) == []
    assert node_update_actions(ready, lost) == [Action.UPDATE_NODE_CONDITION]
    assert not ready.same_for_scheduling(lost)


def test_malformed_conditions_spoil_no_node() -> None:
    node = make_node("n")
    for wrong in ("Ready", [None, "Ready", {"type": 7, "status": "True"}, {"type": "Ready"}]):
        node["status"]["conditions"] = wrong
        assert parse_node(node).conditions == {}


def test_every_action_occurs() -> None:
    """What plugins may register is made of an update somewhere; ADD and DELETE are events."""
    node = parse_node(make_node("n"))
    node_after = replace(
        parse_node(node_with_condition("True", "")),
        taints=parse_node(make_node("n", taints=[TAINT])).taints,
        allocatable={"cpu": 8000},
        labels={"a": "b"},
        annotations={"a": "b"},
        declared_features=frozenset({"F"}),
    )
    pod = pod_info("a", **GATED, cpu="2")
    pod_after = pod_info("a", **TOLERANT, cpu="1", labels={"a": "b"})
    pod_after.terminating = True
    pod_after.details = replace(
        pod_after.details, generated_claims=GeneratedClaims({"c": "claim"}, "")
    )
    occurring = Action(0)
    for action in (
        *node_update_actions(node, node_after),
        *pod_update_actions(pod, pod_after),
        *pod_update_actions(pod, pod),
    ):
        occurring |= action
    assert occurring == Action.UPDATE & ~Action.UPDATE_OTHER
