"""The resources of each container, and the QoS class that follows from them."""

from typing import Any

import pytest

from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_resources import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    exact_amount,
    millis,
    read_resources,
    resources_json,
    units,
)

ONE = {"cpu": "1", "memory": "1Gi"}


def whole(amounts: dict[str, str] | None = None) -> dict[str, Any]:
    given = ONE if amounts is None else amounts
    return {"resources": {"requests": given, "limits": given}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"containers": [{}]}, BEST_EFFORT, id="nothing said"),
        pytest.param({"containers": [whole()]}, GUARANTEED, id="limits are requests"),
        pytest.param({"containers": [whole({"cpu": "1"})]}, BURSTABLE, id="no memory"),
        pytest.param({"containers": [whole(), {}]}, BURSTABLE, id="one of two"),
        pytest.param(
            {"containers": [whole()], "initContainers": [{}]}, BURSTABLE, id="an init container"
        ),
        pytest.param(
            {"containers": [whole({"example.com/gpu": "1"})]}, BEST_EFFORT, id="a device alone"
        ),
        pytest.param({"containers": [{}], **whole()}, GUARANTEED, id="the pod as a whole"),
        pytest.param({"containers": [whole({"cpu": "0", "memory": "0"})]}, BEST_EFFORT, id="zeros"),
    ],
)
def test_the_qos_class_is_that_of_the_api(spec: dict[str, Any], expected: str) -> None:
    assert read_resources(resources_json(spec)).qos_class == expected


def test_the_class_that_the_status_reports_goes_first() -> None:
    pod = {"metadata": {"name": "web"}, "spec": {"containers": [whole()]}}
    assert parse_pod(pod).qos_class == GUARANTEED
    assert parse_pod({**pod, "status": {"qosClass": BURSTABLE}}).qos_class == BURSTABLE


def test_amounts_are_exact_until_they_are_rounded_up() -> None:
    third = exact_amount("333333333n")
    assert 3 * third == 999_999_999
    assert (millis(3 * third), units(3 * third)) == (1000, 1)
    assert exact_amount("0.0000000001") == 1


def test_sidecars_are_told_from_other_init_containers() -> None:
    spec = {"initContainers": [{"restartPolicy": "Always"}, {}], "containers": [{}]}
    resources = read_resources(resources_json(spec))
    assert [container.sidecar for container in resources.init_containers] == [True, False]
