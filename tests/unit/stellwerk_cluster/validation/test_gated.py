from typing import Any

import pytest

from stellwerk_cluster.validation.gated import drop_disabled, forbidden_errors

TOPOLOGY = "TopologyAwareWorkloadScheduling"
CONSTRAINTS = {"topology": [{"key": "zone"}]}
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


def group(**spec: Any) -> dict[str, Any]:
    return {"spec": {**GANG, **spec}}


def workload(*names: str, **template: Any) -> dict[str, Any]:
    return {"spec": {"podGroupTemplates": [{"name": name, **GANG, **template} for name in names]}}


@pytest.mark.parametrize(
    ("old", "gates", "kept"),
    [
        pytest.param({}, (), False, id="the gate is off"),
        pytest.param({}, (TOPOLOGY,), True, id="the gate is on"),
        pytest.param(group(schedulingConstraints={}), (), True, id="it is there already"),
        pytest.param(group(), (), False, id="it is not there yet"),
    ],
)
def test_a_field_is_dropped_while_its_gate_is_off(
    old: dict[str, Any], gates: tuple[str, ...], *, kept: bool
) -> None:
    obj = group(schedulingConstraints=CONSTRAINTS)
    drop_disabled("PodGroupV1beta1", obj, old, gates)
    assert ("schedulingConstraints" in obj["spec"]) == kept
    assert obj["spec"]["schedulingPolicy"] == GANG["schedulingPolicy"]


def test_items_of_a_list_are_compared_by_their_keys() -> None:
    old = workload("b", schedulingConstraints={})
    obj = workload("a", "b", schedulingConstraints=CONSTRAINTS)
    drop_disabled("WorkloadV1beta1", obj, old, ())
    first, second = obj["spec"]["podGroupTemplates"]
    assert "schedulingConstraints" not in first
    assert second["schedulingConstraints"] == CONSTRAINTS


def test_what_is_refused_is_named_where_it_stands() -> None:
    obj = workload("a", "b", preemptionPolicy="Never")
    old = workload("b", preemptionPolicy="Never")
    fields = [each.field for each in forbidden_errors("WorkloadV1beta1", obj, old, ())]
    assert fields == ["spec.podGroupTemplates[0].preemptionPolicy"]
    gates = ("PodGroupPreemptionPolicy",)
    assert list(forbidden_errors("WorkloadV1beta1", obj, {}, gates)) == []


def test_types_without_gates_are_left_alone() -> None:
    pod = {"spec": {"schedulingConstraints": 1}}
    drop_disabled("Pod", pod, {}, ())
    assert pod == {"spec": {"schedulingConstraints": 1}}
