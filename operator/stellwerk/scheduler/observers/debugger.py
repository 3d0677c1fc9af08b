"""The scheduler's cache and queues, and how true they are, written to the log on SIGUSR2.

Invariant: nothing is changed by looking, and a signal that comes while the last one is being
answered is not answered again.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping

from stellwerk.errors import SchedulerError
from stellwerk.models.node import NodeInfo
from stellwerk.scheduler.observers.audit import Audit
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


class Debugger:
    """Answers one signal at a time, in a task of its own."""

    def __init__(self, world: World, audit: Audit) -> None:
        self._world = world
        self._audit = audit
        self._task: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        """Write everything, in the background."""
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self.write(), name="debugger")

    async def write(self) -> None:
        """Compare with the API, then write cache and queues."""
        try:
            found = await self._audit.run()
        except SchedulerError as failure:
            logger.error("cannot compare the cache with the API: %s", failure)  # noqa: TRY400 one line
        else:
            logger.log(
                logging.WARNING if found else logging.INFO, "cache compared with the API: %s", found
            )
        for line in self.dump():
            logger.info("%s", line)

    def dump(self) -> Iterator[str]:
        """Cache and queues, line by line."""
        world = self._world
        for node in world.cache.nodes():
            yield from self._node(node)
        for name in sorted(world.nominator.by_node):
            pods = world.nominator.pods_for_node(name)
            yield f"nominated to {name}: {', '.join(pod.key for pod in pods)}"
        yield world.queue.describe()
        for entry in world.queue.entries.values():
            plugins = ", ".join(sorted(entry.rejector_plugins)) or "no plugin"
            yield (
                f"  {entry.pod.key}: {entry.place.name}, attempts {entry.attempts}, "
                f"rejected by {plugins}"
            )

    def _node(self, node: NodeInfo) -> Iterator[str]:
        pods = self._world.cache.pods_on(node.name)
        yield f"node {node.name}: allocatable {_amounts(node.allocatable)}, {len(pods)} pods"
        for pod in pods.values():
            assumed = ", assumed" if pod.uid in self._world.cache.assumed_pods else ""
            yield f"  {pod.key}: requests {_amounts(pod.amounts.requests)}{assumed}"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ",".join(f"{resource}={amount}" for resource, amount in amounts.items()) or "nothing"
