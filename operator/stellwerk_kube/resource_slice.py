"""ResourceSlices as the allocator reads them, and as the object store keeps them.

Drivers publish thousands of devices that differ in a serial number alone. So a slice is kept as
columns: what devices have beside name and attributes is a `Traits` that all equal devices share,
and each attribute is a `Listing` that all equal slices share. Invariant: a parsed slice is
immutable, and two columns are equal if, and only if, they are the same object.
"""

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import orjson

from stellwerk_kube.device_capacity import Capacity, parse_capacities
from stellwerk_kube.json_values import (
    JsonObject,
    packed,
    text,
    text_or_empty,
    texts,
    whole_number,
)
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.selectors import NodeSelector, parse_node_selector
from stellwerk_kube.taints import Taint

logger = logging.getLogger(__name__)

DeviceKey: TypeAlias = tuple[str, str, str]
"""(driver, pool, device): what names a device in the cluster."""
PoolKey: TypeAlias = tuple[str, str]
"""(driver, pool)."""
Counters: TypeAlias = Mapping[str, Fraction]
Attribute: TypeAlias = str | int | tuple[str, str | bool | tuple[str | int | bool, ...]]
"""A text or a number; a version, a bool or a list is a pair with its kind, for True equals 1."""

UNSUPPORTED: Final = ("unsupported", "")
"""An attribute of a kind that is not known."""
Item = TypeVar("Item")
_LISTS: Final[Mapping[str, Callable[[Any], str | int | bool]]] = {
    "strings": text,
    "ints": whole_number,
    "bools": bool,
    "versions": text,
}
"""The kinds of lists, with what reads an entry."""

PARSED: Final = "slice"
"""The key of the parsed slice in what the object store keeps."""
_FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})
_BESIDE_TRAITS: Final = frozenset({"name", "attributes"})
_SPARSE: Final = 4
"""A column of which fewer than one in so many devices has a value is kept as a table."""


@dataclass(frozen=True, slots=True)
class Reach:
    """The nodes that a slice or device is for."""

    node_name: str
    all_nodes: bool
    selector: NodeSelector | None
    written_selector: JsonObject | None
    """The selector as the slice has it, which allocations quote."""

    def includes(self, node: NodeInfo) -> bool:
        """Whether the node is one of them."""
        if self.node_name:
            return node.name == self.node_name
        if self.all_nodes or self.selector is None:
            return self.all_nodes
        return self.selector.matches(node.labels, node.name)

    @property
    def given(self) -> bool:
        """Whether it says anything."""
        return bool(self.node_name) or self.all_nodes or self.selector is not None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Traits:
    """All of a device but its name and attributes."""

    written_capacity: Mapping[str, JsonObject]
    capacities: Mapping[str, Capacity]
    shareable: bool
    """allowMultipleAllocations."""
    reach: Reach
    """The reach that the device itself states; it counts where the slice leaves that to its
    devices."""
    taints: tuple[Taint, ...]
    """Those that keep claims away which do not tolerate them."""
    consumes: tuple[tuple[str, Counters], ...]
    """(counter set, what the device takes of each counter)."""
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Listing(Generic[Item]):
    """One thing of all devices of a slice, in their order."""

    values: tuple[Item, ...]
    places: Mapping[int, int] | None = None
    """The place of a device's value by its position, where few devices have the attribute."""

    def at(self, position: int) -> Item | None:
        """The value of a device; None: it has none."""
        if self.places is None:
            return self.values[position]
        place = self.places.get(position)
        return None if place is None else self.values[place]


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """One ResourceSlice."""

    name: str
    pool: PoolKey
    generation: int
    slice_count: int
    """The number of slices of the pool in this generation."""
    reach: Reach
    per_device: bool
    """Each of its devices says for which nodes it is."""
    counter_sets: tuple[tuple[str, Counters], ...]
    names: Listing[str]
    """The names of its devices."""
    traits: Listing[Traits]
    """The traits of its devices."""
    columns: Mapping[str, Listing[Attribute | None]]
    """By the name of an attribute, as the slice has it."""
    grouped: bool = False
    """Some of its devices are in compatibility groups, which are not observed here: the pool counts
    as incomplete, as where kube-scheduler's gate DRADeviceCompatibilityGroups is off."""

    @property
    def local(self) -> bool:
        """Whether it is for one node, which it names."""
        return bool(self.reach.node_name)

    def includes(self, node: NodeInfo) -> bool:
        """Whether it is for a node."""
        return any(reach.includes(node) for reach in self.reaches)

    @property
    def reaches(self) -> Iterable[Reach]:
        """The nodes that it is for: all that any of these includes."""
        if self.reach.given or not self.per_device:
            return (self.reach,)
        return [each.reach for each in dict.fromkeys(self.traits.values)]

    def devices(self) -> "Iterator[Device]":
        """Its devices in order."""
        driver, pool = self.pool
        for position, name in enumerate(self.names.values):
            yield Device((driver, pool, name), self.traits.values[position], self, position)


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of a slice."""

    key: DeviceKey
    traits: Traits
    source: Slice
    position: int
    """In the slice."""

    @property
    def driver(self) -> str:
        """The name of the device's driver."""
        return self.key[0]

    @property
    def reach(self) -> Reach:
        """Its nodes, if the slice leaves them to its devices; else those of the slice."""
        return self.traits.reach if self.source.per_device else self.source.reach

    def attribute(self, name: str) -> Attribute | None:
        """The attribute that the slice calls so."""
        column = self.source.columns.get(name)
        return None if column is None else column.at(self.position)

    @property
    def attributes(self) -> dict[str, Attribute]:
        """All attributes by the names that the slice gives them."""
        found = {name: column.at(self.position) for name, column in self.source.columns.items()}
        return {name: value for name, value in found.items() if value is not None}


