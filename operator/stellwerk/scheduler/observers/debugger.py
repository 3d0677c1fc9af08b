"""A dump of the scheduler's cache and queues, compared with the API, for the port and the log.

`serving` asks for the answer (/debug/dump); SIGUSR2 writes the same lines to the log. Invariant: a
dump changes nothing. Its lines are made in steps of microseconds, and decisions continue between
them. So the lines of a busy scheduler's dump are from slightly different moments.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from stellwerk.answers.dump import CacheDifference, CacheDump
from stellwerk.explain.steps import OutOfTime, Steps
from stellwerk.scheduler.observers.audit import Audit, Discrepancies
from stellwerk.world.world import World
from stellwerk_kube.clock import rfc3339_milliseconds
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.node import NodeInfo

logger = logging.getLogger(__name__)

MIN_SECONDS_BETWEEN_COMPARISONS: Final = 10.0
"""A comparison lists every pod of the cluster. Requests that come sooner get the last result."""
MAX_COMPARISON_SECONDS: Final = 30.0
"""Time for the lists and the second look; a client of the port waits 60 s for its answer."""
MAX_DUMP_BYTES: Final = 16 << 20
"""Bytes of all lines of an answer: 100,000 pods have 10 MiB, clients read up to 32 MiB."""
MAX_DIFFERENT_NAMES: Final = 100
"""Names of one kind of difference in an answer. Its count covers all of them."""
_LINES_PER_STEP: Final = 50
"""Lines between two steps. 50 lines take about 0.2 ms."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of one comparison with the API."""

    at: datetime
    found: Discrepancies | None
    """None: the API could not be listed."""
    failure: str = ""

    @property
    def sentence(self) -> str:
        """The result as one sentence."""
        if self.found is None:
            return f"cannot compare the cache with the API: {self.failure}"
        return f"cache compared with the API: {self.found}"


class Debugger:
    """Compares and dumps: for signals one at a time, for requests as often as the port allows."""

    def __init__(self, world: World, audit: Audit) -> None:
        self._world = world
        self._audit = audit
        self._task: asyncio.Task[None] | None = None
        self._comparing: asyncio.Task[Comparison] | None = None
        """The comparison that is under way, or the last one."""
        self._compared_at_seconds = float("-inf")

    def on_signal(self) -> None:
        """Write everything, in the background; signals that come meanwhile are lost."""
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self.write(), name="debugger")

    async def write(self) -> None:
        """Compare with the API, then write cache and queues to the log."""
        comparison = await self._compare()
        if comparison.found is None:
            level = logging.ERROR
        else:
            level = logging.WARNING if comparison.found else logging.INFO
        logger.log(level, "%s", comparison.sentence)
        for number, line in enumerate(self.dump(), 1):
            logger.info("%s", line)
            if number % _LINES_PER_STEP == 0:
                await asyncio.sleep(0)

    async def compare(self) -> Comparison:
        """Return the comparison that is under way, one of the last seconds, or a new one."""
        now_seconds = self._world.clock.monotonic()
        age_seconds = now_seconds - self._compared_at_seconds
        running = self._comparing
        if running is None or (running.done() and age_seconds >= MIN_SECONDS_BETWEEN_COMPARISONS):
            loop = asyncio.get_running_loop()
            self._comparing = running = loop.create_task(self._compare(), name="comparison")
        # A client that leaves takes the comparison from no other one.
        return await asyncio.shield(running)

    def answer(self, comparison: Comparison) -> Steps[CacheDump]:
        """The dump in steps, for the port."""
        lines, left_bytes, stopped = list[str](), MAX_DUMP_BYTES, None
        try:
            for number, line in enumerate(self.dump(), 1):
                left_bytes -= len(line) + 3  # with its quotation marks and comma
                if left_bytes < 0:
                    stopped = f"the dump is cut off here, at {MAX_DUMP_BYTES >> 20} MiB"
                    break
                lines.append(line)
                if number % _LINES_PER_STEP == 0:
                    yield
        except OutOfTime as reason:
            stopped = str(reason)
        found = comparison.found or Discrepancies()
        by_kind = {
            label.replace("_", " "): sorted(names) for label, names in found.by_label().items()
        }
        differences = [
            CacheDifference(kind=kind, count=len(names), names=names[:MAX_DIFFERENT_NAMES])
            for kind, names in by_kind.items()
            if names
        ]
        sentence = comparison.sentence
        if differences:
            counts = ", ".join(f"{each.count} {each.kind}" for each in differences)
            sentence = f"cache compared with the API: {counts}"
        return CacheDump(
            compared_at=rfc3339_milliseconds(comparison.at),
            comparison=sentence,
            compared=comparison.found is not None,
            differences=differences,
            items=lines,
            stopped=stopped,
        )

    def dump(self) -> Iterator[str]:
        """Cache and queues, line by line; the World may change between two lines."""
        world = self._world
        for node in list(world.cache.nodes()):
            yield from self._node(node)
        for name in sorted(world.nominator.by_node):
            pods = world.nominator.pods_for_node(name)
            yield f"nominated to {name}: {', '.join(pod.key for pod in pods)}"
        yield world.queue.describe()
        for entry in list(world.queue.entries.values()):
            plugins = ", ".join(sorted(entry.rejector_plugins)) or "no plugin"
            yield (
                f"  {entry.pod.key}: {entry.place.name}, attempts {entry.attempts}, "
                f"rejected by {plugins}"
            )

    def _node(self, node: NodeInfo) -> Iterator[str]:
        pods = list(self._world.cache.pods_on(node.name).values())
        yield f"node {node.name}: allocatable {_amounts(node.allocatable)}, {len(pods)} pods"
        for pod in pods:
            assumed = ", assumed" if pod.uid in self._world.cache.assumed_pods else ""
            yield f"  {pod.key}: requests {_amounts(pod.amounts.requests)}{assumed}"

    async def _compare(self) -> Comparison:
        clock = self._world.clock
        try:
            async with asyncio.timeout(MAX_COMPARISON_SECONDS):
                found = await self._audit.run()
        except SchedulerError as failure:
            comparison = Comparison(clock.now(), None, str(failure))
        except TimeoutError:
            late = f"the API server sent no whole list within {MAX_COMPARISON_SECONDS:.0f} s"
            comparison = Comparison(clock.now(), None, late)
        else:
            comparison = Comparison(clock.now(), found)
        self._compared_at_seconds = clock.monotonic()
        return comparison


def _amounts(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{resource}={amount}" for resource, amount in amounts.items()) or "nothing"
