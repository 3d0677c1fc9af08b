"""The devices that claims hold: whole devices, and parts of devices that are shared.

Each DynamicResources instance has one, which follows the claims in the object store and what
Reserve keeps there until the API shows it. Invariant: after `refresh`, a device is in use if any
allocation that is stored or in flight holds it, whatever became of the claim otherwise;
`changed` names every device whose use may be another than before.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, TypeAlias

from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.snapshot.columns import ChangeCursor, Changes
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import parse_quantity
from stellwerk_kube.resource_slice import DeviceKey, PoolKey

logger = logging.getLogger(__name__)

ALLOCATION_IN_FLIGHT: Final = "AllocationInFlight"
"""A kind that only this module stores."""


@dataclass(slots=True)
class InFlightAllocations:
    """Allocations between Reserve and the moment in which the API shows them, in one store.

    From Reserve on, a device is marked here or shown as allocated in the store, without a moment
    between the two, until it is given back.
    """

    objects: ObjectStore
    _cursor: ChangeCursor[tuple[str, str]] = field(init=False)

    def __post_init__(self) -> None:
        self._cursor = ChangeCursor(self.objects.changes(RESOURCE_CLAIM))

    def mark(
        self,
        uid: str,
        namespace: str,
        allocation: JsonObject,
        group: PodGroupKey | None = None,
    ) -> None:
        """An allocation is decided for the claim of this uid; members of the group may join it."""
        self.objects.hold(
            ALLOCATION_IN_FLIGHT,
            {
                "metadata": {"namespace": namespace, "name": uid},
                "status": {"allocation": allocation},
                "group": group,
                "joined": (),
            },
        )

    def shared_with(self, uid: str, namespace: str, group: PodGroupKey | None) -> JsonObject | None:
        """The allocation in flight that a member of the group may join; None: there is none."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        if mark is None or group is None or mark.get("group") != group:
            return None
        allocation: JsonObject = mark["status"]["allocation"]
        return allocation

    def join(self, uid: str, namespace: str, consumer: JsonObject) -> None:
        """Another pod uses the claim, too, and is reserved with the first one."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        if mark is not None:
            self.objects.hold(
                ALLOCATION_IN_FLIGHT, {**mark, "joined": (*mark.get("joined", ()), consumer)}
            )

    def leave(self, uid: str, namespace: str, consumer: JsonObject) -> None:
        """It does not, after all; idempotent."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        if mark is not None:
            joined = tuple(each for each in mark.get("joined", ()) if each != consumer)
            self.objects.hold(ALLOCATION_IN_FLIGHT, {**mark, "joined": joined})

    def joined(self, uid: str, namespace: str) -> Sequence[JsonObject]:
        """The pods that use the claim beside the one that it was decided for."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        return () if mark is None else mark.get("joined", ())

    def stored(self, uid: str, namespace: str) -> JsonObject | None:
        """The claim as the API has it with what was in flight; None: it has not."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        return None if mark is None else mark.get("written")

    def has(self, uid: str, namespace: str) -> bool:
        """Whether an allocation of the claim is in flight."""
        return self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid) is not None

    def written(self, uid: str, namespace: str, claim: JsonObject) -> None:
        """The API has the allocation; the mark stays until the watch shows that."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        if mark is None:
            return
        metadata = claim["metadata"]
        self.objects.hold(ALLOCATION_IN_FLIGHT, {**mark, "written": claim, "doubtful": False})
        shown = self.objects.get(RESOURCE_CLAIM, namespace, metadata["name"])
        # A claim that was there when it was decided, and is not now, has been deleted since.
        deleted = shown is None and metadata.get("uid") == uid
        if deleted or (shown is not None and _overtakes(shown, claim)):
            self.forget(uid, namespace)

    def doubt(self, uid: str, namespace: str, *, doubtful: bool = True) -> None:
        """Whether the API has the allocation is not known, or it is known that it has not."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        if mark is not None:
            self.objects.hold(ALLOCATION_IN_FLIGHT, {**mark, "doubtful": doubtful})

    def is_in_doubt(self, uid: str, namespace: str) -> bool:
        """Whether it is not known if the API has the allocation."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        return mark is not None and bool(mark.get("doubtful"))

    def may_be_in_api(self, uid: str, namespace: str) -> bool:
        """Whether the API has the allocation, or may have it, and has not shown it."""
        mark = self.objects.get(ALLOCATION_IN_FLIGHT, namespace, uid)
        return mark is not None and ("written" in mark or bool(mark.get("doubtful")))

    def awaits(self, name: str, namespace: str) -> bool:
        """Whether the watch has yet to show what was written to the claim of this name."""
        # No decision on a pod with claims may have looked since it was shown, and perhaps went.
        self.settle()
        return any(
            mark["written"]["metadata"]["name"] == name
            and mark["metadata"]["namespace"] == namespace
            for mark in self._written()
        )

    def forget(self, uid: str, namespace: str) -> None:
        """The allocation is given back, or shown; idempotent."""
        self.objects.let_go(
            ALLOCATION_IN_FLIGHT, {"metadata": {"namespace": namespace, "name": uid}}
        )

    def settle(self) -> None:
        """Forget the marks of what the API has shown since."""
        if self._cursor.current:
            return
        changed = self._cursor.advance()
        for mark in self._written():
            claim = mark["written"]["metadata"]
            key = (claim.get("namespace") or "", claim["name"])
            shown = self.objects.get(RESOURCE_CLAIM, *key)
            # What changed and is gone was shown and deleted, perhaps both since the last look.
            gone = shown is None and (changed is None or key in changed)
            if gone or (shown is not None and _overtakes(shown, mark["written"])):
                self.forget(mark["metadata"]["name"], mark["metadata"]["namespace"])

    def _written(self) -> Sequence[JsonObject]:
        return [mark for mark in self.objects.list(ALLOCATION_IN_FLIGHT) if "written" in mark]


def _overtakes(shown: JsonObject, written: JsonObject) -> bool:
    """Whether the store shows what was written, or something later."""
    if shown["metadata"].get("uid") != written["metadata"].get("uid"):
        return True
    return _version(shown) >= _version(written)


def _version(claim: Mapping[str, JsonObject]) -> int:
    """The resourceVersion, which the API lets clients compare; 0: it is none of ours."""
    version = str(claim["metadata"].get("resourceVersion") or "")
    return int(version) if version.isdecimal() else 0


ClaimKey: TypeAlias = tuple[str, str, str]
"""(kind in the store, namespace, name)."""


@dataclass(frozen=True, slots=True)
class Holding:
    """One device of an allocation."""

    device: DeviceKey
    consumed: Mapping[str, Fraction] | None
    """The part that it takes of a shared device; None: it has the device to itself."""


class Allocated:
    """The holders of devices as counts: two claims may hold one where the API has let them."""

    def __init__(self, objects: ObjectStore) -> None:
        """Follow the claims of a store."""
        self._objects = objects
        self._cursors = {
            kind: ChangeCursor(objects.changes(kind))
            for kind in (RESOURCE_CLAIM, ALLOCATION_IN_FLIGHT)
        }
        self._held: dict[ClaimKey, tuple[Holding, ...]] = {}
        self.devices: dict[DeviceKey, int] = {}
        """By how many claims each whole device is held, at least one."""
        self.consumed: dict[DeviceKey, dict[str, Fraction]] = {}
        """The part consumed of the capacities of each shared device that is in use."""
        self.in_pool: dict[PoolKey, dict[DeviceKey, int]] = {}
        """The devices of each pool that are held, as a whole or in part, and how often."""
        self.shared: dict[DeviceKey, int] = {}
        """The number of shares that claims hold of each device, also those of no capacity."""
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
        _add(self.shared, device, change)
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
    """The devices that a claim holds; of a malformed one none."""
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
