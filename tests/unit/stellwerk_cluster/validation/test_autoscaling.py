from typing import Any

import pytest

from stellwerk_cluster.defaults.kind_defaults import default_behavior
from stellwerk_cluster.validation.autoscaling import validate_autoscaler

CPU = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}


def errors(**spec: Any) -> list[str]:
    target = {"kind": "Deployment", "name": "web"}
    autoscaler = {"spec": {"maxReplicas": 3, "scaleTargetRef": target, **spec}}
    return [f"{each.field}: {each.message}" for each in validate_autoscaler(autoscaler)]


def test_an_autoscaler_of_one_metric_and_one_policy_is_good() -> None:
    policy = {"type": "Pods", "value": 4, "periodSeconds": 60}
    found = errors(
        metrics=[{"type": "Resource", "resource": CPU}],
        behavior={"scaleUp": {"policies": [policy], "selectPolicy": "Max"}},
    )
    assert found == []


@pytest.mark.parametrize(
    ("metric", "expected"),
    [
        (
            {"type": "Resource"},
            ["resource: Required value: must populate information for the given metric source"],
        ),
        (
            {"type": "x"},
            [
                (
                    'type: Unsupported value: "x": supported values: "ContainerResource", '
                    '"External", "Object", "Pods", "Resource"'
                )
            ],
        ),
        (
            {"type": "Resource", "resource": CPU, "pods": {}},
            [
                "pods.metric.name: Required value: must specify a metric name",
                "pods.target.type: Required value: must specify a metric target type",
                (
                    'pods.target.type: Invalid value: "": must be either Utilization, Value, or '
                    "AverageValue"
                ),
                (
                    "pods.target.averageValue: Required value: must specify a positive target "
                    "averageValue"
                ),
                "pods: Forbidden: must populate the given metric source only",
            ],
        ),
        (
            {"type": "Resource", "resource": {"name": "", "target": {"type": "Value"}}},
            [
                "resource.name: Required value: must specify a resource name",
                (
                    "resource.target.averageUtilization: Required value: must set either a target "
                    "raw value or a target utilization"
                ),
            ],
        ),
        (
            {
                "type": "External",
                "external": {
                    "metric": {"name": "a/b"},
                    "target": {"type": "Value", "value": "-1", "averageValue": "1"},
                },
            },
            [
                "external.metric.name: Invalid value: \"a/b\": may not contain '/'",
                'external.target.value: Invalid value: "-1": must be positive',
                (
                    "external.target.value: Forbidden: may not set both a target value for metric "
                    "and a per-pod target"
                ),
            ],
        ),
        (
            {
                "type": "ContainerResource",
                "containerResource": {
                    "name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 0},
                },
            },
            [
                "containerResource.container: Required value: must specify a container",
                (
                    "containerResource.target.averageUtilization: Invalid value: 0: must be "
                    "greater than 0"
                ),
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_metric_is_said(metric: Any, expected: list[str]) -> None:
    if "pods" in metric and not metric["pods"]:
        metric = {**metric, "pods": {"metric": {}, "target": {}}}
    assert errors(metrics=[metric]) == [f"spec.metrics[0].{each}" for each in expected]


def test_what_is_wrong_with_a_behaviour_is_said() -> None:
    policy = {"type": "x", "value": 0, "periodSeconds": 1801}
    rules = {"stabilizationWindowSeconds": 3601, "selectPolicy": "x", "policies": [policy]}
    found = errors(behavior={"scaleDown": rules, "scaleUp": {}})
    field = "spec.behavior.scaleDown"
    assert found == [
        "spec.behavior.scaleUp.policies: Required value: must specify at least one Policy",
        (
            f"{field}.stabilizationWindowSeconds: Invalid value: 3601: must be less than or equal "
            "to 3600"
        ),
        f'{field}.selectPolicy: Unsupported value: "x": supported values: "Disabled", "Max", "Min"',
        f'{field}.policies[0].type: Unsupported value: "x": supported values: "Percent", "Pods"',
        f"{field}.policies[0].value: Invalid value: 0: must be greater than zero",
        (
            f"{field}.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal "
            "to 1800"
        ),
    ]


def test_a_behaviour_is_completed() -> None:
    autoscaler: Any = {"spec": {"behavior": {"scaleDown": {"selectPolicy": "Min"}}}}
    default_behavior(autoscaler)
    behavior = autoscaler["spec"]["behavior"]
    assert behavior["scaleDown"]["selectPolicy"] == "Min"
    assert [each["type"] for each in behavior["scaleUp"]["policies"]] == ["Pods", "Percent"]
