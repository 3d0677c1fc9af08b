"""The scheduling queue, the decisions, the profiles, the nodes and their devices, a page at a time.

The operator's port serves them. Invariant: a page is made in steps, and holds at most as many
entries as were asked for. Devices are those that the API has shown: what is being allocated at the
moment counts as free.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from fractions import Fraction
from heapq import merge
from itertools import islice
from math import inf
from typing import Final, TypeAlias

from stellwerk.answers.listings import (
    ApiServerFields,
    ClaimExplanation,
    ClaimRequest,
    DecidedPod,
    DecisionsPage,
    DeviceCounter,
    DeviceExplanation,
    DeviceFields,
    DeviceHolder,
    DevicesPage,
    NodeExplanation,
    NodeFields,
    NodeQuantities,
    NodesPage,
    NodeTotals,
    OwnedPod,
    OwnedPods,
    PendingPod,
    PodsTurnedAway,
    ProfileObject,
    ProfilesPage,
    QueuePage,
    RefusedProfile,
    ServingProfile,
    UnservedPod,
)
from stellwerk.answers.suggestion import TaintFields
from stellwerk.backend.queued_pod import Place, QueuedPod
from stellwerk.explain.queue_facts import QUEUES, at, is_skipped
from stellwerk.explain.records import DecisionRecord, DecisionRecords
from stellwerk.explain.steps import OutOfTime, Steps, on_fork
from stellwerk.framework.types import Feasibility, PluginFailure, Status
from stellwerk.models.api_kinds import API_KINDS
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.shared.device_taint_rules import TaintRules
from stellwerk.plugins.shared.pod_resource_claims import claim_names
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import find_nodes
from stellwerk.world.pod_status import POD_SCHEDULED, SCHEDULER_ERROR
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import is_label_value, is_qualified_name
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.quantity import quantity_text
from stellwerk_kube.resource_claim import ALL, device_claim_of, is_allocated, key_of, reserved_for
from stellwerk_kube.resource_slice import PARSED, Attribute, Device, Slice

MOST: Final = 5000
DEFAULT: Final = 500
_AT_ONCE: Final = 200
_MATCHED_AT_ONCE: Final = 2000
_PROFILES_AT_ONCE: Final = 50
_MOST_NAMES: Final = 100
"""Different names that are compared with the served ones."""
UNSERVED: Final = "unserved"
"""The filter for pods that no scheduler serves. They are in no queue."""


@dataclass(frozen=True, slots=True)
class Page:
    """The part of a list that is wanted."""

    limit: int = DEFAULT
    offset: int = 0


@dataclass(frozen=True, slots=True)
class PodsAsked:
    """A filter of the pods of a list."""

    text: str = ""
    """A part of NAMESPACE/NAME; empty: any."""
    queue: str = ""
    """The queue that they wait in, as counts name it; empty: any."""
    plugin: str = ""
    """One that turned them away; empty: any."""
    node: str = ""
    """The node that they got; empty: any."""

    def __post_init__(self) -> None:
        """Check the queue.

        Raises:
            ConfigurationError: there is no such queue.
        """
        if self.queue and self.queue not in _WAITING:
            raise ConfigurationError(f'a queue is one of {", ".join(_WAITING)}, not "{self.queue}"')

    def waits(self, entry: QueuedPod) -> bool:
        """Whether a pod that waits is wanted."""
        return (
            self.text in entry.newest.key
            and (not self.queue or entry.place in _WAITING[self.queue])
            and (not self.plugin or self.plugin in entry.rejector_plugins)
        )

    def is_without_queue(self, pod: PodInfo) -> bool:
        """Whether a pod that waits in no queue, because no scheduler serves it, is wanted."""
        return self.text in pod.key and self.queue in {"", UNSERVED} and not self.plugin

    def got(self, record: DecisionRecord) -> bool:
        """Whether a pod that got a node is wanted."""
        return self.text in record.key and self.node in {"", record.node_name}


_WAITING: Final[Mapping[str, frozenset[Place]]] = {
    "active": frozenset({Place.ACTIVE}),
    "backoff": frozenset({Place.BACKOFF, Place.ERROR_BACKOFF}),
    "unschedulable": frozenset({Place.UNSCHEDULABLE}),
    "gated": frozenset({Place.GATED}),
    UNSERVED: frozenset(),
}
ALL_PODS: Final = PodsAsked()


def queue_page(
    world: World,
    page: Page,
    without_profile: Iterable[PodInfo] = (),
    asked: PodsAsked = ALL_PODS,
    is_unserved: Callable[[PodInfo], bool] = lambda _: True,
) -> Steps[QueuePage]:
    """Pending pods, in the order in which they would be tried within each queue.

    Args:
        world: has the queue.
        page: the part that is wanted.
        without_profile: pods that no profile serves.
        asked: a filter of the pods.
        is_unserved: tells those of them that no scheduler serves.
    """
    entries = list(world.queue.entries.values())
    yield
    wanted = []
    for number, entry in enumerate(entries):
        if number % _MATCHED_AT_ONCE == _MATCHED_AT_ONCE - 1:
            yield
        if not is_skipped(world, entry) and (asked == ALL_PODS or asked.waits(entry)):
            wanted.append(entry)
    entries = wanted
    entries.sort(key=_order)
    yield
    shown = entries[page.offset : page.offset + page.limit]
    items = []
    for number, entry in enumerate(shown):
        if number % _AT_ONCE == 0:
            yield
        items.append(_queued(world, entry))
    result = QueuePage(counts=dict(world.queue.pending()), total=len(entries), items=items)
    unserved, count = yield from _unserved(world, page, without_profile, asked, is_unserved)
    if not count:
        return result
    served = sorted(world.profiles.served)
    return replace(result, unserved=unserved, unserved_total=count, served=served)


def _unserved(
    world: World,
    page: Page,
    without_profile: Iterable[PodInfo],
    asked: PodsAsked,
    is_unserved: Callable[[PodInfo], bool],
) -> Steps[tuple[list[UnservedPod], int]]:
    """The pods that no scheduler serves, on the first page alone, and how many there are."""
    found, count, reasons = list[UnservedPod](), 0, dict[str, str]()
    for number, pod in enumerate(list(without_profile)):
        if number % _AT_ONCE == _AT_ONCE - 1:
            yield
        if not asked.is_without_queue(pod) or not is_unserved(pod):
            continue
        count += 1
        if page.offset or len(found) >= page.limit:
            continue
        name = pod.spec.scheduler_name
        reason = reasons.get(name)
        if reason is None:
            # Comparing names takes long. Only of a served name reasons differ by pod.
            reason = world.profiles.why_none(pod, hints=len(reasons) < _MOST_NAMES)
            if name not in world.profiles.served:
                reasons[name] = reason
        found.append(
            UnservedPod(
                pod=pod.key,
                scheduler_name=name,
                priority=pod.priority,
                reason=reason,
                labels=dict(pod.labels) or None,
            )
        )
    return found, count


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
        error=_error(entry.newest) if entry.consecutive_errors else None,
        labels=dict(entry.newest.labels) or None,
    )


def _error(pod: PodInfo) -> str | None:
    """The message of the condition that an attempt left which ended in an error."""
    for each in pod.conditions:
        if each.get("type") == POD_SCHEDULED and each.get("reason") == SCHEDULER_ERROR:
            return str(each.get("message") or "") or None
    return None


def decisions_page(
    world: World, records: DecisionRecords, page: Page, asked: PodsAsked = ALL_PODS
) -> Steps[DecisionsPage]:
    """Pods that got a node, the last decision first, as many as are kept."""
    yield
    total = len(records)
    if asked == ALL_PODS:
        shown = list(records.newest(page.offset, page.limit))
    else:
        found = []
        for number, record in enumerate(list(records.newest(0, total))):
            if number % _MATCHED_AT_ONCE == 0:
                yield
            if asked.got(record):
                found.append(record)
        total, shown = len(found), found[page.offset : page.offset + page.limit]
    items = []
    for number, record in enumerate(shown):
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
                compatibility=str(record.release),
            )
        )
    return DecisionsPage(total=total, items=items)


def profiles_page(world: World, objects: Iterable[ProfileObject]) -> Steps[ProfilesPage]:
    """Every profile that serves, why others do not, and what the objects' conditions say."""
    yield
    items, described = list[ServingProfile](), list[ProfileObject]()
    for profile in list(world.profiles.served.values()):
        items.append(
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
                compatibility=str(profile.compatibility.version),
            )
        )
        if len(items) % _PROFILES_AT_ONCE == 0:
            yield
    for each in objects:
        described.append(each)
        if len(described) % _PROFILES_AT_ONCE == 0:
            yield
    refused = [
        RefusedProfile(scheduler_name=name, reason=reason)
        for name, reason in world.profiles.refusals.items()
    ]
    return ProfilesPage(
        items=items, refused=refused, objects=described, api_server=_api_server(world)
    )


