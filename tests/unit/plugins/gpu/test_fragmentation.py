"""The fragmentation measure against the specification's values, and against the rule itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.models.gpu import DEVICES, MILLI
from stellwerk.plugins.gpu.fragmentation import Fragmentation, TypicalPod, TypicalPods
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_simulation.arrivals import typical_pods
from stellwerk_simulation.trace import read_pods
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod_info, trace_file

KINDS = st.builds(
    TypicalPod,
    cpu_millis=st.integers(0, 9) | st.integers(0, 100_000),
    gpu_milli=st.sampled_from([0, 100, 460, 810, 1000]),
    devices=st.sampled_from([1, 1, 2, 4]),
    models=st.sampled_from([(), (), ("T4",), ("T4", "G2"), ("unknown",)]),
    count=st.integers(1, 1000),
)
STATES = st.tuples(
    st.integers(0, 100_000), st.lists(st.sampled_from([0, 100, 190, 500, 1000]), max_size=8)
)


def scalar(kinds: list[TypicalPod], cpu: int, free: list[int], model: str) -> float:
    """What the rule says of one node, kind by kind."""
    idle, total = sum(free), sum(kind.count for kind in kinds)
    fragments = 0.0
    for kind in kinds:
        usable = [milli for milli in free if milli >= kind.gpu_milli]
        useful = (
            kind.gpu_milli > 0
            and (not kind.models or model in kind.models)
            and len(usable) >= kind.devices
            and cpu >= kind.cpu_millis
        )
        fragments += kind.count / total * (idle - sum(usable) if useful else idle)
    return fragments


@given(st.lists(KINDS, min_size=1, max_size=12), st.lists(STATES, min_size=1, max_size=5))
def test_columns_say_what_the_rule_says(
    kinds: list[TypicalPod], states: list[tuple[int, list[int]]]
) -> None:
    padded = np.array([free + [0] * (8 - len(free)) for _, free in states], np.int64)
    cpu = np.array([cpu for cpu, _ in states], np.int64)
    models = ["T4"] * len(states)
    admitted = np.array(
        [
            [not kind.models or model in kind.models for model in models]
            for kind in kinds
            if kind.gpu_milli
        ],
        np.bool_,
    ).reshape(-1, len(states))
    found = TypicalPods(kinds).fragments(cpu, padded, admitted)
    expected = [scalar(kinds, cpu, free, "T4") for cpu, free in states]
    assert found == pytest.approx(expected)


def test_a_state_gives_the_same_to_the_last_bit_whatever_it_is_asked_with() -> None:
    numbers = np.random.default_rng(1)
    kinds = [
        TypicalPod(
            int(numbers.integers(50_000)), int(numbers.choice([0, 100, 810, 1000])), 1, (), n
        )
        for n in range(1, 60)
    ]
    typical = TypicalPods(kinds)
    cpu, free = numbers.integers(50_000, size=50), numbers.integers(1001, size=(50, 8))
    together = typical.fragments(cpu, free, None)
    alone = [typical.fragments(cpu[i : i + 1], free[i : i + 1], None)[0] for i in range(50)]
    assert together.tolist() == alone


@pytest.mark.parametrize(
    ("cpu", "free", "fragments"),
    [
        (96_000, [1000] * 8, 1087.8187),
        (20_000, [400, 1000], 517.538),
        (8000, [1000, 1000], 1210.4043),
        (2000, [190, 600], 790),
    ],
)
def test_published_values_of_the_default_workload(
    cpu: int, free: list[int], fragments: float
) -> None:
    typical = TypicalPods(typical_pods(read_pods(trace_file("openb_pod_list_default.csv.xz"))))
    found = typical.fragments(np.array([cpu]), np.array([free]), None)
    assert found[0] == pytest.approx(fragments, abs=1e-4)


def test_the_column_follows_the_snapshot() -> None:
    cache = gpu_cache([gpu_node("t4", 2, model="T4"), gpu_node("g2", 2, model="G2")])
    typical = TypicalPods([TypicalPod(1000, 1000, 2, ("T4",), 1)])
    followed = Fragmentation(cache.snapshot, typical)
    cache.update_snapshot()
    assert followed.column().tolist() == [0, 2000]
    cache.assume_pod(gpu_pod_info("p", milli=300).with_node("t4"))
    cache.update_snapshot()
    assert followed.column().tolist() == [1700, 2000]
    assert cache.snapshot.book(GpuDevices).free_milli(NodeView(cache.snapshot)).sum() == 3700


def test_resources_have_documented_names() -> None:
    assert (DEVICES, MILLI) == ("gpu.stellwerk.dev/devices", "gpu.stellwerk.dev/milli")
