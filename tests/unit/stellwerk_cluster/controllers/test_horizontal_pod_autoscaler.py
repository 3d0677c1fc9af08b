"""Workloads are scaled by what their pods use, within the limits of their autoscaler."""

from typing import Any

import pytest

from tests.support.cluster_driver import Driver


def deployment(usage: str, requests: dict[str, str] | None = None) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "i:1",
        "resources": {"requests": {"cpu": "100m"} if requests is None else requests},
    }
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {
                    "labels": {"app": "web"},
                    "annotations": {"stellwerk.dev/usage": usage},
                },
                "spec": {"nodeName": "node-1", "containers": [container]},
            },
        },
    }


def autoscaler(target: dict[str, Any], name: str = "web", **spec: Any) -> dict[str, Any]:
    metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    return {
        "metadata": {"name": "web"},
        "spec": {"scaleTargetRef": reference, "maxReplicas": 4, "metrics": [metric], **spec},
    }


def share(percent: int) -> dict[str, Any]:
    return {"type": "Utilization", "averageUtilization": percent}


def scaled(driver: Driver) -> tuple[int, dict[str, Any]]:
    workload = driver.get("deployments.apps", "web")
    return workload["spec"]["replicas"], driver.get("horizontalpodautoscalers.autoscaling", "web")[
        "status"
    ]


@pytest.mark.parametrize(
    ("usage", "target", "replicas"),
    [
        pytest.param("cpu=180m", share(60), 3, id="more"),
        pytest.param("cpu=900m", share(60), 4, id="no more than it may"),
        pytest.param("cpu=63m", share(60), 1, id="a tenth off is near enough"),
        pytest.param("cpu=0", share(60), 1, id="no less than one"),
        pytest.param(
            "cpu=90m", {"type": "AverageValue", "averageValue": "50m"}, 2, id="by an amount"
        ),
    ],
)
def test_it_is_scaled_to_the_target(usage: str, target: dict[str, Any], replicas: int) -> None:
    driver = Driver()
    driver.create("deployments", deployment(usage), "apps")
    driver.run(5)
    driver.create("horizontalpodautoscalers", autoscaler(target), "autoscaling")
    driver.run(5)
    found, status = scaled(driver)
    assert found == replicas
    assert status["desiredReplicas"] == replicas
    assert status["currentMetrics"][0]["resource"]["current"]["averageValue"]


def test_it_scales_down_after_five_quiet_minutes() -> None:
    driver = Driver()
    driver.create("deployments", deployment("cpu=0"), "apps")
    driver.run(5)
    driver.patch("deployments", "web", {"spec": {"replicas": 4}}, "apps")
    driver.create("horizontalpodautoscalers", autoscaler(share(60)), "autoscaling")
    driver.run(30)
    assert scaled(driver)[0] == 4
    driver.run(240)
    assert scaled(driver)[0] == 4
    driver.run(60)
    assert scaled(driver)[0] == 1


@pytest.mark.parametrize(
    ("obj", "reason"),
    [
        pytest.param(autoscaler(share(60), name="none"), "FailedGetScale", id="no such workload"),
        pytest.param(autoscaler(share(60)), "FailedGetResourceMetric", id="no request"),
    ],
)
def test_what_cannot_be_measured_is_said(obj: dict[str, Any], reason: str) -> None:
    driver = Driver()
    driver.create("deployments", deployment("cpu=900m", {}), "apps")
    driver.create("horizontalpodautoscalers", obj, "autoscaling")
    driver.run(5)
    replicas, status = scaled(driver)
    assert replicas == 1
    assert reason in {each["reason"] for each in status["conditions"]}


def test_a_workload_that_is_not_there_is_named() -> None:
    driver = Driver()
    driver.create("horizontalpodautoscalers", autoscaler(share(60), name="none"), "autoscaling")
    status = driver.get("horizontalpodautoscalers.autoscaling", "web")["status"]
    (condition,) = status["conditions"]
    start = "the HPA controller was unable to get the target's current scale"
    assert condition["message"] == f'{start}: deployments.apps "none" not found'
