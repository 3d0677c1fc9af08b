"""GpuShare and the GPU scores on small clusters, and FGD against its rule."""

import asyncio
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.framework.interface import ScorePlugin
from stellwerk.framework.types import Code, CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.fragmentation_gradient_descent import FragmentationGradientDescent
from stellwerk.plugins.gpu.fragmentation import TypicalPod, TypicalPods
from stellwerk.plugins.gpu_best_fit import GpuBestFit
from stellwerk.plugins.gpu_clustering import GpuClustering
from stellwerk.plugins.gpu_dot_product import GpuDotProduct
from stellwerk.plugins.gpu_packing import GpuPacking
from stellwerk.plugins.gpu_share import GpuShare
from stellwerk.snapshot.snapshot import NodeView
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod, gpu_pod_info
from tests.support.memory_client import MemoryClient
from tests.support.plugin_runs import make_plugin, raw_scores, statuses

TYPICAL = [
    {"cpuMillis": 3152, "gpuMilli": 810, "count": 13},
    {"cpuMillis": 11300, "gpuMilli": 1000, "count": 11},
    {"cpuMillis": 8000, "gpuMilli": 1000, "devices": 2, "count": 4},
    {"cpuMillis": 2000, "gpuMilli": 190, "count": 5},
    {"cpuMillis": 8000, "count": 4},
]


def score_of(
    kind: type[ScorePlugin], pod: PodInfo, *held: dict[str, Any], args: Any = None
) -> dict[str, int] | None:
    """The scores of three nodes of 2, 4 and 8 devices, on which pods hold devices."""
    nodes = [gpu_node(f"n{devices}", devices, cpu="64") for devices in (2, 4, 8)]
    pods = [gpu_pod(f"p{index}", **fields) for index, fields in enumerate(held)]
    cache = gpu_cache(nodes, pods)
    plugin = make_plugin(kind, cache.snapshot, args)
    cache.update_snapshot()
    return raw_scores(plugin, pod, NodeView(cache.snapshot))


# --- GpuShare -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "rejected"),
    [
        ({}, {}),
        ({"milli": 400}, {"full": "Unschedulable"}),
        ({"milli": 700}, {"full": "Unschedulable", "shared": "Unschedulable"}),
        ({"devices": 1}, {"full": "Unschedulable", "shared": "Unschedulable"}),
        (
            {"devices": 2},
            {
                "full": "UnschedulableAndUnresolvable",
                "shared": "UnschedulableAndUnresolvable",
            },
        ),
        (
            {"devices": 3},
            dict.fromkeys(("full", "shared", "free"), "UnschedulableAndUnresolvable"),
        ),
    ],
)
def test_the_filter_counts_room_on_single_devices(
    wanted: dict[str, int], rejected: dict[str, str]
) -> None:
    cache = gpu_cache(
        [gpu_node("full", 1), gpu_node("shared", 1), gpu_node("free", 2)],
        [
            gpu_pod("a", devices=1, on="full", ids="0"),
            gpu_pod("b", milli=500, on="shared", ids="0"),
        ],
    )
    plugin = make_plugin(GpuShare, cache.snapshot)
    found = statuses(plugin, gpu_pod_info("p", **wanted), NodeView(cache.snapshot))
    names = {"UNSCHEDULABLE": "Unschedulable"}
    names["UNSCHEDULABLE_AND_UNRESOLVABLE"] = "UnschedulableAndUnresolvable"
    assert {name: names[status.code.name] for name, status in found.items()} == rejected


def test_a_request_that_no_node_can_meet_is_rejected_once_for_all() -> None:
    plugin = make_plugin(GpuShare)
    pod = gpu_pod_info("p", milli=1500)
    result = plugin.pre_filter(CycleState(), pod, NodeView(gpu_cache([]).snapshot))
    assert result.status.message.startswith("pod asks for 1500 gpu.stellwerk.dev/milli")


