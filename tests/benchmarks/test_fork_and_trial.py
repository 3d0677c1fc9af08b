"""What a fork and a trial of 5,000 nodes and 50,000 pods cost; `pytest -m benchmark -s`.

Medians of CPU time; memory is what a fork holds of its own, before either side changes anything.
"""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from stellwerk.backend.cache import Cache
from stellwerk.world.decide import decide
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_large_cache, make_node, make_pod, pod_info
from tests.support.decisions import Decider

pytestmark = pytest.mark.benchmark

NODES, PODS = 5_000, 50_000
BUDGET_SECONDS, BUDGET_BYTES = 0.015, 40 << 20


@pytest.fixture(scope="module")
def cache() -> Cache:
    return make_large_cache(NODES, PODS)


def median_seconds(act: Callable[[], object], times: int) -> float:
    """CPU time of one act, with what it makes thrown away in between."""
    seconds = []
    for _ in range(times):
        gc.collect()
        started = time.process_time()
        made = act()
        seconds.append(time.process_time() - started)
        del made
    return statistics.median(seconds)


def test_fork(cache: Cache) -> None:
    seconds = median_seconds(cache.fork, 15)
    tracemalloc.start()
    fork = cache.fork()
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nfork: {seconds * 1e3:.1f} ms, {held_bytes / 2**20:.1f} MiB")
    pod = pod_info("new", cpu="1", labels={"app": "app-1"})
    started = time.process_time()
    answers = Decider(fork).answers(pod)
    first = time.process_time() - started
    print(f"first decision on a fork, plugins made anew: {first * 1e3:.1f} ms")
    assert answers == Decider(cache).answers(pod)
    assert seconds < BUDGET_SECONDS
    assert held_bytes < BUDGET_BYTES


def test_fork_of_a_world(cache: Cache) -> None:
    case = Case({"id": "case", "pod": make_pod("new", cpu="1")})
    case.world.profiles.serve([case.profile], {})
    world = replace(case.world, cache=cache)
    seconds = median_seconds(lambda: world.fork(Random(0)), 15)
    tracemalloc.start()
    fork = world.fork(Random(0))
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"\nfork of a World: {seconds * 1e3:.1f} ms, {held_bytes / 2**20:.1f} MiB")
    profile = fork.profiles.of(case.pod)
    assert profile is not None
    assert decide(fork, case.pod, profile).node_name
    assert seconds < BUDGET_SECONDS
    assert held_bytes < BUDGET_BYTES


@pytest.mark.parametrize("pods", [1, 100, 1000])
def test_trial(cache: Cache, pods: int) -> None:
    gang = [pod_info(f"new{index}", cpu="1", labels={"app": "new"}) for index in range(pods)]

    def placed_and_undone() -> None:
        with cache.trial() as trial:
            for index, pod in enumerate(gang):
                trial.add_pod(pod, f"n{index}")

    seconds = median_seconds(placed_and_undone, 15)
    print(f"\n{pods} pods placed and undone: {seconds / pods * 1e6:.1f} µs a pod")
    assert "n1" in cache.snapshot.row_of


def test_trial_of_nodes(cache: Cache) -> None:
    node = parse_node(make_node("another"))

    def changed_and_undone() -> None:
        with cache.trial() as trial:
            trial.remove_node("n7")
            trial.set_node(node)
            trial.cordon("n8")

    seconds = median_seconds(changed_and_undone, 15)
    print(f"\na node removed, one added, one cordoned: {seconds * 1e6:.0f} µs with undoing")
    assert cache.snapshot.node_count == NODES
