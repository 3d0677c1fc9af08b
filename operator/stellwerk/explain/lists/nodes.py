"""The nodes, as a list, and one node explained by the pods that wait.

The operator's port serves both (`stellwerk nodes`, `stellwerk explain node/NAME`). Invariant: both
are made in steps; an explanation computes on a fork and leaves the world as it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice
from math import inf
from typing import Final, TypeAlias

from stellwerk.answers.nodes import (
    NodeExplanation,
    NodeFields,
    NodePod,
    NodeQuantities,
    NodesPage,
    NodeTotals,
    PodsTurnedAway,
)
from stellwerk.answers.suggestion import TaintFields
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.lists.page import (
    MAX_ENTRIES_PER_PAGE,
    MAX_ENTRIES_PER_STEP,
    MAX_MATCHES_PER_STEP,
    Page,
    natural_order,
)
from stellwerk.explain.lists.queue import tried_order
from stellwerk.explain.steps import OutOfTime, Steps, on_fork
from stellwerk.framework.types import Feasibility, PluginFailure, Status
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import find_nodes
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.names import is_label_value, is_qualified_name
from stellwerk_kube.node import NodeInfo

_MAX_NODES_PER_SORT: Final = 2000
"""Nodes that are sorted in one step. The sorted parts are merged afterwards."""
_MAX_LISTED_PODS: Final = 500
"""Pods that are listed, and waiting pods that are tried on a node."""
_MAX_EXAMPLES: Final = 20
"""Pods that are named for each reason."""
_BYTES: Final = frozenset({"memory", "ephemeral-storage"})
"""Resources that are counted in bytes."""
_UNITS: Final[Mapping[int, str]] = {
    1 << 50: "Pi",
    1 << 40: "Ti",
    1 << 30: "Gi",
    1 << 20: "Mi",
    1 << 10: "Ki",
}
_NOT_OFFERED: Final = inf
"""The place behind all nodes that offer the resource, whose places are 0 or less."""
_Place: TypeAlias = tuple[float, str, str]
"""The sort key of a node: its place, its name in natural order, its name."""


@dataclass(frozen=True, slots=True)
class NodesAsked:
    """Filters and order of the nodes that are asked for."""

    text: str = ""
    """A part of the name; empty: any."""
    label: str = ""
    """KEY or KEY=VALUE; empty: any."""
    sort: str = ""
    """`name`, numbers in it as such, or a resource, the most used first; empty: by arrival."""
    totals: bool = False
    """The sums over all of them are wanted, too."""
    shares: str = ""
    """A resource of which the share of each node is wanted, too; empty: none."""

    def __post_init__(self) -> None:
        """Check the label.

        Raises:
            ConfigurationError: it is no key, and no key with a value.
        """
        key, equals, value = self.label.partition("=")
        if self.label and not (is_qualified_name(key) and (not equals or is_label_value(value))):
            raise ConfigurationError(f'a label is KEY or KEY=VALUE, not "{self.label}"')

    def matches(self, node: NodeInfo) -> bool:
        """Whether a node is wanted."""
        key, equals, value = self.label.partition("=")
        labelled = not key or (node.labels.get(key) == value if equals else key in node.labels)
        return labelled and self.text in node.name


def nodes_page(world: World, page: Page, asked: NodesAsked | None = None) -> Steps[NodesPage]:
    """Nodes with what they offer and what is used of it, by default in the order of arrival.

    Raises:
        ConfigurationError: they are to be put in the order of a resource that none of them offers.
    """
    yield
    snapshot = world.cache.snapshot
    totals = None
    if asked is not None and asked.totals:
        totals = yield from _totals(snapshot, asked)
        asked = replace(asked, totals=False)
    shares = None
    if asked is not None and asked.shares:
        shares = yield from _shares(snapshot, replace(asked, shares=""), asked.shares)
        asked = replace(asked, shares="")
    if asked is None or asked == NodesAsked():
        total = len(snapshot.row_of)
        names = list(islice(snapshot.row_of, page.offset, page.offset + page.limit))
    else:
        total, names = yield from _found(snapshot, asked, page)
    items = []
    for number, name in enumerate(names):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        row = snapshot.row_of.get(name)
        if row is None:
            # The node went while the operator handled events between two steps.
            continue
        items.append(_node(world, row))
    return NodesPage(total=total, items=items, totals=totals, shares=shares)


def _totals(snapshot: Snapshot, asked: NodesAsked) -> Steps[NodeTotals]:
    """The sums over the nodes that are wanted, of resources that have a column."""
    wanted = snapshot.alive.copy()
    if asked.text or asked.label:
        wanted[:] = False
        for number, name in enumerate(list(snapshot.row_of)):
            if number % MAX_MATCHES_PER_STEP == 0:
                yield
            row = snapshot.row_of.get(name)
            # Nodes may have come while the operator handled events between two steps.
            if row is not None and row < len(wanted):
                wanted[row] = asked.matches(snapshot.node_at(row))
    offered = snapshot.allocatable[:, : len(wanted)][:, wanted].sum(axis=1).tolist()
    requested = snapshot.requested[:, : len(wanted)][:, wanted].sum(axis=1).tolist()
    return NodeTotals(
        allocatable={name: offered[index] for name, index in snapshot.resource_row.items()},
        requested={name: requested[index] for name, index in snapshot.resource_row.items()},
    )


def _shares(snapshot: Snapshot, asked: NodesAsked, resource: str) -> Steps[list[int]]:
    """Percent of a resource that is requested of each node that is wanted, in their order."""
    _, names = yield from _found(snapshot, asked, Page(MAX_ENTRIES_PER_PAGE))
    shares = []
    for number, name in enumerate(names):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        row = snapshot.row_of.get(name)
        offered = 0 if row is None else snapshot.node_at(row).allocatable.get(resource, 0)
        used = _requested(snapshot, row).get(resource, 0) if row is not None and offered else 0
        shares.append(used * 100 // offered if offered else -1)
    return shares


def _found(snapshot: Snapshot, asked: NodesAsked, page: Page) -> Steps[tuple[int, list[str]]]:
    """The number of the nodes that are wanted, and the names on the page."""
    parts: list[list[_Place]] = [[]]
    for number, name in enumerate(list(snapshot.row_of)):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        row = snapshot.row_of.get(name)
        if row is None or not asked.matches(snapshot.node_at(row)):
            continue
        if len(parts[-1]) == _MAX_NODES_PER_SORT:
            parts[-1].sort()
            parts.append([])
        first = _use(snapshot, row, asked.sort) if asked.sort else float(number)
        parts[-1].append((first, natural_order(name), name))
    parts[-1].sort()
    if any(parts) and min(part[0] for part in parts)[0] == _NOT_OFFERED:
        raise ConfigurationError(f'no node offers "{asked.sort}"')
    shown = []
    for number, (_, _, name) in enumerate(islice(merge(*parts), page.offset + page.limit)):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        if number >= page.offset:
            shown.append(name)
    return sum(map(len, parts)), shown


def _use(snapshot: Snapshot, row: int, sort: str) -> float:
    """The place of a node by the use of a resource, the most used first; 0 for `name`."""
    if sort == "name":
        return 0.0
    offered = snapshot.node_at(row).allocatable.get(sort, 0)
    return -_requested(snapshot, row).get(sort, 0) / offered if offered else _NOT_OFFERED


def _requested(snapshot: Snapshot, row: int) -> dict[str, int]:
    """The amounts that pods on a node request, by resource."""
    usage = snapshot.usage(row)
    native = zip(("cpu", "memory", "ephemeral-storage", "pods"), usage.amounts, strict=True)
    return dict(native) | usage.extended


def _node(world: World, row: int) -> NodeFields:
    snapshot = world.cache.snapshot
    node, requested = snapshot.node_at(row), _requested(snapshot, row)
    return NodeFields(
        name=node.name,
        allocatable=dict(node.allocatable),
        requested=requested,
        labels=dict(node.labels),
        taints=[
            TaintFields(key=taint.key, value=taint.value, effect=taint.effect)
            for taint in node.taints
        ],
        unschedulable=node.unschedulable,
        quantities=NodeQuantities(
            allocatable=_quantities(node.allocatable), requested=_quantities(requested)
        ),
    )


def _quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    """Amounts as Kubernetes writes them: cores, and binary suffixes where they are exact."""
    found = {}
    for resource, amount in amounts.items():
        if resource == "cpu":
            found[resource] = f"{amount}m" if amount % 1000 else f"{amount // 1000}"
        elif resource in _BYTES:
            unit = next((each for each in _UNITS if amount and amount % each == 0), 1)
            found[resource] = f"{amount // unit}{_UNITS.get(unit, '')}"
        else:
            found[resource] = f"{amount}"
    return found


def explain_node(world: World, name: str) -> Steps[NodeExplanation] | None:
    """Explain a node by the pods that wait; None: there is none of that name."""
    return _explained(world, name) if world.cache.node(name) is not None else None


def _explained(world: World, name: str) -> Steps[NodeExplanation]:
    entries = sorted(world.queue.entries.values(), key=tried_order)
    yield
    return (yield from on_fork(world, lambda fork: _explained_on(fork, name, entries)))


def _explained_on(fork: World, name: str, entries: list[QueuedPod]) -> Steps[NodeExplanation]:
    snapshot = fork.cache.update_snapshot()
    yield
    row = snapshot.row_of.get(name)
    if row is None:
        raise ConfigurationError(f'there is no node "{name}"')
    fitting: list[str] = []
    away: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    followed: dict[str, None] = {}
    looked_at, stopped = 0, None
    for entry in entries[:_MAX_LISTED_PODS]:
        pod = entry.newest
        profile = fork.profiles.of(pod)
        looked_at += 1
        if profile is None or pod.terminating:
            continue
        followed[str(profile.compatibility.version)] = None
        try:
            search = find_nodes(fork, pod, profile, thorough=True)
            if search.found.fits[row]:
                fitting.append(pod.key)
            else:
                status = _status(profile, search.found, pod, row)
                away.setdefault((status.plugin, tuple(status.reasons)), []).append(pod.key)
            yield
        except PluginFailure as failure:
            away.setdefault((failure.plugin, (str(failure),)), []).append(pod.key)
        except OutOfTime as reason:
            stopped = str(reason)
            break
    ordered = sorted(away.items(), key=lambda each: -len(each[1]))
    there = sorted(snapshot.pods[row].values(), key=lambda pod: natural_order(pod.key))[
        :_MAX_LISTED_PODS
    ]
    return NodeExplanation(
        node=_node(fork, row),
        running=len(snapshot.pods[row]),
        pods=[pod.key for pod in there],
        pods_there=[
            NodePod(
                pod=pod.key,
                requests=dict(pod.amounts.requests),
                priority=pod.priority,
                started=pod.start_time or None,
            )
            for pod in there
        ],
        fitting=fitting,
        turned_away=[
            PodsTurnedAway(
                plugin=plugin, reasons=list(reasons), pods=pods[:_MAX_EXAMPLES], count=len(pods)
            )
            for (plugin, reasons), pods in ordered
        ],
        left_out=len(entries) - looked_at or None,
        stopped=stopped,
        compatibility=list(followed),
    )


def _status(profile: ServedProfile, found: Feasibility, pod: PodInfo, row: int) -> Status:
    """The first rejection of a pod by a row."""
    if not found.pre_filter.ok:
        return found.pre_filter
    diagnosis = profile.framework.filtering.diagnose(found, pod)
    statuses = dict(zip(diagnosis.rows, diagnosis.statuses, strict=True))
    return statuses.get(row, found.pre_filter)
