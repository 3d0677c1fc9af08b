"""What the scheduler knows, written to the log on SIGUSR2: cache, queues, and how true they are.

`app` connects the signal. Invariant: nothing is changed by looking, and a signal that comes while
the last one is being answered is not answered again.
"""

import asyncio
import logging
from collections.abc import Iterator

from stellwerk.errors import SchedulerError
from stellwerk.models.node import NodeInfo
from stellwerk.scheduler.observers.audit import audit
from stellwerk.scheduler.parts import Parts

logger = logging.getLogger(__name__)


class Debugger:
    """See the module docstring."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._task: asyncio.Task[None] | None = None

    def on_signal(self) -> None:
        """Write everything, in the background."""
        if self._task is None or self._task.done():
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self.write(), name="debugger")

    async def write(self) -> None:
        """Compare with the API, then write cache and queues."""
        try:
            found = await audit(self._parts)
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
        parts = self._parts
        for node in parts.cache.nodes():
            yield from self._node(node)
        for name in sorted(parts.queue.nominator.nominated_nodes()):
            pods = parts.queue.nominator.pods_for_node(name)
            yield f"nominated to {name}: {', '.join(pod.key for pod in pods)}"
        yield parts.queue.describe()
        for entry in parts.queue.entries():
            rejectors = ", ".join(sorted(entry.rejectors)) or "nobody"
            yield (
                f"  {entry.pod.key}: {entry.place.name}, attempts {entry.attempts}, "
                f"rejected by {rejectors}"
            )

    def _node(self, node: NodeInfo) -> Iterator[str]:
        pods = self._parts.cache.pods_on(node.name)
        yield f"node {node.name}: allocatable {dict(node.allocatable)}, {len(pods)} pods"
        for pod in pods.values():
            assumed = ", assumed" if self._parts.cache.is_assumed(pod.uid) else ""
            yield f"  {pod.key}: requests {dict(pod.amounts.requests)}{assumed}"
