"""What measuring costs: the same attempts with and without a metrics_recorder, in turns.

Run as `python -m tests.benchmarks.bench_instruments`. CPU time of one core per attempt, from
PreFilter to PostBind without the API; one attempt in ten is sampled, as in the operator.
"""

import gc
import random
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.metrics import Metrics
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk.scheduler.observers.instruments import ProfileMetricsRecorder
from stellwerk.scheduler.schedule_one import ATTEMPTS_PER_SAMPLE
from tests.benchmarks.bench_decide import fill
from tests.benchmarks.workloads import make_pod

NODES = 1000
PODS = 200
ROUNDS = 20


def make_framework(cache: Cache, *, measured: bool) -> Framework:
    """The default profile, with a metrics_recorder or without."""
    services = offline_services(cache.snapshot, IndexedObjectStore(), Nominator(), random.Random(0))
    if measured:
        metrics = Metrics()
        services = replace(
            services,
            metrics_recorder=lambda name, plugins: ProfileMetricsRecorder(
                metrics, name, plugins, time.monotonic
            ),
        )
    return Assembly(
        load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins()), services
    ).framework


def finish(step: Coroutine[Any, Any, object]) -> None:
    """Run a coroutine that waits for nothing."""
    try:
        step.send(None)
    except StopIteration:
        return
    raise AssertionError("it waits")


def attempt(framework: Framework, pod: PodInfo, state: CycleState) -> None:
    """Every extension point but Bind, which would need an API."""
    found = framework.filtering.find_feasible(pod, state)
    view = found.view()
    framework.scoring.prioritize(state, pod, view)
    binding, node_name = framework.binding, "node-00000"
    binding.reserve(state, pod, node_name)
    finish(binding.permit(state, pod, node_name))
    binding.pre_bind_pre_flight(state, pod, node_name)
    finish(binding.pre_bind(state, pod, node_name))
    finish(binding.post_bind(state, pod, node_name))
    framework.metrics_recorder.attempt(state)


def main() -> None:
    """Print the cost of an attempt both ways, and the difference."""
    cache = Cache()
    fill(cache, NODES, NODES)
    pods = [parse_pod(make_pod("basic", NODES + index)) for index in range(PODS)]
    frameworks = {measured: make_framework(cache, measured=measured) for measured in (False, True)}
    spent_seconds = dict.fromkeys(frameworks, 0.0)
    gc.disable()
    for turn in range(ROUNDS + 1):
        for measured, framework in frameworks.items():
            started = time.process_time()
            for index, pod in enumerate(pods):
                sampled = measured and index % ATTEMPTS_PER_SAMPLE == 0
                attempt(framework, pod, CycleState(sampled=sampled))
            if turn:
                spent_seconds[measured] += time.process_time() - started
    plain, measured_us = (spent_seconds[key] / (ROUNDS * PODS) * 1e6 for key in (False, True))
    print(f"plain {plain:.1f} µs, measured {measured_us:.1f} µs: {measured_us - plain:.1f} µs")


if __name__ == "__main__":
    main()
