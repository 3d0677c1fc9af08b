"""What a pod's complexity counts."""

import pytest

from stellwerk.models.complexity import pod_complexity, too_complex
from stellwerk_kube.json_values import JsonObject

ON_SSD = {"key": "disk", "operator": "In", "values": ["ssd", "nvme"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
POD_TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}


@pytest.mark.parametrize(
    ("spec", "complexity"),
    [
        pytest.param({}, 0, id="nothing"),
        pytest.param({"tolerations": [{}, {}], "nodeSelector": {"a": "b"}}, 3, id="lists and maps"),
        pytest.param(
            {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [
                {"matchExpressions": [ON_SSD], "matchFields": [ON_SSD]}]}}}},
            1 + 2 * (1 + 2),
            id="a term, its expressions and their values",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {PREFERRED: [
                {"weight": 1, "preference": {"matchExpressions": [ON_SSD]}}]}}},
            1 + 1 + 2,
            id="a preferred term",
        ),
        pytest.param(
            {"affinity": {"podAffinity": {REQUIRED: [POD_TERM]}, "podAntiAffinity": {
                PREFERRED: [{"weight": 1, "podAffinityTerm": POD_TERM}]}}},
            2 * (10 + 2 + 1),
            id="pod affinity terms count ten, and their selectors",
        ),
        pytest.param(
            {"topologySpreadConstraints": [{**POD_TERM, "matchLabelKeys": ["a", "b"]}]},
            10 + 2 + 1 + 2,
            id="so do spread constraints",
        ),
        pytest.param(
            {"containers": [
                {"ports": [{}, {}], "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}
            ]},
            1 + 2 + 2,
            id="a container with its ports and resources",
        ),
    ],
)  # fmt: skip
def test_complexity(spec: JsonObject, complexity: int) -> None:
    assert pod_complexity(spec) == complexity
    assert not too_complex(spec, complexity)
    assert f"({complexity}, the limit is {complexity - 1})" in too_complex(spec, complexity - 1)
