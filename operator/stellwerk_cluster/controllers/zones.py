"""The state of each zone, and the rate at which its nodes may be tainted NoExecute.

The node lifecycle controller counts nodes here. Invariant: while no node of the cluster is ready,
none is tainted: then it is the view from here that has failed, and not the nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

NODE_EVICTION_RATE: Final = 0.1
"""Nodes per second, of a zone where most nodes are ready, and of one where none is."""
SECONDARY_EVICTION_RATE: Final = 0.01
"""Nodes per second, of a large zone where many nodes are not ready."""
UNHEALTHY_ZONE_THRESHOLD: Final = 0.55
LARGE_ZONE_SIZE: Final = 50
"""In zones of up to so many nodes, none is tainted while many are not ready."""
_FEW: Final = 2


class ZoneState(Enum):
    """The health of a zone, by how many of its nodes are ready."""

    NORMAL = "Normal"
    PARTIAL_DISRUPTION = "PartialDisruption"
    FULL_DISRUPTION = "FullDisruption"


@dataclass(slots=True)
class Zone:
    """The nodes of one zone, and those that wait for their taint."""

    ready: set[str] = field(default_factory=set)
    unready: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)
    """Nodes in the order in which they will be tainted."""
    next_at: float = 0.0
    """When the next node may be tainted, monotonic."""

    @property
    def state(self) -> ZoneState:
        """The state of the zone (`ComputeZoneState`, v1.36)."""
        unready, total = len(self.unready), len(self.ready) + len(self.unready)
        if unready and unready == total:
            return ZoneState.FULL_DISRUPTION
        if unready > _FEW and unready / total >= UNHEALTHY_ZONE_THRESHOLD:
            return ZoneState.PARTIAL_DISRUPTION
        return ZoneState.NORMAL

    @property
    def rate(self) -> float:
        """Nodes that may be tainted per second, while not all zones are fully disrupted."""
        if self.state is not ZoneState.PARTIAL_DISRUPTION:
            return NODE_EVICTION_RATE
        large = len(self.ready) + len(self.unready) > LARGE_ZONE_SIZE
        return SECONDARY_EVICTION_RATE if large else 0.0


class Zones:
    """All zones by name."""

    def __init__(self) -> None:
        """Without any node."""
        self._zones: dict[str, Zone] = {}
        self._zone_of: dict[str, str] = {}

    def __getitem__(self, name: str) -> Zone:
        """The zone of that name."""
        return self._zones[name]

    def __contains__(self, node_name: object) -> bool:
        """Whether a node is counted."""
        return node_name in self._zone_of

    def names(self) -> list[str]:
        """The names of all zones that have nodes."""
        return list(self._zones)

    def put(self, node_name: str, zone_name: str, *, ready: bool) -> None:
        """Count a node, where it is and as it is now."""
        if self._zone_of.get(node_name, zone_name) != zone_name:
            self.drop(node_name)
        zone = self._zones.setdefault(zone_name, Zone())
        self._zone_of[node_name] = zone_name
        (zone.ready if ready else zone.unready).add(node_name)
        (zone.unready if ready else zone.ready).discard(node_name)
        if ready:
            zone.waiting.pop(node_name, None)

    def drop(self, node_name: str) -> None:
        """Count a node no longer."""
        zone_name = self._zone_of.pop(node_name, None)
        if zone_name is None:
            return
        zone = self._zones[zone_name]
        zone.ready.discard(node_name)
        zone.unready.discard(node_name)
        zone.waiting.pop(node_name, None)
        if not zone.ready and not zone.unready:
            del self._zones[zone_name]

    def zone_of(self, node_name: str) -> Zone:
        """The zone that a node is counted in."""
        return self._zones[self._zone_of[node_name]]

    @property
    def all_disrupted(self) -> bool:
        """Whether no node of any zone is ready."""
        return bool(self._zones) and not any(zone.ready for zone in self._zones.values())

    def next_node(self, zone_name: str, now: float) -> tuple[str | None, float | None]:
        """The node to taint now, and in how many seconds to ask again; None: on the next change."""
        zone = self._zones.get(zone_name)
        if zone is None or not zone.waiting or self.all_disrupted or not zone.rate:
            return None, None
        if now < zone.next_at:
            return None, zone.next_at - now
        node_name = next(iter(zone.waiting))
        del zone.waiting[node_name]
        zone.next_at = now + 1 / zone.rate
        return node_name, 1 / zone.rate
