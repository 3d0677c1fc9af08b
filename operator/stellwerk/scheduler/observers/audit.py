"""Is anything lost? What cache and queue hold, compared with a fresh list from the API.

The debugger runs it on SIGUSR2, tests after a flow. Invariant: with no events under way, an
unbound pod of a served profile is in exactly one place, and a bound one is counted on its node;
whatever is not so is named.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Final

from typing_extensions import override

from stellwerk.backend.queued_pod import Place
from stellwerk.models.json_values import JsonObject
from stellwerk.scheduler.parts import Parts

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
    """Bound in the API, but not counted on that node; or unbound, and counted as bound."""
    stranded_pods: frozenset[str] = frozenset()
    """Taken from the queue, but nobody is scheduling or binding them."""

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


async def audit(parts: Parts, settle_seconds: float = SETTLE_SECONDS) -> Discrepancies:
    """Compare with the API; what the watch has yet to show is looked at twice.

    Raises:
        SchedulerError: the API cannot be listed.
    """
    found = await _compare_now(parts)
    if not found:
        return found
    await asyncio.sleep(settle_seconds)
    return found.persisting(await _compare_now(parts))


async def _compare_now(parts: Parts) -> Discrepancies:
    nodes, _ = await parts.client.list("/api/v1/nodes")
    pods, _ = await parts.client.list("/api/v1/pods")
    return compare(parts, nodes, pods)


def compare(parts: Parts, nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> Discrepancies:
    """Compare cache and queue with lists of all nodes and pods."""
    node_names = {node["metadata"]["name"] for node in nodes}
    cached_nodes = {node.name for node in parts.cache.nodes()}
    living = {pod["metadata"]["uid"]: pod for pod in pods if not _finished(pod)}
    return Discrepancies(
        frozenset(node_names - cached_nodes),
        frozenset(cached_nodes - node_names),
        frozenset(_key(pod) for uid, pod in living.items() if not _known(parts, uid)),
        frozenset(_redundant(parts, living)),
        frozenset(_key(pod) for uid, pod in living.items() if _misplaced(parts, uid, pod)),
        frozenset(_stranded(parts)),
    )


def _known(parts: Parts, uid: str) -> bool:
    return parts.cache.pod(uid) is not None or uid in parts.queue or uid in parts.unserved


def _redundant(parts: Parts, living: dict[str, JsonObject]) -> Iterator[str]:
    for pod in parts.cache.pods():
        if pod.uid not in living:
            yield pod.key
    for entry in parts.queue.entries():
        if entry.pod.uid not in living:
            yield entry.pod.key


def _misplaced(parts: Parts, uid: str, pod: JsonObject) -> bool:
    node_name = pod["spec"].get("nodeName") or ""
    counted = parts.cache.pod(uid)
    if node_name:
        return counted is not None and counted.node_name != node_name
    return counted is not None and not parts.cache.is_assumed(uid)


def _stranded(parts: Parts) -> Iterator[str]:
    """Pods that were taken, but have neither a binding task nor a binding to be confirmed.

    The one that is being decided is in flight, and one that is going away stays where it was.
    """
    in_flight = [
        entry for entry in parts.queue.entries() if entry.place in {Place.IN_FLIGHT, Place.BINDING}
    ]
    for entry in in_flight:
        uid = entry.pod.uid
        if uid in parts.bindings or parts.cache.is_assumed(uid) or entry.newest.terminating:
            continue
        if entry.place is Place.BINDING or uid != parts.deciding:
            yield entry.pod.key


def _finished(pod: JsonObject) -> bool:
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def _key(pod: JsonObject) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"