def test_reserve_chooses_devices_that_later_decisions_count() -> None:
    cache = gpu_cache([gpu_node("n", 2)], [gpu_pod("a", milli=500, on="n", ids="1")])
    plugin = make_plugin(GpuShare, cache.snapshot)
    for name, milli, devices in (("b", 400, (1,)), ("c", 600, (0,))):
        assumed = gpu_pod_info(name, milli=milli).with_node("n")
        cache.assume_pod(assumed)
        assert plugin.reserve(CycleState(), assumed, "n").ok
        assert assumed.gpu_devices == devices
        cache.update_snapshot()
    late = gpu_pod_info("d", devices=1).with_node("n")
    assert not plugin.reserve(CycleState(), late, "n").ok


def test_pre_bind_writes_the_devices_into_the_pod() -> None:
    written: list[tuple[str, Any]] = []

    class Client:
        async def patch(self, path: str, body: Any) -> None:
            written.append((path, body))

    plugin = make_plugin(GpuShare, client=Client())
    pod = gpu_pod_info("p", devices=2).with_node("n")
    assert plugin.pre_bind_pre_flight(CycleState(), pod, "n").skip
    pod.gpu_devices = (1, 3)
    assert plugin.pre_bind_pre_flight(CycleState(), pod, "n").ok
    assert asyncio.run(plugin.pre_bind(CycleState(), pod, "n")).ok
    [(path, body)] = written
    assert path == "/api/v1/namespaces/default/pods/p"
    assert body["metadata"]["annotations"] == {"gpu.stellwerk.dev/device-ids": "1,3"}
    assert body["metadata"]["uid"] == pod.uid


def test_pre_bind_fails_for_a_pod_that_was_made_anew_under_its_name() -> None:
    client = MemoryClient()
    path = "/api/v1/namespaces/default/pods/p"
    stranger = client.put(path, {"metadata": {"name": "p", "uid": "another"}})
    plugin = make_plugin(GpuShare, client=client)
    pod = gpu_pod_info("p", devices=2).with_node("n")
    pod.gpu_devices = (1, 3)
    status = asyncio.run(plugin.pre_bind(CycleState(), pod, "n"))
    assert status.code is Code.ERROR
    assert "metadata.uid" in status.reasons[0]
    assert client.objects[path] == stranger


# --- scores: figures worked out by hand from the definitions ------------------------------------


def test_dot_product_prefers_what_the_pod_does_not_need() -> None:
    # Idle cpu is everywhere 64 of 64 cores, less the pod's node; 100 (1 - (1·1/64 + L/8·1/8) / 2).
    assert score_of(GpuDotProduct, gpu_pod_info("p", devices=1)) == {"n2": 97, "n4": 96, "n8": 92}


def test_best_fit_prefers_the_smallest_rest() -> None:
    found = score_of(GpuBestFit, gpu_pod_info("p", devices=1, cpu="32"))
    assert found == {"n2": 68, "n4": 56, "n8": 31}
    normalized = GpuBestFit.normalize(
        make_plugin(GpuBestFit), CycleState(), gpu_pod_info("p"), np.array([68, 56, 31])
    )
    assert normalized.tolist() == [100, 67, 0]


def test_clustering_prefers_nodes_of_the_pods_own_kind() -> None:
    held = [
        {"milli": 500, "on": "n2", "ids": "0"},
        {"milli": 500, "on": "n4", "ids": "0"},
        {"devices": 1, "on": "n4", "ids": "1"},
    ]
    share, one = gpu_pod_info("p", milli=100), gpu_pod_info("p", devices=1)
    assert score_of(GpuClustering, share, *held) == {"n2": 95, "n4": 67, "n8": 25}
    assert score_of(GpuClustering, one, *held) == {"n2": 20, "n4": 67, "n8": 25}
    assert score_of(GpuClustering, gpu_pod_info("p"), *held) == {"n2": 0, "n4": 0, "n8": 0}


def test_packing_prefers_devices_in_use_then_nodes_in_use() -> None:
    held = [
        {"milli": 500, "on": "n2", "ids": "0"},
        {"devices": 1, "on": "n4", "ids": "0"},
    ]
    share, two = gpu_pod_info("p", milli=300), gpu_pod_info("p", devices=2)
    assert score_of(GpuPacking, share, *held) == {"n2": 95, "n4": 49, "n8": 25}
    assert score_of(GpuPacking, two, *held)["n4"] == 48  # type: ignore[index]


# --- FGD ----------------------------------------------------------------------------------------