_TRAITS: Final[WeakValueDictionary[bytes, Traits]] = WeakValueDictionary()
_TAINTED: Final[WeakValueDictionary[tuple[Traits, tuple[Taint, ...]], Traits]] = (
    WeakValueDictionary()
)
"""By the traits that a slice states and the taints that rules add."""
_LISTINGS: Final[WeakValueDictionary[Hashable, Listing[Any]]] = WeakValueDictionary()


def kept_slice(obj: JsonObject) -> JsonObject:
    """The part of a ResourceSlice that the object store keeps: its names and the parsed slice.

    A malformed slice is kept without, and is as good as absent.
    """
    if isinstance(obj.get(PARSED), Slice):
        # It was made here, for a node that is supposed.
        return obj
    metadata = obj["metadata"]
    kept = {key: metadata[key] for key in ("name", "uid", "resourceVersion") if key in metadata}
    try:
        parsed = parse_slice(obj)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        shown = f"{type(error).__name__}: {error}"
        logger.warning("ResourceSlice %s is left out: %.200s", metadata["name"], shown)
        return {"metadata": kept, PARSED: None}
    return {"metadata": kept, PARSED: parsed}


def parse_slice(obj: JsonObject) -> Slice:
    """Parse a ResourceSlice.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj["spec"]
    pool = spec["pool"]
    devices = spec.get("devices") or ()
    return Slice(
        name=text(obj["metadata"]["name"]),
        pool=(text(spec["driver"]), text(pool["name"])),
        generation=whole_number(pool.get("generation") or 0),
        slice_count=whole_number(pool["resourceSliceCount"]),
        reach=_reach(spec),
        per_device=bool(spec.get("perDeviceNodeSelection")),
        counter_sets=tuple(
            (text(each["name"]), _counters(each)) for each in spec.get("sharedCounters") or ()
        ),
        names=_listing(tuple([text(each["name"]) for each in devices])),
        traits=_listing(tuple([_traits_of(each) for each in devices])),
        columns=_columns(devices),
        grouped=any(
            consumed.get("compatibilityGroups")
            for each in devices
            for consumed in each.get("consumesCounters") or ()
        ),
    )


# --- taints of rules ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A DeviceTaintRule: a taint for every device that its selector names."""

    driver: str
    pool: str
    device: str
    """Each of the three is empty where the selector leaves it open; an empty selector selects every
    device."""
    taint: Taint
    added: str = ""
    """taint.timeAdded, as written."""
    has_selector: bool = True
    """An absent one selects nothing, or every device up to v1.37.0, as in the tracker there."""

    def may_select(self, pool: PoolKey) -> bool:
        """Whether devices of a pool may be selected."""
        return self.driver in {"", pool[0]} and self.pool in {"", pool[1]}

    def selects(self, key: DeviceKey) -> bool:
        """Whether a device is selected."""
        return self.may_select(key[:2]) and self.device in {"", key[2]}


