"""Smaller requests for GPUs are suggested as the largest that a node has room for."""

import pytest

from stellwerk.explain.gpu_changes import smaller_gpu_request
from stellwerk.models.gpu import DEVICES, MILLI
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import parse_pod
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod

NODES = [gpu_node("a", 4), gpu_node("b", 2)]
PODS = [
    gpu_pod("p0", devices=2, on="a", ids="0,1"),
    *(gpu_pod(f"s{number}", milli=600, on="b", ids=str(number)) for number in range(2)),
]


@pytest.mark.parametrize(
    ("pod", "rows", "words"),
    [
        pytest.param(
            gpu_pod("n", milli=700),
            [1],
            [f"request 400 {MILLI} instead of 700 {MILLI}"],
            id="share",
        ),
        pytest.param(
            gpu_pod("n", devices=3),
            [0, 1],
            [f"request 2 {DEVICES} instead of 3 {DEVICES}"],
            id="whole",
        ),
        pytest.param(
            gpu_pod("n", milli=3000),
            [0, 1],
            [f"request 2000 {MILLI} instead of 3000 {MILLI}"],
            id="whole ones in thousandths",
        ),
        pytest.param(gpu_pod("n", devices=1), [1], [], id="no whole device is idle"),
        pytest.param(gpu_pod("n", milli=300), [0, 1], [], id="the share has room"),
        pytest.param(gpu_pod("n"), [0, 1], [], id="no GPU"),
        pytest.param(gpu_pod("n", milli=300), [], [], id="no node"),
    ],
)
def test_the_most_that_a_node_could_give(
    pod: JsonObject, rows: list[int], words: list[str]
) -> None:
    snapshot = gpu_cache(NODES, PODS).snapshot
    found = list(smaller_gpu_request(snapshot, parse_pod(pod), rows))
    assert [change.words for change in found] == words