def by_the_rule(cpu: int, free: list[int], pod_cpu: int, milli: int) -> tuple[int, int]:
    """(score, device) of a share, one device after the other."""
    kinds = [
        TypicalPod(
            kind["cpuMillis"],
            kind.get("gpuMilli", 0),
            kind.get("devices", 1),
            (),
            kind["count"],
        )
        for kind in TYPICAL
    ]
    typical = TypicalPods(kinds)

    def fragments(idle: int, left: list[int]) -> float:
        return float(typical.fragments(np.array([idle]), np.array([left]), None)[0])

    best = (-1, -1)
    before = fragments(cpu, free)
    for device, room in enumerate(free):
        if room >= milli:
            left = [*free[:device], room - milli, *free[device + 1 :]]
            gain = (before - fragments(cpu - pod_cpu, left)) / 1000
            score = math.floor(100 / (1 + math.exp(-gain)))
            if score > best[0]:
                best = (score, device)
    return best


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([0, 100, 190, 500, 810]), min_size=1, max_size=8),
    st.sampled_from([100, 190, 460, 810]),
    st.integers(1, 20),
)
def test_fgd_tries_every_device(held: list[int], milli: int, pod_cpu: int) -> None:
    pods = [
        gpu_pod(f"h{device}", milli=amount, on="n", ids=str(device), cpu="0")
        for device, amount in enumerate(held)
        if amount
    ]
    cache = gpu_cache([gpu_node("n", len(held), cpu="20"), gpu_node("other", 1)], pods)
    plugin = make_plugin(FragmentationGradientDescent, cache.snapshot, {"typicalPods": TYPICAL})
    cache.update_snapshot()
    pod = gpu_pod_info("p", milli=milli, cpu=str(pod_cpu))
    free = [1000 - amount for amount in held]
    score, device = by_the_rule(20_000, free, 1000 * pod_cpu, milli)
    found = raw_scores(plugin, pod, NodeView(cache.snapshot))
    assert found is not None
    if device >= 0:
        assert found["n"] == score
        assumed = pod.with_node("n")
        assert plugin.reserve(CycleState(), assumed, "n").ok
        assert assumed.gpu_devices == (device,)


def test_fgd_scores_are_steps_of_some_forty_thousandths() -> None:
    pods = (gpu_pod_info("cpu", cpu="1"), gpu_pod_info("two", devices=2, cpu="1"))
    args = {"typicalPods": [{"cpuMillis": 0, "gpuMilli": 1000, "devices": 2}]}
    held = {"devices": 1, "on": "n2", "ids": "0", "cpu": "0"}
    for pod, scores in zip(
        pods,
        # n2 has one device left, a fragment of 1000; on the others no fragment is made.
        ({"n2": 50, "n4": 50, "n8": 50}, {"n2": 0, "n4": 50, "n8": 50}),
        strict=True,
    ):
        assert score_of(FragmentationGradientDescent, pod, held, args=args) == scores


def test_gradient_descent_without_typical_pods_goes_by_those_that_were_seen() -> None:
    cache = gpu_cache([gpu_node("a", 2), gpu_node("b", 2)])
    plugin = make_plugin(FragmentationGradientDescent, cache.snapshot)
    cache.update_snapshot()
    asked = gpu_pod_info("asked", milli=300)
    assert raw_scores(plugin, asked, NodeView(cache.snapshot)) == {"a": 50, "b": 50}
    for number in range(9):
        plugin.pre_enqueue(gpu_pod_info(f"waits-{number}", devices=2))
    # Whatever placed it: two whole devices are left on b alone.
    cache.set_pod(parse_pod(gpu_pod("old", milli=300, on="a", ids="0")))
    cache.update_snapshot()
    given = make_plugin(
        FragmentationGradientDescent,
        cache.snapshot,
        {
            "typicalPods": [
                {"cpuMillis": 1000, "gpuMilli": 1000, "devices": 2, "count": 9},
                {"cpuMillis": 1000, "gpuMilli": 300, "count": 1},
            ]
        },
    )
    expected = raw_scores(given, asked, NodeView(cache.snapshot))
    assert expected is not None
    assert expected["a"] > expected["b"]
    assert raw_scores(plugin, asked, NodeView(cache.snapshot)) == expected
    assert plugin.score_key(CycleState(), asked) != given.score_key(CycleState(), asked)
