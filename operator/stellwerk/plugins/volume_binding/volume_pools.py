"""Existing volumes that wait for a claim: the smallest one of its class that each node can use.

`binder` asks for claims that wait for their pod; volumes are columns that follow the object store,
and one is picked for every row at once: a class with a volume on each of 5,000 nodes costs no more
than one with a volume per zone. Invariant: a pool's living positions are the available volumes of
its class, ascending by size and then by arrival; a row gets no volume twice, and a volume that
names a claim is the only one considered for it (`FindMatchingVolume` of v1.36).
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.shared.node_matching import matching_nodes
from stellwerk.plugins.volume_binding.accessible_nodes import (
    AccessibleNodes,
    AccessibleNodesBySelector,
    joined,
    node_selector,
)
from stellwerk.snapshot.columns import ChangeCursor, IdColumn, IntColumn, Mask, RowColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.selectors import NodeSelector, parse_label_selector

_KIND: Final = "PersistentVolume"


class Offer(NamedTuple):
    """The properties of a volume beside its size; few distinct ones exist."""

    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str


class _Traits(NamedTuple):
    """The part of a volume that the columns hold."""

    capacity: Fraction
    offer: Offer
    selector: NodeSelector | None


def capacity_of(volume: JsonObject) -> Fraction:
    """The size of a volume in bytes."""
    return parse_quantity((volume["spec"].get("capacity") or {}).get("storage") or "0")


def requested_storage(claim: JsonObject) -> Fraction:
    """The size that a claim asks for, in bytes."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage") or "0")


def offer_of(obj: JsonObject) -> Offer:
    """The properties that a volume has, or a claim wants."""
    spec = obj["spec"]
    return Offer(
        frozenset(spec.get("accessModes") or ()),
        spec.get("volumeMode") or "Filesystem",
        spec.get("volumeAttributesClassName") or "",
    )


def is_available(volume: JsonObject) -> bool:
    """Whether any claim of the class may have the volume."""
    return (
        not volume["spec"].get("claimRef")
        and (volume.get("status") or {}).get("phase") == "Available"
        and "deletionTimestamp" not in volume["metadata"]
    )


class VolumePool:
    """The available volumes of one class. Positions stay until a new volume comes."""

    def __init__(self, accessible: AccessibleNodesBySelector) -> None:
        self._accessible = accessible
        self._traits: dict[str, _Traits] = {}
        self._waiting: dict[str, JsonObject] = {}
        """Volumes that have no position yet."""
        self._position: dict[str, int] = {}
        self.volumes: list[JsonObject] = []
        """(P,) the volume at each position."""
        self.accessible: list[AccessibleNodes] = []
        """The nodes that can use volumes; `group` indexes them."""
        self.group: IdColumn = np.zeros(0, np.int32)
        """(P,) int32, index into `accessible`."""
        self._offers: list[Offer] = []
        self._offer: IdColumn = np.zeros(0, np.int32)
        self._capacities: list[Fraction] = []
        self._alive: Mask = np.zeros(0, np.bool_)

    def put(self, volume: JsonObject) -> None:
        """Add a volume, or bring it back as it is now."""
        name = volume["metadata"]["name"]
        traits = _Traits(capacity_of(volume), offer_of(volume), node_selector(volume))
        position = self._position.get(name)
        if position is not None and self._traits[name] == traits:
            self.volumes[position], self._alive[position] = volume, True
            return
        self.remove(name)
        self._traits[name], self._waiting[name] = traits, volume
        self._position.pop(name, None)

    def remove(self, name: str) -> None:
        """Take a volume out; its position stays, dead, in case it comes back."""
        self._waiting.pop(name, None)
        position = self._position.get(name)
        if position is not None:
            self._alive[position] = False

    def eligible(self, claim: JsonObject) -> RowColumn:
        """(m,) positions of volumes that the claim could use on some node, ascending."""
        if self._waiting:
            self._rebuild()
        first = bisect_left(self._capacities, requested_storage(claim))
        wanted = offer_of(claim)
        suits = np.array([_suits(offer, wanted) for offer in self._offers], dtype=np.bool_)
        suitable = self._alive[first:] & suits[self._offer[first:]]
        positions: RowColumn = np.flatnonzero(suitable) + first
        selector = parse_label_selector(claim["spec"].get("selector"))
        if selector is None:
            return positions
        volumes = (self.volumes[position]["metadata"] for position in positions.tolist())
        chosen = [selector.matches(metadata.get("labels") or {}) for metadata in volumes]
        return positions[np.array(chosen, dtype=np.bool_)]

    def _rebuild(self) -> None:
        """Give every living volume a position, the dead none."""
        living = [volume for volume, alive in zip(self.volumes, self._alive, strict=True) if alive]
        volumes = [*living, *self._waiting.values()]
        volumes.sort(key=lambda volume: self._traits[volume["metadata"]["name"]].capacity)
        names = [volume["metadata"]["name"] for volume in volumes]
        traits = [self._traits[name] for name in names]
        self._traits = dict(zip(names, traits, strict=True))
        self._position = {name: position for position, name in enumerate(names)}
        self._waiting.clear()
        self.volumes = volumes
        self._alive = np.ones(len(volumes), np.bool_)
        self._capacities = [own.capacity for own in traits]
        offers: dict[Offer, int] = {}
        groups: dict[NodeSelector | None, int] = {}
        self._offer = _ids([offers.setdefault(own.offer, len(offers)) for own in traits])
        self.group = _ids([groups.setdefault(own.selector, len(groups)) for own in traits])
        self._offers, self.accessible = list(offers), [self._accessible.of(own) for own in groups]


