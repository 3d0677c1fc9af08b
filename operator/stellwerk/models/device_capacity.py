"""Consumable capacity: how much a request takes of each capacity of a device, and if it may.

Amounts are exact fractions; texts are kept as they were written, for allocations name them.
Invariant: what `consumption` answers depends on the request and the device alone; what is in use
already is added by `fits`. Source: the rules of CapacityRequestPolicy, v1.36.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk.models.quantity import binary_quantity, canonical_quantity, parse_quantity


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity: what it is worth, and its canonical text."""

    value: Fraction
    text: str


Amounts: TypeAlias = Mapping[str, Amount]
"""By the name of the capacity."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The amounts of a capacity that may be consumed."""

    default: Amount | None
    values: tuple[Amount, ...]
    """The amounts to choose from, in ascending order; empty: a range, or anything."""
    minimum: Amount | None
    maximum: Amount | None
    step: Amount | None

    def rounded(self, requested: Amount) -> Amount:
        """The amount that is consumed for a request: the next one up that the policy has."""
        if self.minimum is not None:
            return self._within_range(requested, self.minimum)
        return next((each for each in self.values if requested.value <= each.value), requested)

    def _within_range(self, requested: Amount, minimum: Amount) -> Amount:
        if requested.value < minimum.value:
            return minimum
        if self.step is None:
            return requested
        start, step = _whole(minimum), _whole(self.step)
        steps = -(-(_whole(requested) - start) // step) if step > 0 else 0
        value = Fraction(start + step * steps)
        return Amount(value, binary_quantity(value))

    def allows(self, consumed: Amount) -> bool:
        """Whether so much may be consumed; the default always may."""
        value = consumed.value
        if self.default is not None and value == self.default.value:
            return True
        if self.values:
            return any(value == each.value for each in self.values)
        if self.maximum is not None and value > self.maximum.value:
            return False
        if self.step is None or _whole(self.step) <= 0:
            return True
        start = _whole(self.minimum) if self.minimum is not None else 0
        return (_whole(consumed) - start) % _whole(self.step) == 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device."""

    total: Amount
    policy: Policy | None

    def consumed(self, requested: Amount | None) -> Amount:
        """The amount that a request takes; None: it does not speak of this capacity."""
        if requested is None:
            default = self.policy.default if self.policy is not None else None
            return default or self.total
        return self.policy.rounded(requested) if self.policy is not None else requested


def consumption(capacities: Mapping[str, Capacity], requested: Amounts) -> Amounts | None:
    """The amount of each capacity that a request takes; None: the device is not for it."""
    if any(name not in capacities for name in requested):
        return None
    taken: dict[str, Amount] = {}
    for name, capacity in capacities.items():
        amount = taken[name] = capacity.consumed(requested.get(name))
        if capacity.policy is not None and not capacity.policy.allows(amount):
            return None
    return taken


def fits(
    capacities: Mapping[str, Capacity],
    taken: Amounts,
    in_use: Iterable[Mapping[str, Fraction]],
) -> bool:
    """Whether there is room for what is taken beside everything in use."""
    used = [each for each in in_use if each]
    for name, amount in taken.items():
        value = amount.value
        for each in used:
            value += each.get(name, 0)
        if value > capacities[name].total.value:
            return False
    return True


def parse_capacities(capacity: Mapping[str, JsonObject]) -> dict[str, Capacity]:
    """Parse the capacities of a device."""
    return {
        name: Capacity(parse_amount(each["value"]), _parse_policy(each.get("requestPolicy")))
        for name, each in capacity.items()
    }


def parse_amounts(amounts: Mapping[str, str] | None) -> dict[str, Amount]:
    """Parse quantities by name."""
    return {name: parse_amount(quantity) for name, quantity in (amounts or {}).items()}


def parse_amount(quantity: str | float) -> Amount:
    """Parse a quantity.

    Raises:
        ValueError: it is none.
    """
    return Amount(parse_quantity(quantity), canonical_quantity(quantity))


def _parse_policy(policy: JsonObject | None) -> Policy | None:
    if not policy:
        return None
    valid_range = policy.get("validRange") or {}
    return Policy(
        _optional(policy.get("default")),
        tuple(parse_amount(each) for each in policy.get("validValues") or ()),
        _optional(valid_range.get("min")),
        _optional(valid_range.get("max")),
        _optional(valid_range.get("step")),
    )


def _optional(quantity: str | None) -> Amount | None:
    return None if quantity is None else parse_amount(quantity)


def _whole(amount: Amount) -> int:
    return -(-amount.value // 1)
