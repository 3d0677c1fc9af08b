"""The audit: what cache and queue hold, compared with a fresh list from the API.

The debugger runs it on SIGUSR2, tests after a flow. Invariant: with no events under way, an
unbound pod of a served profile is in exactly one place, and a bound one is counted on its node;
whatever is not so is named.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final

from typing_extensions import override

from stellwerk.backend.queued_pod import POPPED, Place, QueuedPod
from stellwerk.framework.services import ClusterClient
from stellwerk.models.json_values import JsonObject
from stellwerk.scheduler.binding_outcomes import BindingOutcomes
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.profiles.without_profile import PodsWithoutProfile
from stellwerk.world.world import World

SETTLE_SECONDS: Final = 2.0
"""How long the watch may take to show what a list shows already."""


@dataclass(frozen=True, slots=True)
class Discrepancies:
    """What does not agree, by name; nothing, if all is well."""

    missed_nodes: frozenset[str] = frozenset()
    """In the API, not in the cache."""
    redundant_nodes: frozenset[str] = frozenset()
    """In the cache, not in the API."""
    missed_pods: frozenset[str] = frozenset()
    """In the API, neither in the cache nor in the queue."""
    redundant_pods: frozenset[str] = frozenset()
    """In the cache or in the queue, not in the API."""
    misplaced_pods: frozenset[str] = frozenset()
    """Bound in the API, but not counted on that node; or unbound, counted and not being bound."""
    stranded_pods: frozenset[str] = frozenset()
    """Popped from the queue, and neither being scheduled nor being bound."""
    unknown_bindings: frozenset[str] = frozenset()
    """In BINDING until the API says whether they are bound, whose answer was lost."""

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    @override
    def __str__(self) -> str:
        parts = [
            f"{field.name.replace('_', ' ')}: {', '.join(sorted(getattr(self, field.name)))}"
            for field in fields(self)
            if getattr(self, field.name)
        ]
        return "; ".join(parts) or "no discrepancies"

    def persisting(self, later: "Discrepancies") -> "Discrepancies":
        """Those that a second look has found again."""
        return Discrepancies(
            *(getattr(self, field.name) & getattr(later, field.name) for field in fields(self))
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """Compares cache and queue with the API, twice if need be."""

    world: World
    client: ClusterClient
    without_profile: PodsWithoutProfile
    bindings: BindingTasks
    outcomes: BindingOutcomes
    deciding: Callable[[], str]
    """The uid of the pod that the scheduling coroutine is at; empty: none."""

    async def run(self, settle_seconds: float = SETTLE_SECONDS) -> Discrepancies:
        """Compare with the API; what the watch has yet to show is looked at twice.

        Raises:
            SchedulerError: the API cannot be listed.
        """
        found = await self._compare_now()
        if not found:
            return found
        await asyncio.sleep(settle_seconds)
        return found.persisting(await self._compare_now())

    async def _compare_now(self) -> Discrepancies:
        nodes, _ = await self.client.list("/api/v1/nodes")
        pods, _ = await self.client.list("/api/v1/pods")
        return self.compare(nodes, pods)

    def compare(self, nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> Discrepancies:
        """Compare cache and queue with lists of all nodes and pods."""
        node_names = {node["metadata"]["name"] for node in nodes}
        cached_nodes = {node.name for node in self.world.cache.nodes()}
        living = {pod["metadata"]["uid"]: pod for pod in pods if not _finished(pod)}
        return Discrepancies(
            frozenset(node_names - cached_nodes),
            frozenset(cached_nodes - node_names),
            frozenset(_key(pod) for uid, pod in living.items() if not self._known(uid)),
            frozenset(self._redundant(living)),
            frozenset(_key(pod) for uid, pod in living.items() if self._misplaced(uid, pod)),
            frozenset(self._stranded()),
            frozenset(each.pod.key for each in self._popped() if each.pod.uid in self.outcomes),
        )

    def _known(self, uid: str) -> bool:
        world = self.world
        return (
            world.cache.pod(uid) is not None
            or uid in world.queue
            or uid in self.without_profile.pods
        )

    def _redundant(self, living: dict[str, JsonObject]) -> Iterator[str]:
        for pod in self.world.cache.pods():
            if pod.uid not in living:
                yield pod.key
        for entry in self.world.queue.entries():
            if entry.pod.uid not in living:
                yield entry.pod.key

    def _misplaced(self, uid: str, pod: JsonObject) -> bool:
        node_name = pod["spec"].get("nodeName") or ""
        counted = self.world.cache.pod(uid)
        if node_name:
            return counted is not None and counted.node_name != node_name
        return counted is not None and uid not in self.bindings

    def _popped(self) -> list[QueuedPod]:
        return [each for each in self.world.queue.entries() if each.place in POPPED]

    def _stranded(self) -> Iterator[str]:
        """Pods that were popped, but have neither a binding task nor a binding to be confirmed.

        The one that is being decided is in flight, and one that is going away stays where it was.
        """
        cache = self.world.cache
        for entry in self._popped():
            uid = entry.pod.uid
            if uid in self.bindings or cache.is_assumed(uid) or entry.newest.terminating:
                continue
            if entry.place is Place.BINDING or uid != self.deciding():
                yield entry.pod.key


def _finished(pod: JsonObject) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _key(pod: JsonObject) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
