"""Volumes that wait for a claim, by class, as columns that follow the object store.

`matching` picks from them for every row at once; a class with a volume on each of 5,000
nodes costs no more than one with a volume per zone. Invariant: a pool's living positions are the
available volumes of its class, ascending by size and then by arrival.
"""

from bisect import bisect_left
from collections.abc import Sequence
from fractions import Fraction
from typing import Final, NamedTuple

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.quantity import parse_quantity
from stellwerk.models.selectors import NodeSelector, parse_label_selector
from stellwerk.models.volumes import storage_class_name
from stellwerk.plugins.volumes.reach import Reach, Reaches, node_selector
from stellwerk.snapshot.columns import ChangeCursor, IdColumn, Mask, RowColumn

_KIND: Final = "PersistentVolume"


class Offer(NamedTuple):
    """What a volume offers beside its size; few distinct ones exist."""

    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str


class _Traits(NamedTuple):
    """What of a volume the columns hold."""

    capacity: Fraction
    offer: Offer
    selector: NodeSelector | None


def capacity_of(volume: JsonObject) -> Fraction:
    """The size of a volume in bytes."""
    return parse_quantity((volume["spec"].get("capacity") or {}).get("storage") or "0")


def requested_storage(claim: JsonObject) -> Fraction:
    """What a claim asks for, in bytes."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage") or "0")


def offer_of(obj: JsonObject) -> Offer:
    """What a volume offers, or a claim wants."""
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

    def __init__(self, reaches: Reaches) -> None:
        self._every_reach = reaches
        self._traits: dict[str, _Traits] = {}
        self._waiting: dict[str, JsonObject] = {}
        """Volumes that have no position yet."""
        self._position: dict[str, int] = {}
        self.volumes: list[JsonObject] = []
        """(P,) the volume at each position."""
        self.reaches: list[Reach] = []
        """Where volumes can be used from; `group` indexes them."""
        self.group: IdColumn = np.zeros(0, np.int32)
        """(P,) int32, index into `reaches`."""
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
        self._offers, self.reaches = list(offers), [self._every_reach.of(own) for own in groups]


class VolumePools:
    """The pools of all classes."""

    def __init__(self, objects: ObjectStore, reaches: Reaches) -> None:
        self._objects = objects
        self._reaches = reaches
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
        return self._pools.get(class_name) or VolumePool(self._reaches)

    def _follow(self, name: str) -> None:
        volume = self._objects.get(_KIND, "", name)
        available = volume is not None and is_available(volume)
        class_name = storage_class_name(volume) if volume is not None and available else None
        before = self._class_of.pop(name, None)
        if before is not None and before != class_name:
            self._pools[before].remove(name)
        if class_name is not None and volume is not None:
            self._class_of[name] = class_name
            self._pools.setdefault(class_name, VolumePool(self._reaches)).put(volume)


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