def _api_server(world: World) -> ApiServerFields:
    off = {
        kind: f"{lack.reason}: {API_KINDS[kind].lack}" if kind in API_KINDS else lack.reason
        for kind, lack in world.lacks.items()
    }
    return ApiServerFields(
        version=world.profiles.server_version,
        compatibility=str(world.profiles.compatibility.version),
        versions_in_use=dict(world.versions),
        off=off,
    )


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
    if asked is None or asked == NodesAsked():
        total = len(snapshot.row_of)
        names = list(islice(snapshot.row_of, page.offset, page.offset + page.limit))
    else:
        total, names = yield from _found(snapshot, asked, page)
    items = []
    for number, name in enumerate(names):
        if number % _AT_ONCE == 0:
            yield
        row = snapshot.row_of.get(name)
        if row is None:
            # It went while others had their turn.
            continue
        items.append(_node(snapshot, row))
    return NodesPage(total=total, items=items, totals=totals)


def _totals(snapshot: Snapshot, asked: NodesAsked) -> Steps[NodeTotals]:
    """The sums over the nodes that are wanted, of resources that have a column."""
    wanted = snapshot.alive.copy()
    if asked.text or asked.label:
        wanted[:] = False
        for number, name in enumerate(list(snapshot.row_of)):
            if number % _MATCHED_AT_ONCE == 0:
                yield
            row = snapshot.row_of.get(name)
            # Rows may have come while others had their turn.
            if row is not None and row < len(wanted):
                wanted[row] = asked.matches(snapshot.node_at(row))
    offered = snapshot.allocatable[:, : len(wanted)][:, wanted].sum(axis=1).tolist()
    requested = snapshot.requested[:, : len(wanted)][:, wanted].sum(axis=1).tolist()
    return NodeTotals(
        allocatable={name: offered[index] for name, index in snapshot.resource_row.items()},
        requested={name: requested[index] for name, index in snapshot.resource_row.items()},
    )


