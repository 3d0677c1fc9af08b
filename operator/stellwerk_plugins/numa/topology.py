"""NodeResourceTopology objects, parsed: the zones of a node and what is available in each.

Invariant: parsing raises nothing; what makes no sense is left out and named in `faults`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from stellwerk.plugin_api import JsonObject, exact_amount

KIND: Final = "NodeResourceTopology"
SINGLE_NUMA_NODE: Final = "single-numa-node"
POD: Final = "pod"
CONTAINER: Final = "container"
ZONE_NUMBERS: Final = 64
"""Zones are numbered below this."""
UNKNOWN_DISTANCE: Final = 255
_LARGEST_DISTANCE: Final = 1 << 31
DEFAULT_MOST_ZONES: Final = 8
_LARGEST_MOST_ZONES: Final = 1024
_MAX_ZONES: Final = 256
"""Zones of one object that are read; a fault says if there are more. So are resources of a zone."""
_MAX_RESOURCES: Final = 256
_MAX_COSTS: Final = 256
"""Distances of a zone to others. Further ones are not read, and neither are further attributes."""
_MAX_ATTRIBUTES: Final = 256
_MAX_FAULTS: Final = 8
"""Faults of one object that a condition names."""
_ZONE_NAME: Final = re.compile(r"node-([0-9]{1,9})")
_POLICIES: Final = frozenset({"none", "best-effort", "restricted", SINGLE_NUMA_NODE})
_SCOPES: Final = frozenset({CONTAINER, POD})
_FINGERPRINT_ANNOTATION: Final = "topology.node.k8s.io/fingerprint"
_OLD: Final[Mapping[str, tuple[str, str]]] = {
    "SingleNUMANodePodLevel": (SINGLE_NUMA_NODE, POD),
    "SingleNUMANodeContainerLevel": (SINGLE_NUMA_NODE, CONTAINER),
    "BestEffortPodLevel": ("best-effort", POD),
    "BestEffortContainerLevel": ("best-effort", CONTAINER),
    "RestrictedPodLevel": ("restricted", POD),
    "RestrictedContainerLevel": ("restricted", CONTAINER),
}
"""Values of the deprecated field topologyPolicies."""


@dataclass(frozen=True, slots=True)
class Zone:
    """A NUMA zone."""

    number: int
    available: Mapping[str, int]
    """Billionths by resource; what the zone does not report is not there."""
    distances: Mapping[int, int]
    """By the number of the other zone."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The zones of a node, and how its kubelet aligns pods to them."""

    zones: tuple[Zone, ...] = ()
    """By number, each number once."""
    policy: str = "none"
    scope: str = CONTAINER
    most_zones: int = DEFAULT_MOST_ZONES
    fingerprint: str = ""
    """The fingerprint of the pods that were there when it was written; empty: it does not say."""
    fingerprint_method: str = ""
    faults: tuple[str, ...] = field(default=(), compare=False)

    @property
    def distances(self) -> tuple[tuple[int, ...], ...]:
        """From each zone to each, by position."""
        return tuple(
            tuple(zone.distances.get(other.number, UNKNOWN_DISTANCE) for other in self.zones)
            for zone in self.zones
        )

    def reports(self, resource: str) -> bool:
        """Whether some zone has an amount of a resource."""
        return any(resource in zone.available for zone in self.zones)


def parse_topology(obj: JsonObject) -> Topology:
    """A topology.node.k8s.io/v1alpha2 NodeResourceTopology."""
    faults: list[str] = []
    zones: dict[int, Zone] = {}
    for zone in _parsed_zones(obj.get("zones"), faults):
        if zone.number in zones:
            faults.append(f"zone node-{zone.number} is there twice: the first counts")
        else:
            zones[zone.number] = zone
    policy, scope = _OLD.get(_first(obj.get("topologyPolicies")), ("none", CONTAINER))
    most_zones, fingerprint, method = DEFAULT_MOST_ZONES, "", ""
    for name, value in _attributes(obj.get("attributes")):
        if name == "topologyManagerPolicy" and value in _POLICIES:
            policy = value
        elif name == "topologyManagerScope" and value in _SCOPES:
            scope = value
        elif name == "topologyManagerMaxNUMANodes" and re.fullmatch(r"[+]?[0-9]{1,18}", value):
            most_zones = min(int(value), _LARGEST_MOST_ZONES) if int(value) > 1 else most_zones
        elif name == "nodeTopologyPodsFingerprint":
            fingerprint = value
        elif name == "nodeTopologyPodsFingerprintMethod":
            method = value
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    fingerprint = fingerprint or str(annotations.get(_FINGERPRINT_ANNOTATION) or "")
    ordered = tuple(zones[number] for number in sorted(zones))
    return Topology(
        ordered, policy, scope, most_zones, fingerprint, method, tuple(faults[:_MAX_FAULTS])
    )


def _first(policies: object) -> str:
    return str(policies[0]) if isinstance(policies, list) and policies else ""


def _attributes(attributes: object) -> Iterator[tuple[str, str]]:
    for each in attributes[:_MAX_ATTRIBUTES] if isinstance(attributes, list) else ():
        if isinstance(each, dict):
            yield str(each.get("name") or ""), str(each.get("value") or "")


def _parsed_zones(zones: object, faults: list[str]) -> Iterator[Zone]:
    listed = zones if isinstance(zones, list) else []
    if len(listed) > _MAX_ZONES:
        faults.append(f"of {len(listed)} zones only the first {_MAX_ZONES} count")
    for each in listed[:_MAX_ZONES]:
        if not isinstance(each, dict) or each.get("type") != "Node":
            continue
        name = str(each.get("name") or "")
        match = _ZONE_NAME.fullmatch(name)
        if match is None or int(match[1]) >= ZONE_NUMBERS:
            faults.append(f"zone {name[:32]!r} is ignored: its name is not node-0 to node-63")
            continue
        yield Zone(int(match[1]), _available(each, faults), _distances(each.get("costs"), faults))


@lru_cache(maxsize=4096)
def _amount(text: str | float) -> int:
    """Billionths; exporters write the same few amounts again and again."""
    return exact_amount(text)


def _available(zone: Mapping[str, Any], faults: list[str]) -> dict[str, int]:
    available: dict[str, int] = {}
    resources = zone.get("resources")
    listed = resources if isinstance(resources, list) else []
    if len(listed) > _MAX_RESOURCES:
        faults.append(f"of zone {zone['name']} only the first {_MAX_RESOURCES} resources count")
    for each in listed[:_MAX_RESOURCES]:
        try:
            name, amount = str(each["name"]), _amount(each["available"])
        except (KeyError, TypeError, ValueError, AttributeError):
            faults.append(f"a resource of zone {zone.get('name')} is ignored: it has no amount")
            continue
        if amount < 0:
            faults.append(f"{name[:64]} of zone {zone.get('name')} is below 0: it counts as 0")
        available[name] = max(0, amount)
    return available


def _distances(costs: object, faults: list[str]) -> dict[int, int]:
    distances: dict[int, int] = {}
    for each in costs[:_MAX_COSTS] if isinstance(costs, list) else ():
        name, value = (
            (each.get("name"), each.get("value")) if isinstance(each, dict) else (None, None)
        )
        match = _ZONE_NAME.fullmatch(str(name))
        if match is None or not isinstance(value, int) or not 0 <= value <= _LARGEST_DISTANCE:
            faults.append(
                f"a cost is ignored: it names no zone, or is not from 0 to {_LARGEST_DISTANCE}"
            )
        else:
            distances[int(match[1])] = value
    return distances
