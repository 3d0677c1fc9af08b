"""The audit: what cache and queue hold, compared with a fresh list from the API.

It runs in rounds every few minutes, on SIGUSR2, and in tests after a flow. Invariant: with no
events under way, an unbound pod of a served profile is in exactly one place, and a bound one is
counted on its node; whatever is not so is named. It compares nodes and pods alone. Of other kinds,
only the next list shows a deletion that the watch has missed (`handlers.reflector`).
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final, NamedTuple, TypeVar

from typing_extensions import override

from stellwerk.backend.queued_pod import IN_FLIGHT, Place, QueuedPod
from stellwerk.client.paging import pages
from stellwerk.framework.services import ClusterClient
from stellwerk.profiles.moves import PodsWithoutProfile
from stellwerk.scheduler.binding_outcomes import BindingOutcomes
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject

SETTLE_SECONDS: Final = 2.0
"""Time in which the watch has to show what a list shows already. Only then it is a discrepancy."""
NODES: Final = "/api/v1/nodes"
UNFINISHED_PODS: Final = (
    "/api/v1/pods?fieldSelector=status.phase%21%3DSucceeded%2Cstatus.phase%21%3DFailed"
)
PAGE_ITEMS: Final = 500
"""Items on a page of a list, as in client-go's pager."""
ITEMS_PER_SLICE: Final = 500
"""Items compared before yielding to the event loop: about 1 ms."""

_LABELS: Final = {
    "nodes_only_in_api": "missed_nodes",
    "nodes_only_in_cache": "redundant_nodes",
    "pods_only_in_api": "missed_pods",
    "pods_only_in_cache": "redundant_pods",
}
"""The names for users of fields that have another name here: `missed` would be mistaken for the
deletions that a watch has missed (`stellwerk_missed_deletions_total`)."""

Item = TypeVar("Item")


class _Listed(NamedTuple):
    """The part of a pod, as the API has it, that is compared."""

    key: str
    node_name: str


@dataclass(frozen=True, slots=True)
class Discrepancies:
    """The objects that do not agree, by name; none, if all is well."""

    nodes_only_in_api: frozenset[str] = frozenset()
    nodes_only_in_cache: frozenset[str] = frozenset()
    """As after a deletion that the watch has missed."""
    pods_only_in_api: frozenset[str] = frozenset()
    """Neither in the cache nor in the queue."""
    pods_only_in_cache: frozenset[str] = frozenset()
    """In the cache or in the queue, not in the API."""
    misplaced_pods: frozenset[str] = frozenset()
    """Bound in the API, but not counted on that node; or unbound, counted and not being bound."""
    stranded_pods: frozenset[str] = frozenset()
    """Popped from the queue, and neither being scheduled nor being bound."""
    unknown_bindings: frozenset[str] = frozenset()
    """In BINDING until the API says whether they are bound, whose answer was lost."""

    def __bool__(self) -> bool:
        return any(getattr(self, field.name) for field in fields(self))

    def by_label(self) -> dict[str, frozenset[str]]:
        """Return the objects by the label of `stellwerk_audit_repairs_total`.

        Logs and dumps show the labels as words. docs/reliability.md explains them.
        """
        names = (each.name for each in fields(self))
        return {_LABELS.get(name, name): getattr(self, name) for name in names}

    @override
    def __str__(self) -> str:
        parts = [
            f"{label.replace('_', ' ')}: {', '.join(sorted(names))}"
            for label, names in self.by_label().items()
            if names
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
        nodes = {obj["metadata"]["name"] async for obj in self._items(NODES)}
        living: dict[str, _Listed] = {}
        async for pod in self._items(UNFINISHED_PODS):
            if not is_finished(pod):
                node_name = pod["spec"].get("nodeName") or ""
                living[pod["metadata"]["uid"]] = _Listed(_key(pod), node_name)
        return await self._compare(nodes, living)

    async def _items(self, path: str) -> AsyncIterator[JsonObject]:
        """The items of a collection; of each no more is kept than is compared."""
        async for page in pages(self.client.get, path, limit=PAGE_ITEMS):
            for item in page.get("items") or ():
                yield item
            await asyncio.sleep(0)

    async def _compare(self, nodes: set[str], living: dict[str, _Listed]) -> Discrepancies:
        world = self.world
        cached_nodes = {node.name for node in world.cache.nodes()}
        await asyncio.sleep(0)
        counted = list(world.cache.pods())
        await asyncio.sleep(0)
        queued = [entry.pod for entry in world.queue.entries.values()]
        only_in_api, misplaced = set(), set()
        only_in_cache = {
            pod.key
            for pods in (counted, queued)
            async for pod in _in_slices(pods)
            if pod.uid not in living
        }
        async for uid, listed in _in_slices(living.items()):
            if not self._known(uid):
                only_in_api.add(listed.key)
            if self._misplaced(uid, listed.node_name):
                misplaced.add(listed.key)
        popped = self._popped()
        return Discrepancies(
            frozenset(nodes - cached_nodes),
            frozenset(cached_nodes - nodes),
            frozenset(only_in_api),
            frozenset(only_in_cache),
            frozenset(misplaced),
            frozenset(self._stranded()),
            frozenset(each.pod.key for each in popped if each.pod.uid in self.outcomes),
        )

    def _known(self, uid: str) -> bool:
        world = self.world
        return (
            world.cache.pod(uid) is not None
            or uid in world.queue.entries
            or uid in self.without_profile.pods
        )

    def _misplaced(self, uid: str, node_name: str) -> bool:
        counted = self.world.cache.pod(uid)
        if node_name:
            return counted is not None and counted.node_name != node_name
        return counted is not None and uid not in self.bindings and not self._is_decided_now(uid)

    def _popped(self) -> list[QueuedPod]:
        return [each for each in self.world.queue.entries.values() if each.place in IN_FLIGHT]

    def _stranded(self) -> Iterator[str]:
        """Pods that were popped, but have neither a binding task nor a binding to be confirmed.

        The one that is being decided is in flight, and one that is going away stays where it was.
        """
        cache = self.world.cache
        for entry in self._popped():
            uid = entry.pod.uid
            if uid in self.bindings or uid in cache.assumed_pods or entry.newest.terminating:
                continue
            if entry.place is Place.BINDING or not self._is_decided_now(uid):
                yield entry.pod.key

    def _is_decided_now(self, uid: str) -> bool:
        """Return whether this pod is being decided, or a group that it belongs to."""
        deciding, key_of = self.deciding(), self.world.pod_groups.key_of
        if uid == deciding:
            return True
        return bool(deciding) and uid in key_of and key_of[uid] == key_of.get(deciding)


async def _in_slices(items: Iterable[Item]) -> AsyncIterator[Item]:
    """The items as they are at the beginning; yields to the event loop between slices of them."""
    kept = items if isinstance(items, list) else tuple(items)
    await asyncio.sleep(0)
    for number, item in enumerate(kept, 1):
        yield item
        if number % ITEMS_PER_SLICE == 0:
            await asyncio.sleep(0)


def is_finished(pod: JsonObject) -> bool:
    """Return whether a pod has ended, so that it holds nothing on its node."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _key(pod: JsonObject) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