def _found(snapshot: Snapshot, asked: NodesAsked, page: Page) -> Steps[tuple[int, list[str]]]:
    """The number of the nodes that are wanted, and the names on the page."""
    parts: list[list[_Place]] = [[]]
    for number, name in enumerate(list(snapshot.row_of)):
        if number % _AT_ONCE == 0:
            yield
        row = snapshot.row_of.get(name)
        if row is None or not asked.matches(snapshot.node_at(row)):
            continue
        if len(parts[-1]) == _SORTED_AT_ONCE:
            parts[-1].sort()
            parts.append([])
        first = _use(snapshot, row, asked.sort) if asked.sort else float(number)
        parts[-1].append((first, natural_order(name), name))
    parts[-1].sort()
    if any(parts) and min(part[0] for part in parts)[0] == _NOT_OFFERED:
        raise ConfigurationError(f'no node offers "{asked.sort}"')
    shown = []
    for number, (_, _, name) in enumerate(islice(merge(*parts), page.offset + page.limit)):
        if number % _AT_ONCE == 0:
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


_Place: TypeAlias = tuple[float, str, str]
"""What a node is sorted by, its name in natural order, its name."""
_NOT_OFFERED: Final = inf
"""Behind all that offer the resource, whose places are 0 or less."""


def natural_order(name: str) -> str:
    """The place of a name among others, node-2 before node-10."""
    return _DIGITS.sub(lambda digits: digits[0].zfill(_MOST_DIGITS), name)


_SORTED_AT_ONCE: Final = 2000
_MOST_DIGITS: Final = 18
_DIGITS: Final = re.compile(r"[0-9]{1,18}")


def _requested(snapshot: Snapshot, row: int) -> dict[str, int]:
    """The amounts that pods on a node request, by resource."""
    usage = snapshot.usage(row)
    native = zip(("cpu", "memory", "ephemeral-storage", "pods"), usage.amounts, strict=True)
    return dict(native) | usage.extended


