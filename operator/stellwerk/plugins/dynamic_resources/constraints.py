"""The constraints of a claim during a search: which devices may be taken together.

`allocator` adds and removes the devices that it takes, and `explain` asks which ones a constraint
would refuse. Invariant: what was added is removed in the reverse order.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

from typing_extensions import override

from stellwerk.plugins.dynamic_resources.dead_ends import SavedState
from stellwerk.plugins.dynamic_resources.selectors import attribute_reader
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, ReleaseRule
from stellwerk_kube.resource_claim import Choice, DeviceConstraint
from stellwerk_kube.resource_slice import UNSUPPORTED, Attribute, Device


class ConstraintState(Protocol):
    """The devices taken so far that one constraint speaks of."""

    def add(self, choice: Choice, device: Device) -> bool:
        """Take the device up if the constraint lets it in; returns whether it does."""
        ...

    def remove(self, choice: Choice) -> None:
        """Take the last device of the request out again."""
        ...

    def saved(self) -> SavedState:
        """All that it remembers."""
        ...


def constraint_states(
    constraints: Sequence[DeviceConstraint], rules: Compatibility = AS_RECORDED
) -> list[ConstraintState]:
    """One state for each constraint of a claim, without any device."""
    distinct = _LastValueDistinct if remembers_last_values_only(rules) else _DistinctAttribute
    return [distinct(each) if each.distinct else _MatchAttribute(each) for each in constraints]


def remembers_last_values_only(rules: Compatibility) -> bool:
    """Whether distinctAttribute forgets all but the last value of each request, as in v1.36."""
    return ReleaseRule.DISTINCT_OVER_ALL not in rules


class _MatchAttribute(ConstraintState):
    """matchAttribute: devices that all have one value."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._constraint = constraint
        self._values_of = attribute_reader(constraint.attribute)
        self._value: Attribute | None = None
        self._count = 0

    @override
    def add(self, choice: Choice, device: Device) -> bool:
        if not self._constraint.covers(choice):
            return True
        value = self._values_of(device)
        if value is None or (self._count and not _is_among(value, (self._value,))):
            return False
        if not self._count:
            self._value = value
        self._count += 1
        return True

    @override
    def remove(self, choice: Choice) -> None:
        if self._constraint.covers(choice):
            self._count -= 1

    @override
    def saved(self) -> SavedState:
        values = (("", self._value),) if self._count and self._value is not None else ()
        return self._count, values


class _DistinctAttribute(ConstraintState):
    """distinctAttribute: devices of which no two have the same value."""

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._constraint = constraint
        self._values_of = attribute_reader(constraint.attribute)
        self._values: list[Attribute] = []
        """In the order in which the devices were taken."""
        self._requests: list[str] = []
        """The request of each of these devices."""

    @override
    def add(self, choice: Choice, device: Device) -> bool:
        if not self._constraint.covers(choice):
            return True
        value = self._values_of(device)
        if value is None or _is_among(value, self._values):
            return False
        self._values.append(value)
        self._requests.append(choice.request)
        return True

    @override
    def remove(self, choice: Choice) -> None:
        if self._constraint.covers(choice):
            self._values.pop()
            self._requests.pop()

    @override
    def saved(self) -> SavedState:
        return len(self._values), tuple(zip(self._requests, self._values, strict=True))


class _LastValueDistinct(ConstraintState):
    """distinctAttribute: devices of which no request has the last value of another.

    As kube-scheduler v1.36 does, it remembers one value for each name of a request, the last one.
    """

    def __init__(self, constraint: DeviceConstraint) -> None:
        self._constraint = constraint
        self._values_of = attribute_reader(constraint.attribute)
        self._values: dict[str, Attribute] = {}
        self._count = 0

    @override
    def add(self, choice: Choice, device: Device) -> bool:
        if not self._constraint.covers(choice):
            return True
        value = self._values_of(device)
        if value is None:
            return False
        if self._count and _is_among(value, self._values.values()):
            return False
        self._values[choice.request] = value
        self._count += 1
        return True

    @override
    def remove(self, choice: Choice) -> None:
        if self._constraint.covers(choice):
            self._values.pop(choice.request, None)
            self._count -= 1

    @override
    def saved(self) -> SavedState:
        return self._count, tuple(self._values.items())


def _is_among(value: Attribute, others: Collection[Attribute | None]) -> bool:
    """Whether one of the others has the same type and value; versions are compared as texts.

    A list, or a value of a kind that is not known, is the same as no other.
    """
    is_comparable = not isinstance(value, tuple) or (
        value != UNSUPPORTED and not isinstance(value[1], tuple)
    )
    return is_comparable and value in others
