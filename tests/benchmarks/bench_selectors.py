"""What profiles by namespace cost: pods on their way, and a relabelled namespace of many that wait.

    python -m tests.benchmarks.bench_selectors --pods 1000 --waiting 20000 --pairs 5

Pairs of whole runs without and with selectors, in CPU time; then the namespace of so many waiting
pods gets other labels: how long that takes in all, and the longest step that holds up the loop.
"""

import argparse
import asyncio
import gc
import statistics
import time

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

_NODES = 1000
_TURNS = 200


def namespace(team: str) -> JsonObject:
    metadata = {"name": "default", "uid": "default", "labels": {"team": team}}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


def of_team(team: str) -> JsonObject:
    return make_profile(team, selector={"namespaceSelector": {"matchLabels": {"team": team}}})


async def drain(pods: int, *, selectors: bool) -> float:
    """CPU microseconds a pod, from event to binding."""
    async with running(VirtualClock()) as world:
        world.apply(make_profile("default-scheduler"), namespace("batch"))
        if selectors:
            world.apply(of_team("batch"), of_team("web"))
        world.apply(*(make_node(f"n{number}", cpu="64") for number in range(_NODES)))
        world.apply(make_pod("warm"))
        await quiet(_TURNS)
        began = time.process_time()
        for first in range(0, pods, 50):
            batch = range(first, min(first + 50, pods))
            world.apply(*(make_pod(f"p{number}", cpu="10m") for number in batch))
            await quiet(_TURNS)
        took = time.process_time() - began
        name = "batch" if selectors else "default-scheduler"
        assert world.profiles.served[name].activity.scheduled_pods == pods + 1
        return 1e6 * took / pods


def relabel(waiting: int) -> tuple[float, float]:
    """Milliseconds for (all waiting pods, the longest step) when their namespace changes hands."""
    world = InProcess()
    world.apply(of_team("batch"), of_team("web"), namespace("batch"))
    world.apply(*(make_pod(f"p{number}") for number in range(waiting)))
    gc.collect()
    gc.freeze()
    steps = []
    began = time.process_time()
    world.apply(namespace("web"))
    steps.append(time.process_time() - began)
    is_left = True
    while is_left:
        began = time.process_time()
        is_left = world.queue.backlog.work_off()
        steps.append(time.process_time() - began)
    assert {entry.profile_name for entry in world.queue.entries.values()} == {"web"}
    return 1e3 * sum(steps), 1e3 * max(steps)


async def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--waiting", type=int, default=20_000)
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(options.pairs):
        for selectors, runs in found.items():
            runs.append(await drain(options.pods, selectors=selectors))
    for selectors, runs in found.items():
        name = "by selector" if selectors else "by name"
        print(f"{name}: {statistics.median(runs):.0f} µs a pod, at least {min(runs):.0f}")
    whole, longest = relabel(options.waiting)
    print(f"relabelled: {options.waiting} pods in {whole:.0f} ms, no step above {longest:.1f} ms")


if __name__ == "__main__":
    asyncio.run(main())
