"""What explanations cost at 5,000 nodes and 50,000 pods; `pytest -m benchmark -s`.

CPU time: of keeping a record, as a median over decisions; of an explanation with all that would
help, and of its longest step, after which the next decision has its turn.
"""

import gc
import statistics
import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from stellwerk.explain.decide import Case
from stellwerk.explain.records import DecisionRecords
from stellwerk.explain.report import explain_on
from stellwerk.world.decide import decide
from stellwerk.world.offline import offline_profile
from tests.support.builders import make_node, make_pod, pod_info

pytestmark = pytest.mark.benchmark

NODES, PODS = 5_000, 50_000
EXPLANATION_SECONDS, STEP_SECONDS, RECORD_SECONDS = 0.3, 0.01, 15e-6
TERM = {
    "topologyKey": "topology.kubernetes.io/zone",
    "labelSelector": {"matchLabels": {"app": "app-7"}},
}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def loaded() -> Iterator[Case]:
    """A large cluster; the collector is out of the way, as the operator keeps it."""
    case = large_cluster()
    gc.collect()
    gc.freeze()
    gc.disable()
    yield case
    gc.enable()
    gc.unfreeze()


def large_cluster() -> Case:
    sizes = Random(1)
    nodes = [
        make_node(f"n{number}", cpu=f"{sizes.choice([4, 5, 6])}", zone=f"z{number % 3}")
        for number in range(NODES)
    ]
    pods = [
        make_pod(
            f"p{number}",
            cpu=f"{350 + number % 37}m",
            node_name=f"n{number % NODES}",
            labels={"app": f"app-{number % 300}"},
        )
        for number in range(PODS)
    ]
    return Case({"id": "large", "nodes": nodes, "pods": pods, "pod": make_pod("w", cpu="100m")})


def test_a_record(loaded: Case) -> None:
    records, seconds = DecisionRecords(time.monotonic), []
    for _ in range(500):
        decision = decide(loaded.world, loaded.pod, loaded.profile)
        began = time.perf_counter()
        records.keep(decision, 1, time.monotonic())
        seconds.append(time.perf_counter() - began)
    record = records.of(loaded.pod.uid)
    assert record is not None
    print(f"\na record: {statistics.median(seconds) * 1e6:.1f} µs, {record.size_bytes} bytes")
    assert statistics.median(seconds) < RECORD_SECONDS


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"cpu": "9"}, id="too large for every node"),
        pytest.param({"cpu": "4"}, id="not enough room"),
        pytest.param({"cpu": "4", "nodeSelector": {"disk": "ssd"}}, id="two changes are needed"),
        pytest.param(
            {"cpu": "1", "affinity": {"podAntiAffinity": {REQUIRED: [TERM]}}}, id="anti-affinity"
        ),
    ],
)
def test_an_explanation(loaded: Case, fields: dict[str, Any]) -> None:
    world = loaded.world
    pod = pod_info("new", labels={"app": "app-7"}, **fields)
    began = last = time.process_time()
    fork = world.fork(Random(0))
    profile = offline_profile(
        loaded.profile.loaded,
        fork.cache,
        fork.objects,
        fork.nominator,
        fork.random,
        fork.clock,
    )
    steps = [time.process_time() - last]
    explaining = explain_on(fork, pod, profile)
    while True:
        last = time.process_time()
        try:
            next(explaining)
        except StopIteration as ended:
            result = ended.value
            break
        steps.append(time.process_time() - last)
    seconds = time.process_time() - began
    longest = max(steps)
    print(f"\n{seconds * 1e3:.0f} ms, longest step {longest * 1e3:.1f} ms of {len(steps)}")
    assert result["wouldFit"]
    assert seconds < EXPLANATION_SECONDS
    assert longest < STEP_SECONDS
