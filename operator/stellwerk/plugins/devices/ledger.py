"""What one search has taken so far: devices, capacity, counters.

`search` takes devices and gives them back. Invariant: nothing is ever given out beyond what is
there; what v1.36 does not give back in a search (the counters of a device that a taint or a
constraint then refuses, and those of shared devices) stays taken until the search ends.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stellwerk.models.device_capacity import Amounts, consumption, fits
from stellwerk.models.resource_slice import Device, Slice
from stellwerk.plugins.devices.allocated import Allocated
from stellwerk.plugins.devices.pools import Pool

_NOTHING: Mapping[str, Fraction] = {}


@dataclass(slots=True)
class Ledger:
    """Devices, capacity and counters during one search on one node."""

    allocated: Allocated
    _taken: dict[Device, set[int]] = field(default_factory=dict)
    """The claims of this search that take each device, by their number."""
    _consumed: dict[Device, dict[str, Fraction]] = field(default_factory=dict)
    """What this search takes of shared devices."""
    _available: dict[Pool, dict[tuple[str, str], Fraction]] = field(default_factory=dict)
    _counted: dict[Pool, dict[tuple[str, str], Fraction]] = field(default_factory=dict)

    # --- whole devices --------------------------------------------------------------------------

    def in_use(self, device: Device) -> bool:
        """Whether a claim has the device to itself, or gets it in this search."""
        return device.key in self.allocated.devices or bool(self._taken.get(device))

    def taken_for(self, device: Device, claim: int) -> bool:
        """Whether that claim takes the device in this search."""
        return claim in self._taken.get(device, ())

    # --- capacity -------------------------------------------------------------------------------

    def has_room(self, device: Device, requested: Amounts) -> bool:
        """Whether the device has so much capacity left, and its policy allows to ask for it."""
        if not device.traits.capacities:
            return not requested
        taken = consumption(device.traits.capacities, requested)
        if taken is None:
            return False
        already = self.allocated.consumed.get(device.key, _NOTHING)
        return fits(
            device.traits.capacities, taken, (already, self._consumed.get(device, _NOTHING))
        )

    # --- counters -------------------------------------------------------------------------------

    def counts(self, device: Device, pool: Pool) -> bool:
        """Whether the pool's counters allow the device; then they are counted.

        A shared device that is in use has been counted before.
        """
        if not device.traits.consumes:
            return True
        if device.traits.shareable and (
            device.key in self.allocated.consumed or device in self._consumed
        ):
            return True
        counted = self._counted.setdefault(pool, {})
        _add(counted, device, 1)
        available = self.available(pool)
        if all(amount >= counted.get(name, 0) for name, amount in available.items()):
            return True
        _add(counted, device, -1)
        return False

    def available(self, pool: Pool) -> dict[tuple[str, str], Fraction]:
        """What allocated devices leave of each counter of a pool."""
        found = self._available.get(pool)
        if found is not None:
            return found
        found = {
            (counter_set, name): amount
            for counter_set, counters in (pool.counter_sets or {}).items()
            for name, amount in counters.items()
        }
        held = self.allocated.in_pool.get(pool.key)
        if held:
            for device in (*pool.devices(), *_devices(pool.elsewhere)):
                if device.key in held:
                    for counter_set, counters in device.traits.consumes:
                        for name, amount in counters.items():
                            found[counter_set, name] -= amount
        self._available[pool] = found
        return found

    # --- taking and giving back -----------------------------------------------------------------

    def take(self, device: Device, claim: int) -> None:
        """The claim has the device to itself."""
        self._taken.setdefault(device, set()).add(claim)

    def consume(self, device: Device, requested: Amounts) -> Amounts:
        """The claim takes part of a shared device; returns how much of each capacity."""
        taken = consumption(device.traits.capacities, requested) or {}
        consumed = self._consumed.setdefault(device, {})
        for name, amount in taken.items():
            consumed[name] = consumed.get(name, Fraction(0)) + amount.value
        return taken

    def give_back(self, device: Device, pool: Pool, claim: int) -> None:
        """The claim no longer has the device."""
        self._taken[device].discard(claim)
        if device.traits.consumes:
            _add(self._counted.setdefault(pool, {}), device, -1)

    def release(self, device: Device, consumed: Amounts) -> None:
        """The claim no longer has its part of a shared device."""
        left = self._consumed.get(device)
        if left is None or not consumed:
            return  # a device without capacities counts as shared until the search ends
        for name, amount in consumed.items():
            left[name] -= amount.value
        if not any(left.values()):
            del self._consumed[device]


def _devices(slices: Iterable[Slice]) -> Iterator[Device]:
    for each in slices:
        if any(traits.consumes for traits in each.traits.values):
            yield from each.devices()


def _add(counted: dict[tuple[str, str], Fraction], device: Device, change: int) -> None:
    for counter_set, counters in device.traits.consumes:
        for name, amount in counters.items():
            key = counter_set, name
            counted[key] = counted.get(key, Fraction(0)) + change * amount
