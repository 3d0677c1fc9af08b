"""The shape by which GPU plugins compare pods."""

from typing import Any

import pytest

from stellwerk.models.gpu import MODEL_LABEL
from stellwerk.models.gpu_shape import GpuShape, gpu_shape
from stellwerk.models.pod import parse_pod
from tests.support.gpu_cluster import gpu_pod


def term(*models: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": MODEL_LABEL, "operator": "In", "values": list(models)}]}


def required(*terms: dict[str, Any]) -> dict[str, Any]:
    chosen = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": chosen}}


@pytest.mark.parametrize(
    ("spec", "models"),
    [
        pytest.param({}, (), id="none"),
        pytest.param({"nodeSelector": {MODEL_LABEL: "T4"}}, ("T4",), id="selector"),
        pytest.param(required(term("V100", "T4")), ("T4", "V100"), id="affinity"),
        pytest.param(
            {"nodeSelector": {MODEL_LABEL: "T4"}, **required(term("V100", "T4"))},
            ("T4",),
            id="what both admit",
        ),
        pytest.param(
            required(term("T4"), {"matchExpressions": [{"key": "zone", "operator": "Exists"}]}),
            (),
            id="a term that admits all",
        ),
    ],
)
def test_the_models_that_a_pod_admits(spec: dict[str, Any], models: tuple[str, ...]) -> None:
    pod = gpu_pod("p", milli=700)
    pod["spec"].update(spec)
    assert gpu_shape(parse_pod(pod)) == GpuShape(1000, 700, 1, models)


def test_a_pod_without_gpus_has_no_models() -> None:
    pod = gpu_pod("p", cpu="2")
    pod["spec"]["nodeSelector"] = {MODEL_LABEL: "T4"}
    assert gpu_shape(parse_pod(pod)) == GpuShape(2000, 0, 0, ())
