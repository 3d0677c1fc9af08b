"""The words of the tables, on types that use them."""

from typing import Any

import pytest

from stellwerk_cluster.validation.declarative import change_errors, declared_errors, has_rules

GROUP: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": 2}}}
CLAIM = {"name": "c", "resourceClaimName": "r"}


def errors(type_name: str, obj: dict[str, Any], at: str = "spec") -> list[str]:
    return [f"{each.field}: {each.message}" for each in declared_errors(type_name, obj, at)]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, [], id="nothing wrong"),
        pytest.param(
            {"schedulingPolicy": {}},
            [
                'spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`',
            ],
            id="a union without a member",
        ),
        pytest.param(
            {"schedulingPolicy": {"basic": {}, "gang": {"minCount": 0}}},
            [
                (
                    'spec.schedulingPolicy: Invalid value: "{basic, gang}": '
                    "must specify exactly one of: `basic`, `gang`"
                ),
                "spec.schedulingPolicy.gang.minCount: Required value",
            ],
            id="a union with two members, a number that must be there",
        ),
        pytest.param(
            {"schedulingPolicy": {"gang": {"minCount": -1}}, "priority": 1_000_000_001},
            [
                (
                    "spec.schedulingPolicy.gang.minCount: Invalid value: -1: "
                    "must be greater than or equal to 1"
                ),
                (
                    "spec.priority: Invalid value: 1000000001: "
                    "must be less than or equal to 1000000000"
                ),
            ],
            id="bounds",
        ),
        pytest.param(
            {"schedulingConstraints": {"topology": [{"key": "a"}, {"key": ""}]}},
            [
                "spec.schedulingConstraints.topology: Too many: 2: must have at most 1 item",
            ],
            id="of a list that is too long no item is looked at",
        ),
        pytest.param(
            {"resourceClaims": [CLAIM, CLAIM]},
            [
                'spec.resourceClaims[1]: Duplicate value: {"name":"c","resourceClaimName":"r"}',
            ],
            id="items of one name",
        ),
        pytest.param(
            {"disruptionMode": "Job"},
            [
                (
                    'spec.disruptionMode: Unsupported value: "Job": '
                    'supported values: "Pod", "PodGroup"'
                ),
            ],
            id="an enumeration",
        ),
    ],
)
def test_a_group_is_refused_by_the_words_of_its_fields(
    spec: dict[str, Any], expected: list[str]
) -> None:
    assert errors("PodGroupSpec", {**GROUP, **spec}) == expected


def test_the_order_of_the_lines_is_the_order_of_the_errors() -> None:
    spec = {"minReadySeconds": -1, "replicas": -1, "progressDeadlineSeconds": 5, "template": {}}
    fields = [each.partition(":")[0] for each in errors("DeploymentSpec", spec)]
    seen = list(dict.fromkeys(field.split(".")[1] for field in fields))
    assert seen == ["replicas", "selector", "template", "minReadySeconds"]


def test_a_function_is_told_the_word_behind_the_colon() -> None:
    (error, *_) = errors("DaemonSetSpec", {"selector": {}, "template": {}})
    assert error.endswith("empty selector is invalid for daemonset")


def test_what_is_immutable_may_not_change() -> None:
    old = {"provisioner": "a.example", "reclaimPolicy": "Delete"}
    new = {"provisioner": "b.example", "reclaimPolicy": "Delete"}
    (error,) = change_errors("StorageClass", new, old)
    assert (error.field, error.message.partition(": ")[0]) == ("provisioner", "Invalid value")
    assert list(change_errors("StorageClass", old, old)) == []


def test_a_type_has_rules_if_one_that_it_leads_to_has() -> None:
    assert has_rules("Workload")
    assert not has_rules("PodSpec")
