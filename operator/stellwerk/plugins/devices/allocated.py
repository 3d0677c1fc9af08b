"""What claims hold of the devices: whole devices, and parts of devices that are shared.

Each DynamicResources instance has one, which follows the claims in the object store and what
Reserve keeps there until the API shows it. Invariant: after `refresh`, a device is in use if any
allocation that is stored or in flight holds it, whatever became of the claim otherwise;
`changed` names every device whose use may be another than before.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from stellwerk.framework.services import ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.quantity import parse_quantity
from stellwerk.models.resource_slice import DeviceKey, PoolKey
from stellwerk.plugins.devices.in_flight import KIND as IN_FLIGHT
from stellwerk.snapshot.columns import ChangeCursor, Changes

logger = logging.getLogger(__name__)

KIND: Final = "ResourceClaim"

ClaimKey: TypeAlias = tuple[str, str, str]
"""(kind in the store, namespace, name)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One device of an allocation."""

    device: DeviceKey
    consumed: Mapping[str, Fraction] | None
    """What it takes of a shared device; None: it has the device to itself."""


class Allocated:
    """Who holds what, as counts: two claims may hold one device where the API has let them."""

    def __init__(self, objects: ObjectStore) -> None:
        """Follow the claims of a store."""
        self._objects = objects
        self._cursors = {kind: ChangeCursor(objects.changes(kind)) for kind in (KIND, IN_FLIGHT)}
        self._held: dict[ClaimKey, tuple[Holding, ...]] = {}
        self.devices: dict[DeviceKey, int] = {}
        """By how many claims each whole device is held, at least one."""
        self.consumed: dict[DeviceKey, dict[str, Fraction]] = {}
        """What is consumed of the capacities of each shared device that is in use."""
        self.in_pool: dict[PoolKey, dict[DeviceKey, int]] = {}
        """The devices of each pool that are held, as a whole or in part, and how often."""
        self._sharing: dict[DeviceKey, int] = {}
        self.changes: Changes[DeviceKey] = Changes()
        """Devices whose use changed."""

    def refresh(self) -> None:
        """Take over what the store shows now."""
        for kind, cursor in self._cursors.items():
            if not cursor.current:
                for key in self._changed(kind, cursor):
                    self._replace((kind, *key), self._objects.get(kind, *key))

    def holds(self, key: DeviceKey) -> bool:
        """Whether anything holds the device, or a part of it."""
        return key in self.devices or key in self.consumed

    def holders(self) -> dict[DeviceKey, list[ClaimKey]]:
        """The claims that hold each device, as a whole or in part."""
        found: dict[DeviceKey, list[ClaimKey]] = {}
        for key, held in self._held.items():
            for holding in held:
                found.setdefault(holding.device, []).append(key)
        return found

    def _changed(
        self, kind: str, cursor: ChangeCursor[tuple[str, str]]
    ) -> Iterable[tuple[str, str]]:
        changed = cursor.advance()
        if changed is not None:
            return changed
        known = {(namespace, name) for of, namespace, name in self._held if of == kind}
        shown = {
            (obj["metadata"].get("namespace") or "", obj["metadata"]["name"])
            for obj in self._objects.list(kind)
        }
        return known | shown

    def _replace(self, key: ClaimKey, claim: JsonObject | None) -> None:
        before = self._held.pop(key, ())
        after = () if claim is None else _read(claim)
        if after:
            self._held[key] = after
        if before == after:
            return
        for holding in before:
            self._count(holding, -1)
        for holding in after:
            self._count(holding, 1)

    def _count(self, holding: Holding, change: int) -> None:
        device = holding.device
        self.changes.append(device)
        of_pool = self.in_pool.setdefault(device[:2], {})
        if not _add(of_pool, device, change) and not of_pool:
            del self.in_pool[device[:2]]
        if holding.consumed is None:
            _add(self.devices, device, change)
            return
        if not holding.consumed:
            return  # a share of a device without capacities takes its counters, and nothing else
        if not _add(self._sharing, device, change):
            del self.consumed[device]
            return
        consumed = self.consumed.setdefault(device, {})
        for name, amount in holding.consumed.items():
            consumed[name] = consumed.get(name, Fraction(0)) + change * amount


def _add(counts: dict[DeviceKey, int], device: DeviceKey, change: int) -> int:
    """Count up or down; an entry of 0 is removed."""
    count = counts[device] = counts.get(device, 0) + change
    if not count:
        del counts[device]
    return count


def _read(claim: JsonObject) -> tuple[Holding, ...]:
    """What a claim holds; of a malformed one nothing."""
    try:
        return tuple(holdings(claim))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        name = claim["metadata"]["name"]
        logger.warning("the allocation of ResourceClaim %s is not counted: %r", name, error)
        return ()


def holdings(claim: JsonObject) -> Iterator[Holding]:
    """The devices that a claim's allocation takes; those with adminAccess it only looks at."""
    allocation = (claim.get("status") or {}).get("allocation")
    if not allocation:
        return
    for result in (allocation.get("devices") or {}).get("results") or ():
        if result.get("adminAccess"):
            continue
        device = (result["driver"], result["pool"], result["device"])
        if not result.get("shareID"):
            yield Holding(device, None)
        else:
            consumed = result.get("consumedCapacity") or {}
            amounts = {name: parse_quantity(amount) for name, amount in consumed.items()}
            yield Holding(device, amounts)
