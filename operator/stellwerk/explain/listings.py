"""The scheduling queue, the decisions, the profiles and the nodes, a page at a time.

The operator's port serves them. Invariant: a page is made in steps, and holds at most as many
entries as were asked for.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.queue_facts import QUEUES, at
from stellwerk.explain.records import DecisionRecords
from stellwerk.explain.steps import Steps
from stellwerk.models.answers.listings import (
    DecidedPod,
    DecisionsPage,
    NodeFields,
    NodesPage,
    PendingPod,
    ProfileObject,
    ProfilesPage,
    QueuePage,
    RefusedProfile,
    ServingProfile,
)
from stellwerk.models.answers.suggestion import TaintFields
from stellwerk.models.plugin_description import ExtensionPoint
from stellwerk.world.world import World

MOST: Final = 5000
DEFAULT: Final = 500
_AT_ONCE: Final = 200


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that is wanted."""

    limit: int = DEFAULT
    offset: int = 0


def queue_page(world: World, page: Page) -> Steps[QueuePage]:
    """Pending pods, in the order in which they would be tried within each queue."""
    entries = list(world.queue.entries.values())
    yield
    entries.sort(key=_order)
    yield
    shown = entries[page.offset : page.offset + page.limit]
    items = []
    for number, entry in enumerate(shown):
        if number % _AT_ONCE == 0:
            yield
        items.append(_queued(world, entry))
    return QueuePage(counts=dict(world.queue.pending()), total=len(entries), items=items)


def _order(entry: QueuedPod) -> tuple[int, tuple[float, ...], float]:
    return (int(entry.place), entry.sort_key, entry.backoff_expiration or entry.queued_at)


def _queued(world: World, entry: QueuedPod) -> PendingPod:
    return PendingPod(
        pod=entry.newest.key,
        queue=QUEUES.get(entry.place, "none"),
        scheduler_name=entry.newest.spec.scheduler_name,
        priority=entry.newest.priority,
        since=at(world.clock, entry.queued_at),
        attempts=entry.attempts,
        rejected_by=sorted(entry.rejector_plugins) or None,
    )


def decisions_page(world: World, records: DecisionRecords, page: Page) -> Steps[DecisionsPage]:
    """Pods that got a node, the last decision first, as many as are kept."""
    yield
    items = []
    for number, record in enumerate(records.newest(page.offset, page.limit)):
        if number % _AT_ONCE == 0:
            yield
        items.append(
            DecidedPod(
                pod=record.key,
                node=record.node_name,
                scheduler_name=record.scheduler_name,
                decided_at=at(world.clock, record.decided_at_seconds),
                attempts=record.attempts,
                feasible=record.feasible,
                nodes=record.nodes,
                tied=record.tied,
            )
        )
    return DecisionsPage(total=len(records), items=items)


def profiles_page(world: World, objects: Iterable[ProfileObject]) -> Steps[ProfilesPage]:
    """Every profile that serves, why others do not, and what the objects' conditions say."""
    yield
    items = [
        ServingProfile(
            name=profile.loaded.name,
            scheduler_name=profile.scheduler_name,
            generation=profile.loaded.generation,
            plugins={
                point.value: list(profile.loaded.plugins.at(point)) for point in ExtensionPoint
            },
            weights=dict(profile.loaded.plugins.weights),
            scheduled_pods=profile.activity.scheduled_pods,
            extenders=profile.extenders is not None,
        )
        for profile in world.profiles.served.values()
    ]
    refused = [
        RefusedProfile(scheduler_name=name, reason=reason)
        for name, reason in world.profiles.refusals.items()
    ]
    return ProfilesPage(items=items, refused=refused, objects=list(objects))


def nodes_page(world: World, page: Page) -> Steps[NodesPage]:
    """Nodes with what they offer and what is used of it, in the order of their arrival."""
    yield
    snapshot = world.cache.snapshot
    names = list(islice(snapshot.row_of, page.offset, page.offset + page.limit))
    items = []
    for number, name in enumerate(names):
        if number % _AT_ONCE == 0:
            yield
        row = snapshot.row_of.get(name)
        if row is None:
            # It went while others had their turn.
            continue
        node, usage = snapshot.node_at(row), snapshot.usage(row)
        native = zip(("cpu", "memory", "ephemeral-storage", "pods"), usage.amounts, strict=True)
        items.append(
            NodeFields(
                name=name,
                allocatable=dict(node.allocatable),
                requested=dict(native) | usage.extended,
                labels=dict(node.labels),
                taints=[
                    TaintFields(key=taint.key, value=taint.value, effect=taint.effect)
                    for taint in node.taints
                ],
                unschedulable=node.unschedulable,
            )
        )
    return NodesPage(total=len(snapshot.row_of), items=items)
