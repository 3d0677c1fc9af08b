"""Rules of PodGroups and Workloads that the recorded scenarios do not show."""

from typing import Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.feature_gates import (
    CLAIMS,
    GANG_SCHEDULING,
    GANGS,
    GENERIC_WORKLOAD,
    gates_of,
)
from stellwerk_cluster.defaults.kind_defaults import FINALIZER
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from tests.support.embedded_rules import Rules, pod

GROUP = "scheduling.k8s.io"
GANG = {"schedulingPolicy": {"gang": {"minCount": 3}}}


def group(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "g"}, "spec": {**GANG, **spec}}


def claim(**sources: str) -> dict[str, Any]:
    return {"name": "gpus", **sources}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(
            {"priorityClassName": "system-node-critical"},
            ["spec.priority: Invalid value: 2000001000: must be less than or equal to 1000000000"],
            id="the priority of the system is not for groups",
        ),
        pytest.param(
            {"resourceClaims": [claim()]},
            [
                (
                    'spec.resourceClaims[0]: Invalid value: "": must specify one of: '
                    "`resourceClaimName`, `resourceClaimTemplateName`"
                )
            ],
            id="a claim from nowhere",
        ),
        pytest.param(
            {"resourceClaims": [claim(resourceClaimName="a", resourceClaimTemplateName="b")]},
            [
                (
                    "spec.resourceClaims[0]: Invalid value: "
                    '"{resourceClaimName, resourceClaimTemplateName}": must specify exactly '
                    "one of: `resourceClaimName`, `resourceClaimTemplateName`"
                )
            ],
            id="a claim from two places",
        ),
        pytest.param(
            {"resourceClaims": [claim(resourceClaimName="a"), claim(resourceClaimName="b")]},
            ['spec.resourceClaims[1]: Duplicate value: {"name":"gpus","resourceClaimName":"b"}'],
            id="two claims of one name",
        ),
        pytest.param(
            {"resourceClaims": [claim(resourceClaimName="a")] * 5},
            ["spec.resourceClaims: Too many: 5: must have at most 4 items"],
            id="too many claims",
        ),
        pytest.param(
            {"disruptionMode": ""},
            ['spec.disruptionMode: Unsupported value: "": supported values: "Pod", "PodGroup"'],
            id="an empty mode is no mode",
        ),
    ],
)
def test_a_group_is_refused(spec: dict[str, Any], expected: list[str]) -> None:
    assert Rules(gates=gates_of("1.36")).refused("podgroups", group(**spec), GROUP) == expected


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        pytest.param(
            {"status": "true", "reason": "a b", "observedGeneration": -1},
            [
                (
                    'status.conditions[0].status: Unsupported value: "true": supported values: '
                    '"False", "True", "Unknown"'
                ),
                (
                    "status.conditions[0].observedGeneration: Invalid value: -1: must be greater "
                    "than or equal to 0"
                ),
                "status.conditions[0].lastTransitionTime: Required value",
                (
                    'status.conditions[0].reason: Invalid value: "a b": a condition reason must '
                    "start with alphabetic character, optionally followed by a string of "
                    "alphanumeric characters or '_,:', and must end with an alphanumeric "
                    "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
                    "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
                    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
                ),
            ],
            id="wrong words",
        ),
        pytest.param(
            {
                "status": "True",
                "reason": "R" * 1025,
                "message": "m" * 32769,
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            },
            [
                "status.conditions[0].reason: Too long: may not be more than 1024 bytes",
                "status.conditions[0].message: Too long: may not be more than 32768 bytes",
            ],
            id="too many words",
        ),
    ],
)
def test_a_condition_is_refused(conditions: dict[str, Any], expected: list[str]) -> None:
    rules = Rules(gates=GANGS)
    rules.create("podgroups", group(), GROUP)
    status = {"status": {"conditions": [{"type": "PodGroupScheduled", **conditions}]}}
    with pytest.raises(StatusError) as refusal:
        rules.patch("podgroups", "g", status, group=GROUP, subresource="status")
    causes = (refusal.value.details or {})["causes"]
    assert [f"{each['field']}: {each['message']}" for each in causes] == expected


def test_the_status_names_claims_of_the_group_alone() -> None:
    rules = Rules(gates=gates_of("1.36"))
    claims = [claim(resourceClaimTemplateName="t")]
    rules.create("podgroups", group(resourceClaims=claims), GROUP)
    made = {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "g-gpus-x"}]}
    stored = rules.patch("podgroups", "g", {"status": made}, group=GROUP, subresource="status")
    assert stored["status"] == made
    wrong = {"resourceClaimStatuses": [{"name": "other", "resourceClaimName": "x"}]}
    with pytest.raises(StatusError, match=r"resourceClaimStatuses\[0\]\.name: Invalid value"):
        rules.patch("podgroups", "g", {"status": wrong}, group=GROUP, subresource="status")


def test_a_group_of_a_terminating_workload_is_refused() -> None:
    rules = Rules(gates=GANGS)
    workload = {
        "metadata": {"name": "w", "finalizers": ["example.com/hold"]},
        "spec": {"podGroupTemplates": [{"name": "t", **GANG}]},
    }
    rules.create("workloads", workload, GROUP)
    delete(
        rules.api, rules.api.kinds.resource("workloads", GROUP), ("default", "w"), DeleteOptions()
    )
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    with pytest.raises(StatusError, match='PodGroup rejected: Workload "w" is being deleted'):
        rules.create("podgroups", group(podGroupTemplateRef=reference), GROUP)


def test_the_default_class_gives_a_group_its_priority() -> None:
    rules = Rules(gates=GANGS)
    usual = {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True}
    rules.create("priorityclasses", usual, GROUP)
    spec = rules.create("podgroups", group(), GROUP)["spec"]
    assert (spec["priority"], spec["priorityClassName"]) == (7, "usual")


def test_other_finalizers_stand_beside_the_protection() -> None:
    rules = Rules(gates=GANGS)
    held = group()
    held["metadata"]["finalizers"] = ["example.com/hold"]
    assert rules.create("podgroups", held, GROUP)["metadata"]["finalizers"] == [
        "example.com/hold",
        FINALIZER,
    ]


def test_fields_whose_gate_was_turned_off_stay_where_they_are() -> None:
    rules = Rules(gates=GANGS | {CLAIMS})
    claims = [claim(resourceClaimName="a")]
    before = rules.create(
        "podgroups", group(disruptionMode="PodGroup", resourceClaims=claims), GROUP
    )
    rules.api.features = frozenset({GENERIC_WORKLOAD, GANG_SCHEDULING})
    after = rules.patch("podgroups", "g", {"metadata": {"labels": {"a": "b"}}}, group=GROUP)
    assert after["spec"] == before["spec"]
    again = rules.patch("podgroups", "g", {"spec": {"schedulingConstraints": {}}}, group=GROUP)
    assert again["spec"] == before["spec"]


def test_templates_of_pods_have_no_group_without_the_gate() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {**pod()["spec"], "schedulingGroup": {"podGroupName": "g"}},
    }
    made = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    for gates, expected in ((GANGS, {"podGroupName": "g"}), (frozenset[str](), None)):
        stored = Rules(gates=gates).create("deployments", made, "apps")
        assert stored["spec"]["template"]["spec"].get("schedulingGroup") == expected


def test_the_group_of_a_template_is_validated() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {**pod()["spec"], "schedulingGroup": {"podGroupName": "A_b"}},
    }
    made = {
        "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    (error,) = Rules(gates=GANGS).refused("deployments", made, "apps")
    assert error.startswith('spec.template.spec.schedulingGroup.podGroupName: Invalid value: "A_b"')
