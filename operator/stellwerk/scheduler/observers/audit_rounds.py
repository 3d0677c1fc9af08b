"""The audit every few minutes, and the repair of what it finds twice.

`app` runs it beside the scheduler, in every replica. An object that differs is read from the API
and takes the way of an event, through the memory of the watches, so that a later event about it is
understood. Invariant: nothing is repaired from a list, which may be older than the cache; and what
is repaired is logged and counted.
"""

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import quote

from stellwerk.metrics import Metrics
from stellwerk.scheduler.observers.audit import NODES, Audit, Discrepancies, is_finished
from stellwerk_kube.errors import NotFound, SchedulerError
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)

AUDIT_PERIOD_SECONDS: Final = 300.0
"""Pause between two audits. Each lists all nodes and pods, page by page."""
_REPAIRED: Final = (
    "missed_nodes",
    "redundant_nodes",
    "missed_pods",
    "redundant_pods",
    "misplaced_pods",
    "stranded_pods",
)
"""The labels of the discrepancies that a round repairs. Bindings of unknown outcome are not among
them, because `BindingOutcomes` asks the API about them already."""


class Redeliver(Protocol):
    """Takes objects as they were read into the handlers, whatever the watches said of them."""

    def put(self, kind: str, obj: JsonObject) -> None:
        """Hand on an object that exists."""
        ...

    def gone(self, kind: str, uid: str, namespace: str | None, name: str) -> None:
        """Hand on that an object does not exist."""
        ...


@dataclass(frozen=True, slots=True)
class AuditRounds:
    """One audit after the other, with a pause between."""

    audit: Audit
    redeliver: Redeliver
    metrics: Metrics
    period_seconds: float = AUDIT_PERIOD_SECONDS
    """0: never."""

    async def run(self) -> None:
        """Audit and repair until cancelled."""
        if not self.period_seconds:
            await asyncio.Event().wait()
        while True:
            await asyncio.sleep(self.period_seconds)
            try:
                await self.round()
            except SchedulerError as failure:
                logger.warning("cannot compare the cache with the API: %s", failure)

    async def round(self) -> Discrepancies:
        """Audit once, and repair; returns what was found.

        Raises:
            SchedulerError: the API cannot be read.
        """
        found = await self.audit.run()
        if found:
            logger.warning("cache compared with the API: %s", found)
            await self._repair(found)
        return found

    async def _repair(self, found: Discrepancies) -> None:
        for name in sorted(found.nodes_only_in_api | found.nodes_only_in_cache):
            await self._repair_node(name)
        # What is stranded is put in anew: an update would only be remembered for it.
        for uid in self._uids(found.stranded_pods):
            self.audit.world.queue.delete(uid)
        differing = found.pods_only_in_api | found.pods_only_in_cache | found.misplaced_pods
        for key in sorted(differing | found.stranded_pods):
            await self._repair_pod(key)
        for label, names in found.by_label().items():
            if names and label in _REPAIRED:
                self.metrics.audit_repairs.labels(label).inc(len(names))

    async def _repair_node(self, name: str) -> None:
        obj = await self._read(f"{NODES}/{quote(name, safe='')}")
        node = self.audit.world.cache.node(name)
        if obj is not None:
            self.redeliver.put("Node", obj)
        elif node is not None:
            self.redeliver.gone("Node", node.uid, None, name)

    async def _repair_pod(self, key: str) -> None:
        namespace, name = key.split("/", 1)
        obj = await self._read(
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"
        )
        exists = obj is not None and not is_finished(obj)
        for uid in self._uids({key}):
            if obj is None or not exists or obj["metadata"]["uid"] != uid:
                self.redeliver.gone("Pod", uid, namespace, name)
        if obj is not None and exists:
            self.redeliver.put("Pod", obj)

    async def _read(self, path: str) -> JsonObject | None:
        try:
            return await self.audit.client.get(path)
        except NotFound:
            return None

    def _uids(self, keys: Iterable[str]) -> list[str]:
        """The uids under which pods of these names are known."""
        world, wanted = self.audit.world, frozenset(keys)
        if not wanted:
            return []
        known = [*world.cache.pods(), *(entry.pod for entry in world.queue.entries.values())]
        return list(dict.fromkeys(pod.uid for pod in known if pod.key in wanted))
