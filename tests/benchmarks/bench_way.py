"""`python -m tests.benchmarks.bench_way`: CPU time for the whole way of a pod, in process.

From the watch event through queue, decision and binding to the event that confirms it, without
sockets; the quickest of many batches counts, since other work on the machine only adds to it.
Another checkout is measured by this file, too: `PYTHONPATH=TREE/operator:TREE python
tests/benchmarks/bench_way.py`.
"""

import asyncio
import gc
import json
import statistics
import time
from datetime import UTC, datetime
from typing import Final

from typing_extensions import override

from stellwerk.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running

NODES: Final = 1000
BATCHES: Final = 60
PODS: Final = 50
"""In a batch."""
_WARM_UP: Final = 10
_TURNS: Final = 100
"""Of the loop: enough for a batch."""


class _RealClock(VirtualClock):
    """The machine's time, where a clock of tests is expected."""

    @override
    def monotonic(self) -> float:
        return time.monotonic()

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)


async def measure() -> list[float]:
    """Microseconds of CPU time a pod, by batch."""
    async with running(_RealClock()) as world:
        world.apply(make_profile("stellwerk"))
        world.apply(*(make_node(f"node-{n}", cpu="64", pods="500") for n in range(NODES)))
        gc.freeze()
        gc.disable()
        return [await _batch(world, number) for number in range(BATCHES)][_WARM_UP:]


async def _batch(world: InProcess, number: int) -> float:
    names = [f"web-{number}-{n}" for n in range(PODS)]
    pods = [make_pod(name, cpu="10m", scheduler_name="stellwerk") for name in names]
    began = time.process_time()
    world.apply(*pods)
    await quiet(_TURNS)
    seconds = time.process_time() - began
    if not all(map(world.node_of, names)):
        raise RuntimeError("not every pod was bound, so that the figures mean nothing")
    return seconds / PODS * 1e6


def main() -> None:
    """Print the quickest batch, and the middle one."""
    batches = asyncio.run(measure())
    figures = {"min_us": round(min(batches), 1), "median_us": round(statistics.median(batches), 1)}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
