"""The account of one search: whole devices, capacity of shared devices, and counters of pools.

`allocator` takes and gives back, `explain` asks what is free. Invariant: nothing of it outlives the
search; what the API has stored is in `Allocated` and is only read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from stellwerk.plugins.dynamic_resources.allocated import Allocated
from stellwerk.plugins.dynamic_resources.resource_pools import Pool
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.device_capacity import Amounts, as_published, consumption, fits
from stellwerk_kube.resource_slice import Device, Slice

_NOTHING: Mapping[str, Fraction] = {}


@dataclass(slots=True)
class AllocatingState:
    """Devices, capacity and counters during one search on one node."""

    allocated: Allocated
    rules: Compatibility = AS_RECORDED
    _taken: dict[Device, set[int]] = field(default_factory=dict)
    """The claims of this search that take each device, by their number."""
    _consumed: dict[Device, dict[str, Fraction]] = field(default_factory=dict)
    """The capacity that this search takes of shared devices."""
    _shares: dict[Device, int] = field(default_factory=dict)
    """The number of shares of each device that this search takes."""
    _available: dict[Pool, dict[tuple[str, str], Fraction]] = field(default_factory=dict)
    _counted: dict[Pool, dict[tuple[str, str], Fraction]] = field(default_factory=dict)

    # --- whole devices --------------------------------------------------------------------------

    def in_use(self, device: Device) -> bool:
        """Whether a claim has the device to itself, or gets it in this search.

        A device that is shared no more counts as in use while a share of it is left.
        """
        return self.is_held(device) or bool(self._taken.get(device))

    def is_held(self, device: Device) -> bool:
        """Whether an allocation keeps others from having the device, or a share of it."""
        return device.key in self.allocated.devices or (
            device.key in self.allocated.shared
            and not device.traits.shareable
            and ReleaseRule.SHARED_IS_NOT_FREE in self.rules
        )

    def taken_for(self, device: Device, claim_index: int) -> bool:
        """Whether that claim takes the device in this search."""
        return claim_index in self._taken.get(device, ())

    # --- capacity -------------------------------------------------------------------------------

    def has_room(self, device: Device, requested: Amounts) -> bool:
        """Whether the device has so much capacity left, and its policy allows to ask for it."""
        if not device.traits.capacities:
            return not requested
        taken = consumption(device.traits.capacities, requested, self.rules, device.driver)
        if taken is None:
            return False
        already = self.allocated.consumed.get(device.key, _NOTHING)
        if ReleaseRule.CAPACITIES_HAVE_TWO_NAMES in self.rules:
            already = as_published(device.traits.capacities, already, device.driver)
        return fits(
            device.traits.capacities, taken, (already, self._consumed.get(device, _NOTHING))
        )

    def is_large_enough(self, device: Device, requested: Amounts) -> bool:
        """Whether the whole device has so much capacity, and its policy allows to ask for it."""
        capacities = device.traits.capacities
        taken = consumption(capacities, requested, self.rules, device.driver)
        return taken is not None and fits(capacities, taken, ())

    # --- counters -------------------------------------------------------------------------------

    def charge_if_needed(self, device: Device, pool: Pool) -> bool:
        """Take the counters that the device needs; returns whether the pool has enough left."""
        return not self.is_charged(device) or self.charge(device, pool)

    def is_charged(self, device: Device) -> bool:
        """Whether the device takes counters: a shared one that is in use has taken them before."""
        if not device.traits.consumes:
            return False
        if not device.traits.shareable:
            return True
        if ReleaseRule.SHARES_HAVE_PAID in self.rules and device.key in self.allocated.shared:
            return False
        return device.key not in self.allocated.consumed and device not in self._consumed

    def charge(self, device: Device, pool: Pool) -> bool:
        """Take the device's counters, if the pool has enough left; returns whether it has."""
        counted = self._counted.setdefault(pool, {})
        _add(counted, device, 1)
        available = self.available(pool)
        if all(amount >= counted.get(name, 0) for name, amount in available.items()):
            return True
        _add(counted, device, -1)
        return False

    def available(self, pool: Pool) -> dict[tuple[str, str], Fraction]:
        """The amount that allocated devices leave of each counter of a pool."""
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

    def take(self, device: Device, claim_index: int) -> None:
        """The claim has the device to itself."""
        self._taken.setdefault(device, set()).add(claim_index)

    def consume(self, device: Device, requested: Amounts) -> Amounts:
        """The claim takes part of a shared device; returns how much of each capacity."""
        taken = consumption(device.traits.capacities, requested, self.rules, device.driver) or {}
        consumed = self._consumed.setdefault(device, {})
        self._shares[device] = self._shares.get(device, 0) + 1
        for name, amount in taken.items():
            consumed[name] = consumed.get(name, Fraction(0)) + amount.value
        return taken

    def give_back(self, device: Device, claim_index: int) -> None:
        """The claim no longer has the device."""
        self._taken[device].discard(claim_index)

    def refund(self, device: Device, pool: Pool) -> None:
        """Give the device's counters back."""
        _add(self._counted.setdefault(pool, {}), device, -1)

    def release(self, device: Device, consumed: Amounts) -> bool:
        """Take back one share of a shared device.

        Returns:
            Whether a share of the device is left.
        """
        self._shares[device] -= 1
        left = self._consumed.get(device)
        if left is not None:
            for name, amount in consumed.items():
                left[name] -= amount.value
        return self._shares[device] > 0

    def consumes_nothing(self, device: Device) -> bool:
        """Whether the shares of this search add up to no capacity of the device."""
        return not any(self._consumed.get(device, _NOTHING).values())

    def forget_shares(self, device: Device) -> None:
        """Treat the device as one of which this search takes no share: the next one pays again."""
        self._consumed.pop(device, None)


def _devices(slices: Iterable[Slice]) -> Iterator[Device]:
    for each in slices:
        if any(traits.consumes for traits in each.traits.values):
            yield from each.devices()


def _add(counted: dict[tuple[str, str], Fraction], device: Device, change: int) -> None:
    for counter_set, counters in device.traits.consumes:
        for name, amount in counters.items():
            key = counter_set, name
            counted[key] = counted.get(key, Fraction(0)) + change * amount