class VolumePools:
    """The pools of all classes."""

    def __init__(self, objects: ObjectStore, accessible: AccessibleNodesBySelector) -> None:
        self._objects = objects
        self._accessible = accessible
        self._cursor = ChangeCursor(objects.changes(_KIND))
        self._pools: dict[str, VolumePool] = {}
        self._class_of: dict[str, str] = {}

    def pool(self, class_name: str) -> VolumePool:
        """The available volumes of a class, up to date."""
        if not self._cursor.current:
            names = self._cursor.advance()
            if names is None:
                self._pools.clear()
                self._class_of.clear()
                names = [("", obj["metadata"]["name"]) for obj in self._objects.list(_KIND)]
            for _, name in names:
                self._follow(name)
        return self._pools.get(class_name) or VolumePool(self._accessible)

    def _follow(self, name: str) -> None:
        volume = self._objects.get(_KIND, "", name)
        available = volume is not None and is_available(volume)
        class_name = storage_class_name(volume) if volume is not None and available else None
        before = self._class_of.pop(name, None)
        if before is not None and before != class_name:
            self._pools[before].remove(name)
        if class_name is not None and volume is not None:
            self._class_of[name] = class_name
            self._pools.setdefault(class_name, VolumePool(self._accessible)).put(volume)


def first_of_each(groups: IdColumn, count: int) -> RowColumn:
    """Indexes of the first `count` entries of each group, in no particular order."""
    if count == 1:
        return np.unique(groups, return_index=True)[1]
    order: RowColumn = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else order
    lengths = np.diff(np.r_[starts, len(ordered)])
    rank = np.arange(len(ordered)) - np.repeat(starts, lengths)
    return order[rank < count]


def _suits(offer: Offer, wanted: Offer) -> bool:
    return wanted.access_modes <= offer.access_modes and wanted[1:] == offer[1:]


def _ids(values: Sequence[int]) -> IdColumn:
    return np.array(values, dtype=np.int32)


# --- a volume for each row ----------------------------------------------------------------------

NO_VOLUME_CHOSEN: Final = -1


@dataclass(frozen=True, slots=True)
class StaticMatch:
    """Existing volumes for one claim."""

    claim: JsonObject
    volumes: Sequence[JsonObject]
    choice: IntColumn
    """(n,) int64, index into `volumes`; −1: none that the node can use."""


def claim_uid(claim: JsonObject) -> str:
    """The claim's uid; recorded cases leave it out and mean namespace/name."""
    return str(claim["metadata"].get("uid") or _claim_key(claim))


def match_volumes(
    objects: ObjectStore,
    pools: VolumePools,
    accessible: AccessibleNodesBySelector,
    nodes: NodeView,
    claims: Iterable[JsonObject],
) -> list[StaticMatch]:
    """An existing volume per claim and row, smallest claims first."""
    matches: list[StaticMatch] = []
    chosen: dict[str, list[IntColumn]] = {}
    for claim in sorted(claims, key=requested_storage):
        prebound = _prebound(objects, claim)
        if prebound is not None:
            matches.append(StaticMatch(claim, [prebound], _at_once(nodes, prebound)))
            continue
        class_name = storage_class_name(claim)
        pool, earlier = pools.pool(class_name), chosen.setdefault(class_name, [])
        eligible = pool.eligible(claim)
        accessible.refresh(nodes.snapshot)
        choice = _smallest(pool, nodes.snapshot.size, eligible, earlier)
        earlier.append(choice)
        matches.append(StaticMatch(claim, pool.volumes, nodes.gather(choice)))
    return matches


def _at_once(nodes: NodeView, volume: JsonObject) -> IntColumn:
    """(n,) int64, 0 where the node can use the only volume, else NO_VOLUME_CHOSEN."""
    selector = node_selector(volume)
    if selector is None:
        return np.zeros(len(nodes), np.int64)
    return np.where(matching_nodes(nodes, selector), 0, NO_VOLUME_CHOSEN)


def _smallest(
    pool: VolumePool, size: int, eligible: RowColumn, earlier: Sequence[IntColumn]
) -> IntColumn:
    """(N,) int64, the first eligible position that each row can use, or NO_VOLUME_CHOSEN.

    `earlier` are (N,) positions that claims before this one took of the same pool.
    """
    unmatched = len(pool.volumes)
    choice: IntColumn = np.full(size, unmatched, np.int64)
    # Earlier claims took at most one volume each: one more for the same nodes serves every row.
    candidates = eligible[first_of_each(pool.group[eligible], len(earlier) + 1)]
    groups = pool.group[candidates].tolist()
    rows, lengths = joined(pool.accessible[group] for group in groups)
    positions = np.repeat(candidates, lengths)
    for taken in earlier:
        free = taken[rows] != positions
        rows, positions = rows[free], positions[free]
    np.minimum.at(choice, rows, positions)
    choice[choice == unmatched] = NO_VOLUME_CHOSEN
    return choice


def _prebound(objects: ObjectStore, claim: JsonObject) -> JsonObject | None:
    """The volume that names the claim; nothing else is considered then."""
    wanted = offer_of(claim)
    for volume in objects.list_by("PersistentVolume", "claim", _claim_key(claim)):
        uid = volume["spec"]["claimRef"].get("uid")
        if (
            (not uid or uid == claim_uid(claim))
            and storage_class_name(volume) == storage_class_name(claim)
            and capacity_of(volume) >= requested_storage(claim)
            and offer_of(volume)[1:] == wanted[1:]
            and "deletionTimestamp" not in volume["metadata"]
        ):
            return volume
    return None


def _claim_key(claim: JsonObject) -> str:
    metadata = claim["metadata"]
    return f"{metadata.get('namespace') or ''}/{metadata['name']}"
