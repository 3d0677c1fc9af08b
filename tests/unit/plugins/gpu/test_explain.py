"""What an explanation says of GPUs that pods share, and what a plan-less decision does."""

from typing import Any

import numpy as np
import pytest

from stellwerk.answers.answer import codec
from stellwerk.answers.gpus import GpusOfPod
from stellwerk.explain.report import explain_on
from stellwerk.models.gpu import DEVICES, MILLI
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.gpu.explain import smaller_gpu_request
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case, decide
from tests.support.answers import written
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod

NODES = [gpu_node("full", 1), gpu_node("half", 2), gpu_node("none", 0), gpu_node("slivers", 4)]
PODS = [
    gpu_pod("p0", devices=1, on="full", ids="0"),
    gpu_pod("p1", devices=1, on="half", ids="0"),
    gpu_pod("p2", milli=600, on="half", ids="1"),
    *(gpu_pod(f"s{device}", milli=800, on="slivers", ids=str(device)) for device in range(4)),
]


def profile(*names: str) -> JsonObject:
    return {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": [{"name": name} for name in names]}},
    }


def case(pod: JsonObject, *plugins: str) -> JsonObject:
    return {
        "id": "gpu",
        "profile": profile(*(plugins or ("GpuShare",))),
        "nodes": NODES,
        "pods": PODS,
        "pod": pod,
    }


def explained(pod: JsonObject) -> dict[str, Any]:
    loaded = Case(case(pod))
    return written(explain_on(loaded.world, loaded.pod, loaded.profile))


def test_a_share_that_fits_nowhere_sees_the_room_on_each_device() -> None:
    gpus = explained(gpu_pod("new", milli=700))["gpus"]
    assert gpus["nearest"] == [
        {"node": "half", "freeMilli": [0, 400], "rejectedByOthers": False},
        {"node": "slivers", "freeMilli": [200] * 4, "rejectedByOthers": False},
        {"node": "full", "freeMilli": [0], "rejectedByOthers": False},
    ]
    asked, nearest, *_ = codec(GpusOfPod).read(gpus).lines()
    assert asked == (
        "It requests 700 thousandths of one GPU. 3 nodes with GPUs: 1200 thousandths are idle "
        "in all, at most 400 of them on one device; 0 devices are wholly idle."
    )
    assert nearest == "  half: 0, 400 free of its devices"


def test_a_smaller_share_that_would_fit_is_suggested() -> None:
    texts = [each["text"] for each in explained(gpu_pod("new", milli=700))["wouldFit"]]
    milli = "gpu.stellwerk.dev/milli"
    assert f"request 400 instead of 700 {milli}" in texts


def test_nodes_that_others_turn_away_come_last() -> None:
    pod = gpu_pod("new", milli=700)
    pod["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "slivers"}
    nearest = explained(pod)["gpus"]["nearest"]
    assert [each["node"] for each in nearest if not each["rejectedByOthers"]] == ["slivers"]
    assert nearest[0]["node"] == "slivers"


@pytest.mark.parametrize(
    "pod",
    [gpu_pod("new", milli=200), gpu_pod("cpu"), gpu_pod("both", milli=500, devices=1)],
    ids=["fits somewhere", "asks for none", "asks for what no node can give"],
)
def test_nothing_is_said_without_need(pod: JsonObject) -> None:
    assert "gpus" not in explained(pod)


def test_decisions_are_made_without_a_plan_and_without_typical_pods() -> None:
    plugins = ("GpuShare", "FragmentationGradientDescent", "GpuPatternPlan")
    (selected,) = decide(case(gpu_pod("new", milli=400), *plugins))["selected"]
    assert selected == "half"
    explanation = explained(gpu_pod("new", milli=400))
    assert explanation["wouldGetNode"] == "half"


TWO_NODES = [gpu_node("a", 4), gpu_node("b", 2)]
PODS_ON_TWO = [
    gpu_pod("p0", devices=2, on="a", ids="0,1"),
    *(gpu_pod(f"s{number}", milli=600, on="b", ids=str(number)) for number in range(2)),
]


@pytest.mark.parametrize(
    ("pod", "rows", "words"),
    [
        pytest.param(
            gpu_pod("n", milli=700),
            [1],
            [f"request 400 instead of 700 {MILLI}"],
            id="share",
        ),
        pytest.param(
            gpu_pod("n", devices=3),
            [0, 1],
            [f"request 2 instead of 3 {DEVICES}"],
            id="whole",
        ),
        pytest.param(
            gpu_pod("n", milli=3000),
            [0, 1],
            [f"request 2000 instead of 3000 {MILLI}"],
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
    nodes = NodeView(gpu_cache(TWO_NODES, PODS_ON_TWO).snapshot, np.array(rows, np.intp))
    found = smaller_gpu_request(parse_pod(pod), nodes)
    assert [change.describe() for change in found] == words
