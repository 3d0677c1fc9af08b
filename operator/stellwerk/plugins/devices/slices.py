"""ResourceSlices as the allocator reads them: parsed once per version, compared by identity.

`inventory` parses every slice that the cluster shows. Invariant: a parsed slice is immutable, so
that whatever was found out about one of its devices holds for as long as the slice is shown.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from stellwerk.models.json_values import JsonObject, text, text_or_empty, texts, whole_number
from stellwerk.models.node import NodeInfo
from stellwerk.models.quantity import parse_quantity
from stellwerk.models.selectors import NodeSelector, parse_node_selector
from stellwerk.models.taints import Taint
from stellwerk.plugins.devices.capacity import Capacity, parse_capacities

DeviceKey: TypeAlias = tuple[str, str, str]
"""(driver, pool, device): what names a device in the cluster."""
PoolKey: TypeAlias = tuple[str, str]
"""(driver, pool)."""
Counters: TypeAlias = Mapping[str, Fraction]
_FORBIDDING: Final = frozenset({"NoSchedule", "NoExecute"})


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


@dataclass(frozen=True, slots=True, eq=False)
class Device:
    """One device of a slice."""

    key: DeviceKey
    attributes: Mapping[str, JsonObject]
    """As in the slice: name → the one field that holds the value."""
    written_capacity: Mapping[str, JsonObject]
    capacities: Mapping[str, Capacity]
    shareable: bool
    """allowMultipleAllocations."""
    reach: Reach
    """Where the device is, if the slice leaves that to its devices; else where the slice is."""
    taints: tuple[Taint, ...]
    """Those that keep claims away which do not tolerate them."""
    consumes: tuple[tuple[str, Counters], ...]
    """(counter set, what the device takes of each counter)."""
    binds_to_node: bool
    binding_conditions: tuple[str, ...]
    binding_failure_conditions: tuple[str, ...]

    @property
    def driver(self) -> str:
        """Whose device it is."""
        return self.key[0]


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """One ResourceSlice."""

    name: str
    pool: PoolKey
    generation: int
    slice_count: int
    """How many slices the pool has in this generation."""
    reach: Reach
    per_device: bool
    """Each of its devices says for which nodes it is."""
    counter_sets: tuple[tuple[str, Counters], ...]
    devices: tuple[Device, ...]

    @property
    def local(self) -> bool:
        """Whether it is for one node, which it names."""
        return bool(self.reach.node_name)

    def includes(self, node: NodeInfo) -> bool:
        """Whether it is for a node."""
        if self.reach.given:
            return self.reach.includes(node)
        return self.per_device and any(each.reach.includes(node) for each in self.devices)


def parse_slice(obj: JsonObject) -> Slice:
    """Parse a ResourceSlice.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: the object is malformed.
    """
    spec = obj["spec"]
    pool = spec["pool"]
    key = (sys.intern(text(spec["driver"])), sys.intern(text(pool["name"])))
    per_device, reach = bool(spec.get("perDeviceNodeSelection")), _reach(spec)
    return Slice(
        name=text(obj["metadata"]["name"]),
        pool=key,
        generation=whole_number(pool.get("generation") or 0),
        slice_count=whole_number(pool["resourceSliceCount"]),
        reach=reach,
        per_device=per_device,
        counter_sets=tuple(
            (text(each["name"]), _counters(each)) for each in spec.get("sharedCounters") or ()
        ),
        devices=tuple(
            _device(each, key, _reach(each) if per_device else reach)
            for each in spec.get("devices") or ()
        ),
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


def _device(obj: JsonObject, pool: PoolKey, reach: Reach) -> Device:
    capacity = obj.get("capacity") or {}
    return Device(
        key=(*pool, text(obj["name"])),
        attributes=obj.get("attributes") or {},
        written_capacity=capacity,
        capacities=parse_capacities(capacity) if capacity else {},
        shareable=bool(obj.get("allowMultipleAllocations")),
        reach=reach,
        taints=_taints(obj.get("taints") or ()),
        consumes=tuple(
            (text(each["counterSet"]), _counters(each))
            for each in obj.get("consumesCounters") or ()
        ),
        binds_to_node=bool(obj.get("bindsToNode")),
        binding_conditions=texts(obj.get("bindingConditions")),
        binding_failure_conditions=texts(obj.get("bindingFailureConditions")),
    )


def _taints(taints: Sequence[JsonObject]) -> tuple[Taint, ...]:
    return tuple(
        Taint(text(each["key"]), text_or_empty(each.get("value")), each["effect"])
        for each in taints
        if each.get("effect") in _FORBIDDING
    )
