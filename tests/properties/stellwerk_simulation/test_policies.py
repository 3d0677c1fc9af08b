"""A simulation places every pod where the published rules place it, tried one node at a time."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_simulation.arrivals import Arrivals, inflated, typical_pods
from stellwerk_simulation.ready_profiles import READY, profile_of
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.trace import TraceNode, TracePod, read_nodes, read_pods
from tests.properties.stellwerk_simulation.gpu_reference import Reference
from tests.support.repository import ROOT

DATA: Path = ROOT / "tests" / "data" / "simulation"
DETERMINISTIC = [name for name in READY if name not in {"default", "random", "pattern-plan"}]

NODE = st.builds(
    TraceNode,
    name=st.just(""),
    cpu_millis=st.sampled_from([4000, 8000, 32_000, 96_000]),
    memory_mib=st.sampled_from([16_000, 64_000]),
    devices=st.sampled_from([0, 1, 2, 4, 8]),
    model=st.sampled_from(["T4", "G2", ""]),
)
POD = st.builds(
    TracePod,
    name=st.just(""),
    cpu_millis=st.sampled_from([0, 500, 1000, 3152, 4000, 12_000]),
    memory_mib=st.sampled_from([0, 1024, 8000]),
    devices=st.just(1),
    gpu_milli=st.sampled_from([100, 190, 460, 500, 810, 1000]),
    models=st.sampled_from([(), (), ("T4",), ("G2", "T4")]),
)
WHOLE_OR_NONE = st.builds(
    TracePod,
    name=st.just(""),
    cpu_millis=st.sampled_from([1000, 8000]),
    memory_mib=st.just(1024),
    devices=st.sampled_from([2, 4, 8]),
    gpu_milli=st.just(1000),
    models=st.just(()),
) | st.builds(
    TracePod,
    name=st.just(""),
    cpu_millis=st.sampled_from([1000, 4000]),
    memory_mib=st.just(2048),
    devices=st.just(0),
    gpu_milli=st.just(0),
    models=st.just(()),
)


def placements(arrivals: Arrivals, policy: str, listed: list[TracePod]) -> list[str]:
    """Where each pod went, and where the reference has it."""
    typical = typical_pods(listed)
    simulation = Simulation(arrivals, profile_of(policy, typical), typical, 1)
    reference = Reference(arrivals.nodes, typical, policy)
    return [
        f"{pod.name}: {found or 'dropped'}, not {expected or 'dropped'}"
        for pod in arrivals.pods
        if (found := simulation.arrive(pod)) != (expected := reference.place(pod))
    ]


@pytest.mark.parametrize("policy", DETERMINISTIC)
@settings(max_examples=12, deadline=None)
@given(
    st.lists(NODE, min_size=1, max_size=6), st.lists(POD | WHOLE_OR_NONE, min_size=1, max_size=30)
)
def test_small_clusters(policy: str, nodes: list[TraceNode], pods: list[TracePod]) -> None:
    nodes = [replace(node, name=f"n{number}") for number, node in enumerate(nodes)]
    pods = [replace(pod, name=f"p{number}") for number, pod in enumerate(pods)]
    assert placements(Arrivals(pods, nodes), policy, pods) == []


@pytest.mark.parametrize("policy", DETERMINISTIC)
def test_the_trace_of_the_project(policy: str) -> None:
    nodes, listed = read_nodes(DATA / "nodes.csv"), read_pods(DATA / "pods.csv")
    assert placements(inflated(nodes, listed, 1.3, 42), policy, listed) == []
