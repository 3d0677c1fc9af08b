"""matchAttribute and distinctAttribute, as the search adds devices and takes them back.

Invariant: what `add` noted, `remove` takes back as kube-scheduler v1.36 does: it remembers one
value for each request name under distinctAttribute, the last one.
"""

from collections.abc import Sequence
from typing import Protocol

from typing_extensions import override

from stellwerk.models.resource_slice import Attribute, Device
from stellwerk.plugins.devices.claims import Choice, Constraint
from stellwerk.plugins.devices.selectors import attribute_of


class DeviceSet(Protocol):
    """The devices taken so far that one constraint speaks of."""

    def add(self, choice: Choice, device: Device) -> bool:
        """Take the device up if the constraint lets it in; returns whether it does."""
        ...

    def remove(self, choice: Choice) -> None:
        """Take the last device of the request out again."""
        ...


def device_sets(constraints: Sequence[Constraint]) -> list[DeviceSet]:
    """Empty sets for the constraints of a claim."""
    return [_Distinct(each) if each.distinct else _Matching(each) for each in constraints]


class _Matching(DeviceSet):
    """Devices that all have one value."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._value: Attribute | None = None
        self._count = 0

    @override
    def add(self, choice: Choice, device: Device) -> bool:
        if not self._constraint.covers(choice):
            return True
        value = _attribute(device, self._constraint.attribute)
        if value is None or (self._count and not _same(value, self._value)):
            return False
        if not self._count:
            self._value = value
        self._count += 1
        return True

    @override
    def remove(self, choice: Choice) -> None:
        if self._constraint.covers(choice):
            self._count -= 1


class _Distinct(DeviceSet):
    """Devices of which no request has the last value of another."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._values: dict[str, Attribute] = {}
        self._count = 0

    @override
    def add(self, choice: Choice, device: Device) -> bool:
        if not self._constraint.covers(choice):
            return True
        value = _attribute(device, self._constraint.attribute)
        if value is None:
            return False
        if self._count and any(_same(value, each) for each in self._values.values()):
            return False
        self._values[choice.request] = value
        self._count += 1
        return True

    @override
    def remove(self, choice: Choice) -> None:
        if self._constraint.covers(choice):
            self._values.pop(choice.request, None)
            self._count -= 1


def _attribute(device: Device, name: str) -> Attribute | None:
    """The attribute of that full name; a name without a domain finds nothing but itself."""
    domain, slash, short = name.partition("/")
    return attribute_of(device, domain, short) if slash else device.attribute(name)


def _same(one: Attribute, other: Attribute | None) -> bool:
    """Whether two attributes have the same type and value; versions are compared as texts."""
    return one == other
