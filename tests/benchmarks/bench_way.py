"""`python -m tests.benchmarks.bench_way`: CPU time for the whole way of a pod, in process.

From the watch event through queue, decision and binding to the event that confirms it, without
sockets; the quickest of many batches counts, since other work on the machine only adds to it.
Another checkout is measured by this file, too: `PYTHONPATH=TREE/operator:TREE python
tests/benchmarks/bench_way.py`. With `--kind unique`, or another workload, on its 5,000 nodes. With
`--paced 11` an API that gives an answer each millisecond sets the pace of a backlog at 5,000 nodes,
in so many pairs: decisions one by one, as slots for bindings come back, and in rows, as they are
made.
"""

import argparse
import asyncio
import gc
import json
import statistics
import time
from collections import deque
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from typing import Final
from unittest.mock import patch

from typing_extensions import override

from stellwerk.scheduler import binding_tasks
from stellwerk_kube.clock import VirtualClock
from stellwerk_simulation.workloads import KINDS
from tests.benchmarks import workloads
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

NODES: Final = 1000
BATCHES: Final = 60
PODS: Final = 50
"""In a batch."""
_WARM_UP: Final = 10
_TURNS: Final = 100
"""Of the loop: enough for a batch."""
_WORKLOAD_NODES: Final = 5000
_PACED_NODES: Final = 5000
_BACKLOG: Final = 1500
_PAUSE_SECONDS: Final = 0.001
_ONE_BY_ONE: Final = binding_tasks.MAX_BINDINGS_IN_FLIGHT + 1


class _RealClock(VirtualClock):
    """The machine's time, where a clock of tests is expected."""

    @override
    def monotonic(self) -> float:
        return time.monotonic()

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


async def measure(kind: str = "") -> list[float]:
    """Microseconds of CPU time a pod, by batch; of a workload on its own nodes, if one is named."""
    async with running(_RealClock()) as world:
        world.apply(make_profile("stellwerk"))
        if kind:
            world.apply(*map(workloads.make_node, range(_WORKLOAD_NODES)))
        else:
            world.apply(*(make_node(f"node-{n}", cpu="64", pods="500") for n in range(NODES)))
        gc.freeze()
        gc.disable()
        return [await _batch(world, number, kind) for number in range(BATCHES)][_WARM_UP:]


async def _batch(world: InProcess, number: int, kind: str) -> float:
    if kind:
        pods = [workloads.make_pod(kind, PODS * number + n) for n in range(PODS)]
    else:
        ids = [f"web-{number}-{n}" for n in range(PODS)]
        pods = [make_pod(name, cpu="10m", scheduler_name="stellwerk") for name in ids]
    names = [pod["metadata"]["name"] for pod in pods]
    began = time.process_time()
    world.apply(*pods)
    await quiet(_TURNS)
    seconds = time.process_time() - began
    if not all(map(world.node_of, names)):
        raise RuntimeError("not every pod was bound, so that the figures mean nothing")
    return seconds / PODS * 1e6


class _Paced:
    """A world whose API answers a binding when it is told to."""

    def __init__(self, world: InProcess) -> None:
        self._world = world
        self._unanswered: deque[asyncio.Future[None]] = deque()
        self._number = 0
        apply = world.client.bind

        async def bind(namespace: str, name: str, uid: str, node_name: str) -> None:
            answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._unanswered.append(answer)
            await answer
            await apply(namespace, name, uid, node_name)

        world.client.bind = bind  # type: ignore[method-assign]
        world.apply(make_profile("stellwerk"))
        nodes = (make_node(f"node-{n}", cpu="64", pods="500") for n in range(_PACED_NODES))
        world.apply(*nodes)

    async def backlog(self) -> float:
        """Microseconds of CPU time a pod, while there is always one that waits for a slot."""
        self._number += 1
        names = [f"web-{self._number}-{n}" for n in range(_BACKLOG)]
        self._world.apply(
            *(make_pod(name, cpu="10m", scheduler_name="stellwerk") for name in names)
        )
        while len(self._unanswered) < binding_tasks.MAX_BINDINGS_IN_FLIGHT:  # noqa: ASYNC110
            await asyncio.sleep(_PAUSE_SECONDS)
        measured = _BACKLOG - binding_tasks.MAX_BINDINGS_IN_FLIGHT
        began = time.process_time()
        for _ in range(measured):
            self._unanswered.popleft().set_result(None)
            await asyncio.sleep(_PAUSE_SECONDS)
        seconds = time.process_time() - began
        while not all(map(self._world.node_of, names)):
            while self._unanswered:
                self._unanswered.popleft().set_result(None)
            await asyncio.sleep(_PAUSE_SECONDS)
        return seconds / measured * 1e6


async def paced(pairs: int) -> list[tuple[float, float]]:
    """Microseconds of CPU time a pod, one by one and in rows."""
    async with AsyncExitStack() as stack:
        with patch.object(binding_tasks, "MIN_FREE_SHARE", _ONE_BY_ONE):
            one_by_one = _Paced(await stack.enter_async_context(running(_RealClock())))
        rows = _Paced(await stack.enter_async_context(running(_RealClock())))
        gc.freeze()
        gc.disable()
        return [(await one_by_one.backlog(), await rows.backlog()) for _ in range(pairs)]


def main() -> None:
    """Print the quickest batch, and the middle one; or pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--paced", type=int, default=0, help="so many pairs at an API's pace")
    parser.add_argument("--kind", default="", choices=KINDS, help="a workload in place of pods")
    options = parser.parse_args()
    if options.paced:
        pairs = asyncio.run(paced(options.paced))
        print(
            json.dumps(
                {
                    "one_by_one_us": round(statistics.median(pair[0] for pair in pairs), 1),
                    "rows_us": round(statistics.median(pair[1] for pair in pairs), 1),
                    "ratios": [round(pair[1] / pair[0], 2) for pair in pairs],
                }
            )
        )
        return
    batches = asyncio.run(measure(options.kind))
    figures = {"min_us": round(min(batches), 1), "median_us": round(statistics.median(batches), 1)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