def parse_taint_rule(obj: JsonObject) -> TaintRule:
    """Parse a DeviceTaintRule of any version.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj["spec"]
    written, taint = spec.get("deviceSelector"), spec["taint"]
    selector = written or {}
    return TaintRule(
        driver=text_or_empty(selector.get("driver")),
        pool=text_or_empty(selector.get("pool")),
        device=text_or_empty(selector.get("device")),
        taint=Taint(text(taint["key"]), text_or_empty(taint.get("value")), text(taint["effect"])),
        added=text_or_empty(taint.get("timeAdded")),
        has_selector=written is not None,
    )


def tainted_slice(each: Slice, rules: Iterable[TaintRule]) -> Slice:
    """The slice with the taints that rules add to those of its devices.

    Equal devices that get the same taints are equal still.
    """
    forbidding = [rule for rule in rules if rule.taint.effect in _FORBIDDING]
    found: list[Traits] = []
    for name, traits in zip(each.names.values, each.traits.values, strict=True):
        added = tuple([rule.taint for rule in forbidding if rule.selects((*each.pool, name))])
        found.append(_tainted(traits, added) if added else traits)
    return replace(each, traits=_listing(tuple(found)))


def _tainted(traits: Traits, added: tuple[Taint, ...]) -> Traits:
    key = traits, added
    found = _TAINTED.get(key)
    if found is None:
        found = _TAINTED[key] = replace(traits, taints=(*traits.taints, *added))
    return found


# --- parsing ------------------------------------------------------------------------------------


def _columns(devices: Sequence[JsonObject]) -> dict[str, Listing[Attribute | None]]:
    found: dict[str, dict[int, Attribute]] = {}
    for position, device in enumerate(devices):
        for name, written in (device.get("attributes") or {}).items():
            found.setdefault(name, {})[position] = _attribute(written)
    return {name: _column(values, len(devices)) for name, values in found.items()}


def _column(values: Mapping[int, Attribute], size: int) -> Listing[Attribute | None]:
    if len(values) * _SPARSE >= size:
        return _listing(tuple([values.get(position) for position in range(size)]))
    key = size, *values.items()
    found = _LISTINGS.get(key)
    if found is None:
        places = {position: place for place, position in enumerate(values)}
        found = _LISTINGS[key] = Listing(tuple(values.values()), places)
    return found


def _listing(values: tuple[Item, ...]) -> Listing[Item]:
    """The one listing of these values."""
    found = _LISTINGS.get(values)
    if found is None:
        found = _LISTINGS[values] = Listing(values)
    return found


def _attribute(written: JsonObject) -> Attribute:
    """The value of the one field that is set; of a field that is not known, only that it is."""
    for kind, value in written.items():
        if kind == "string":
            return text(value)
        if kind == "int":
            return whole_number(value)
        if kind == "version":
            return kind, text(value)
        if kind == "bool":
            return kind, bool(value)
        if kind in _LISTS:
            return kind, tuple([_LISTS[kind](each) for each in value])
    return UNSUPPORTED


def _traits_of(device: JsonObject) -> Traits:
    """The one object for all devices that have the same."""
    rest = {name: value for name, value in device.items() if name not in _BESIDE_TRAITS}
    key = orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)
    found = _TRAITS.get(key)
    if found is None:
        found = _TRAITS[packed(key)] = _traits(rest)
    return found


def _traits(obj: JsonObject) -> Traits:
    capacity = obj.get("capacity") or {}
    return Traits(
        written_capacity=capacity,
        capacities=parse_capacities(capacity) if capacity else {},
        shareable=bool(obj.get("allowMultipleAllocations")),
        reach=_reach(obj),
        taints=_taints(obj.get("taints") or ()),
        consumes=tuple(
            (text(each["counterSet"]), _counters(each))
            for each in obj.get("consumesCounters") or ()
        ),
        binds_to_node=bool(obj.get("bindsToNode")),
        binding_conditions=texts(obj.get("bindingConditions")),
        binding_failure_conditions=texts(obj.get("bindingFailureConditions")),
    )


def _reach(obj: JsonObject) -> Reach:
    written = obj.get("nodeSelector")
    return Reach(
        text_or_empty(obj.get("nodeName")),
        bool(obj.get("allNodes")),
        parse_node_selector(written),
        written,
    )


def _counters(obj: JsonObject) -> Counters:
    return {name: parse_quantity(each["value"]) for name, each in obj["counters"].items()}


def _taints(taints: Sequence[JsonObject]) -> tuple[Taint, ...]:
    return tuple(
        Taint(text(each["key"]), text_or_empty(each.get("value")), each["effect"])
        for each in taints
        if each.get("effect") in _FORBIDDING
    )