def _node(snapshot: Snapshot, row: int) -> NodeFields:
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


_BYTES: Final = frozenset({"memory", "ephemeral-storage"})
_UNITS: Final[Mapping[int, str]] = {
    1 << 50: "Pi",
    1 << 40: "Ti",
    1 << 30: "Gi",
    1 << 20: "Mi",
    1 << 10: "Ki",
}
_MOST_PODS: Final = 500
_NAMED: Final = 20


def explain_node(world: World, name: str) -> Steps[NodeExplanation] | None:
    """Explain a node by the pods that wait; None: there is none of that name."""
    return _explained(world, name) if world.cache.node(name) is not None else None


def _explained(world: World, name: str) -> Steps[NodeExplanation]:
    entries = sorted(world.queue.entries.values(), key=_order)
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
    for entry in entries[:_MOST_PODS]:
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
    return NodeExplanation(
        node=_node(snapshot, row),
        running=len(snapshot.pods[row]),
        pods=sorted((pod.key for pod in snapshot.pods[row].values()), key=natural_order)[
            :_MOST_PODS
        ],
        fitting=fitting,
        turned_away=[
            PodsTurnedAway(
                plugin=plugin, reasons=list(reasons), pods=pods[:_NAMED], count=len(pods)
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


def owned_pods(world: World, namespace: str, owner: str) -> Steps[OwnedPods]:
    """The pods that a controller, KIND/NAME, made in a namespace, those that wait first."""
    waiting, placed = list[OwnedPod](), list[OwnedPod]()
    entries = list(world.queue.entries.items())
    yield
    for number, (uid, entry) in enumerate(entries):
        if number % _MATCHED_AT_ONCE == 0:
            yield
        pod = entry.newest
        # A pod that is being bound is on its node already.
        if _is_of(pod, namespace, owner) and world.cache.pod(uid) is None:
            waiting.append(OwnedPod(pod=pod.key, queue=QUEUES.get(entry.place, "none")))
    for number, pod in enumerate(list(world.cache.pods())):
        if number % _MATCHED_AT_ONCE == 0:
            yield
        if _is_of(pod, namespace, owner):
            placed.append(OwnedPod(pod=pod.key, node=pod.node_name))
    shown = waiting[:_MOST_PODS]
    shown += sorted(placed, key=lambda each: natural_order(each.pod))[: _MOST_PODS - len(shown)]
    return OwnedPods(
        owner=owner,
        namespace=namespace,
        total=len(waiting) + len(placed),
        waiting=len(waiting),
        items=shown,
    )


def _is_of(pod: PodInfo, namespace: str, owner: str) -> bool:
    return pod.namespace == namespace and pod.owner is not None and owner_of(pod) == owner


def owner_of(pod: PodInfo) -> str:
    """KIND/NAME of the controller that made a pod; empty: none did."""
    if pod.owner is None:
        return ""
    kind, name, _ = pod.owner
    return f"{kind.rpartition(' ')[2]}/{name}"


_RESOURCE_SLICE: Final = "ResourceSlice"
_MOST_PODS_OF_CLAIM: Final = 100
_MOST_NODES_OF_DEVICE: Final = 100
_NONE: Final = Fraction(0)
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)


@dataclass(frozen=True, slots=True)
class DevicesAsked:
    """A filter of devices."""

    text: str = ""
    """A part of DRIVER/POOL/DEVICE; empty: any."""
    node: str = ""
    """The node that they are for; empty: any."""
    state: str = ""
    """`held` or `free`; empty: any."""

    def __post_init__(self) -> None:
        """Check the state.

        Raises:
            ConfigurationError: there is no such state.
        """
        if self.state not in {"", "held", "free"}:
            raise ConfigurationError(f'a device is held or free, not "{self.state}"')

    def matches(self, name: str, *, is_held: bool) -> bool:
        """Whether a device that is for the node is wanted."""
        return self.text in name and self.state in {"", "held" if is_held else "free"}


def devices_page(world: World, page: Page, asked: DevicesAsked) -> Steps[DevicesPage]:
    """Devices of the newest generation of each pool, with the claims that hold them."""
    holders: dict[str, list[str]] = {}
    for number, claim in enumerate(list(world.objects.list(RESOURCE_CLAIM))):
        if number % _AT_ONCE == 0:
            yield
        for given in _given(claim):
            holders.setdefault(given, []).append(key_of(claim))
    node = world.cache.node(asked.node) if asked.node else None
    slices = [] if asked.node and node is None else _newest_slices(world)
    rules = _taint_rules(world)
    yield
    items: list[DeviceFields] = []
    total = held = seen = 0
    for each in slices:
        if node is not None and not each.includes(node):
            continue
        for device in rules.applied_to(each).devices():
            seen += 1
            if seen % _AT_ONCE == 0:
                yield
            name = "/".join(device.key)
            elsewhere = node is not None and each.per_device and not device.reach.includes(node)
            if elsewhere or not asked.matches(name, is_held=name in holders):
                continue
            if page.offset <= total < page.offset + page.limit:
                items.append(_fields_of_device(device, holders.get(name, ())))
            total, held = total + 1, held + (name in holders)
    return DevicesPage(total=total, held=held, items=items)


def _newest_slices(world: World) -> list[Slice]:
    """The slices of the newest generation of each pool, in the order of the pools' names."""
    slices = [
        each[PARSED] for each in world.objects.list(_RESOURCE_SLICE) if each.get(PARSED) is not None
    ]
    newest: dict[tuple[str, str], int] = {}
    for each in slices:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    found = [each for each in slices if each.generation == newest[each.pool]]
    return sorted(found, key=lambda each: (natural_order("/".join(each.pool)), each.name))


def _taint_rules(world: World) -> TaintRules:
    """The DeviceTaintRules as they are now, where the release has them."""
    rules = TaintRules(world.objects, world.profiles.compatibility)
    rules.refresh()
    return rules


def _fields_of_device(device: Device, claims: Iterable[str]) -> DeviceFields:
    return DeviceFields(
        device="/".join(device.key),
        node=device.reach.node_name or None,
        attributes={key: _attribute_text(value) for key, value in device.attributes.items()},
        capacity={
            key: str(written.get("value", ""))
            for key, written in device.traits.written_capacity.items()
        },
        taints=[
            TaintFields(key=each.key, value=each.value, effect=each.effect)
            for each in device.traits.taints
        ],
        claims=sorted(claims),
    )


def _attribute_text(value: Attribute) -> str:
    """An attribute; a version, a bool and a list are pairs with their kind."""
    if not isinstance(value, tuple):
        return str(value)
    inner = value[1]
    if isinstance(inner, tuple):
        return ", ".join(map(str, inner))
    return str(inner).lower() if isinstance(inner, bool) else str(inner)


def _given(claim: JsonObject) -> Iterable[str]:
    """The devices that a claim has been given."""
    return [_device_of(result) for result in _results(claim)]


def _results(claim: JsonObject) -> Sequence[JsonObject]:
    """The results of a claim's allocation, each of which names a device."""
    if not is_allocated(claim):
        return ()
    return (claim["status"]["allocation"].get("devices") or {}).get("results") or ()


def _device_of(result: JsonObject) -> str:
    return f"{result['driver']}/{result['pool']}/{result['device']}"


def explain_device(world: World, name: str) -> Steps[DeviceExplanation] | None:
    """Explain a device, DRIVER/POOL/DEVICE; None: there is none of that name."""
    slices = _newest_slices(world)
    for each in slices:
        last = name.removeprefix("/".join((*each.pool, "")))
        if last != name and last in each.names.values:
            pool = [other for other in slices if other.pool == each.pool]
            return _explained_device(world, name, pool, each)
    return None


def _explained_device(
    world: World, name: str, pool: Sequence[Slice], own: Slice
) -> Steps[DeviceExplanation]:
    """`pool`: its slices, one of which, `own`, has the device."""
    holders, held = [], set[str]()
    for number, claim in enumerate(list(world.objects.list(RESOURCE_CLAIM))):
        if number % _AT_ONCE == 0:
            yield
        for result in _results(claim):
            its_device = _device_of(result)
            if not result.get("adminAccess"):
                held.add(its_device)
            if its_device == name:
                holders.append(_holder(claim, result))
    devices = _taint_rules(world).applied_to(own).devices()
    device = next(each for each in devices if "/".join(each.key) == name)
    reaches = (device.reach,) if own.per_device else own.reaches
    nodes = []
    for number, node in enumerate(list(world.cache.nodes())):
        if number % _MATCHED_AT_ONCE == 0:
            yield
        if any(reach.includes(node) for reach in reaches):
            nodes.append(node.name)
    return DeviceExplanation(
        device=_fields_of_device(device, {each.claim for each in holders}),
        resource_slice=own.name,
        shared=device.traits.shareable,
        holders=sorted(holders, key=lambda each: (each.claim, each.request)),
        counters=(yield from _counters(device, pool, held)),
        nodes=sorted(nodes, key=natural_order)[:_MOST_NODES_OF_DEVICE],
        on_nodes=len(nodes),
    )


def _holder(claim: JsonObject, result: JsonObject) -> DeviceHolder:
    return DeviceHolder(
        claim=key_of(claim),
        request=str(result.get("request", "")),
        consumed=result.get("consumedCapacity") or {},
        only_looks=bool(result.get("adminAccess")),
        pods=_pods_of(claim),
    )


def _counters(
    device: Device, pool: Sequence[Slice], held: AbstractSet[str]
) -> Steps[list[DeviceCounter]]:
    """The counters that a device shares with others of its pool, less what is held of them."""
    offered = {
        (counter_set, counter): amount
        for each in pool
        for counter_set, counters in each.counter_sets
        for counter, amount in counters.items()
    }
    free = dict(offered)
    for each in pool if device.traits.consumes else ():
        yield
        for other in each.devices():
            if "/".join(other.key) in held:
                for counter, amount in _consumed(other):
                    free[counter] = free.get(counter, _NONE) - amount
    return [
        DeviceCounter(
            counter_set=counter[0],
            counter=counter[1],
            takes=_amount_text(amount),
            offered=_amount_text(offered.get(counter, _NONE)),
            free=_amount_text(free.get(counter, _NONE)),
        )
        for counter, amount in _consumed(device)
    ]


def _consumed(device: Device) -> Iterator[tuple[tuple[str, str], Fraction]]:
    """What a device takes of each counter, by set and name."""
    for counter_set, counters in device.traits.consumes:
        for counter, amount in counters.items():
            yield (counter_set, counter), amount


def _amount_text(amount: Fraction) -> str:
    """An amount as a quantity, with a binary suffix where that is exact."""
    return quantity_text(amount, "Ki" if amount % 1024 == 0 else "")


def _pods_of(claim: JsonObject) -> list[str]:
    """NAMESPACE/NAME of the pods that a claim is reserved for."""
    pods = [each for each in reserved_for(claim) if each.get("resource", "pods") == "pods"]
    return [f"{claim['metadata']['namespace']}/{each.get('name')}" for each in pods]


def explain_claim(world: World, namespace: str, name: str) -> Steps[ClaimExplanation] | None:
    """Explain a claim; None: there is none of that name."""
    claim = world.objects.get(RESOURCE_CLAIM, namespace, name)
    return None if claim is None else _explained_claim(world, namespace, claim)


def _explained_claim(world: World, namespace: str, claim: JsonObject) -> Steps[ClaimExplanation]:
    waiting, name = list[str](), claim["metadata"]["name"]
    for number, entry in enumerate(list(world.queue.entries.values())):
        if number % _AT_ONCE == 0:
            yield
        pod = entry.newest
        uses = pod.namespace == namespace and pod.spec.resource_claims
        if uses and len(waiting) < _MOST_PODS_OF_CLAIM and name in set(claim_names(pod)):
            waiting.append(pod.key)
    requests, problem = [], None
    try:
        requests = [
            ClaimRequest(
                request=choice.full_name,
                device_class=choice.class_name,
                count=ALL if choice.everything else choice.count,
                selectors=list(choice.selectors),
            )
            for choice in device_claim_of(claim).choices
        ]
    except _MALFORMED as error:
        problem = f"{type(error).__name__}: {error}"
    return ClaimExplanation(
        claim=key_of(claim),
        state="allocated" if is_allocated(claim) else "needed",
        requests=requests,
        problem=problem,
        devices=list(_given(claim)),
        reserved_for=_pods_of(claim),
        waiting=waiting,
    )
