"""Consumable capacity: how much a request takes of each capacity of a device, and if it may.

Amounts are exact fractions; texts are kept as they were written, for allocations name them.
Invariant: what `consumption` answers depends on the request and the device alone; what is in use
already is added by `fits`. Source: the rules of CapacityRequestPolicy, v1.36 and v1.37.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, TypeAlias

from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.quantity import binary_quantity, canonical_quantity, parse_quantity

_THOUSAND: Final = 1000
_MAX_AMOUNT: Final = (1 << 63) - 1
"""The largest amount of a capacity: the highest int64."""


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

    def in_thousandths(self, rules: Compatibility) -> bool:
        """Whether the range is compared in thousandths: some of its ends is no whole number.

        An end with more than three decimals, and a step of nothing, leave it at whole numbers.
        """
        ends = [each.value for each in (self.minimum, self.maximum, self.step) if each is not None]
        return (
            ReleaseRule.FRACTIONAL_RANGES in rules
            and any(each.denominator != 1 for each in ends)
            and all(_THOUSAND % each.denominator == 0 for each in ends)
            and (self.step is None or self.step.value > 0)
        )

    def rounded(self, requested: Amount, rules: Compatibility = AS_RECORDED) -> Amount:
        """The amount that is consumed for a request: the next one up that the policy has."""
        if self.minimum is not None:
            return self._within_range(requested, self.minimum, rules)
        return next((each for each in self.values if requested.value <= each.value), requested)

    def _within_range(self, requested: Amount, minimum: Amount, rules: Compatibility) -> Amount:
        if requested.value < minimum.value:
            return minimum
        if self.step is None:
            return requested
        if self.in_thousandths(rules):
            steps = -(-(requested.value - minimum.value) // self.step.value)
            return _like(self.step, minimum.value + self.step.value * steps)
        start, step = _whole(minimum), _whole(self.step)
        steps = -(-(_whole(requested) - start) // step) if step > 0 else 0
        value = Fraction(start + step * steps)
        return Amount(value, binary_quantity(value))

    def allows(self, consumed: Amount, rules: Compatibility = AS_RECORDED) -> bool:
        """Whether so much may be consumed; the default always may."""
        value = consumed.value
        if self.default is not None and value == self.default.value:
            return True
        if self.values:
            return any(value == each.value for each in self.values)
        if self.maximum is not None and value > self.maximum.value:
            return False
        if self.step is not None and self.in_thousandths(rules):
            start_value = self.minimum.value if self.minimum is not None else 0
            return (
                _THOUSAND % value.denominator == 0 and (value - start_value) % self.step.value == 0
            )
        if self.step is None or _whole(self.step) <= 0:
            return True
        start = _whole(self.minimum) if self.minimum is not None else 0
        return (_whole(consumed) - start) % _whole(self.step) == 0


@dataclass(frozen=True, slots=True)
class Capacity:
    """One capacity of a device."""

    total: Amount
    policy: Policy | None

    def consumed(self, requested: Amount | None, rules: Compatibility = AS_RECORDED) -> Amount:
        """The amount that a request takes; None: it does not speak of this capacity."""
        if requested is None:
            default = self.policy.default if self.policy is not None else None
            return default or self.total
        return self.policy.rounded(requested, rules) if self.policy is not None else requested


def published_name(capacities: Mapping[str, Capacity], name: str, driver: str) -> str | None:
    """The name under which a device publishes a capacity; None: it has no such capacity.

    `memory` and `DRIVER/memory` name the same capacity of a device of that driver.
    """
    if name in capacities:
        return name
    domain, slash, short = name.partition("/")
    other = f"{driver}/{name}" if not slash else short if domain == driver else name
    return other if other in capacities else None


def as_published(
    capacities: Mapping[str, Capacity], amounts: Mapping[str, Fraction], driver: str
) -> Mapping[str, Fraction]:
    """Amounts under the names that a device publishes; two names of one capacity are added up."""
    if amounts.keys() <= capacities.keys():
        return amounts
    found: dict[str, Fraction] = {}
    for name, amount in amounts.items():
        published = published_name(capacities, name, driver) or name
        found[published] = found.get(published, Fraction(0)) + amount
    return found


def consumption(
    capacities: Mapping[str, Capacity],
    requested: Amounts,
    rules: Compatibility = AS_RECORDED,
    driver: str = "",
) -> Amounts | None:
    """The amount of each capacity that a request takes; None: the device is not for it."""
    if any(name not in capacities for name in requested):
        if ReleaseRule.CAPACITIES_HAVE_TWO_NAMES not in rules:
            return None
        renamed: dict[str, Amount] = {}
        for name, amount in requested.items():
            published = published_name(capacities, name, driver)
            if published is None:
                return None
            # Under two names of one capacity the larger amount is meant.
            if published not in renamed or renamed[published].value < amount.value:
                renamed[published] = amount
        requested = renamed
    is_strict = ReleaseRule.REFUSE_STRANGE_AMOUNTS in rules
    taken: dict[str, Amount] = {}
    for name, capacity in capacities.items():
        asked = requested.get(name)
        amount = taken[name] = capacity.consumed(asked, rules)
        if is_strict and not (_is_usual(amount) and (asked is None or _is_usual(asked))):
            return None
        if capacity.policy is not None and not capacity.policy.allows(amount, rules):
            return None
    return taken


def _is_usual(amount: Amount) -> bool:
    """Whether an integer of 64 bits holds the amount, and it is not negative."""
    return 0 <= amount.value <= _MAX_AMOUNT


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


def _like(written: Amount, value: Fraction) -> Amount:
    """An amount of at most three decimals, written as another is: in units of 1024, or of 1000."""
    if value.denominator != 1:
        return Amount(value, canonical_quantity(f"{int(value * _THOUSAND)}m"))
    text = binary_quantity(value) if written.text.endswith("i") else canonical_quantity(int(value))
    return Amount(value, text)


def _whole(amount: Amount) -> int:
    return -(-amount.value // 1)
