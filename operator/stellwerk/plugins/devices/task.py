"""What a search is to find: the claims of a pod without their names, and the classes they use.

The plugin makes one Task per distinct set of claims. Invariant: two pods with the same Task get the
same answer on the same node, texts of errors aside.
"""

from dataclasses import dataclass

from stellwerk.plugins.devices.claims import Choice, Demand
from stellwerk.plugins.devices.classes import DeviceClass, DeviceClasses
from stellwerk.plugins.devices.selectors import Selector, SelectorError, selector_of
from stellwerk.plugins.devices.slices import Device


class AllocationError(Exception):
    """The search is over, with an error that ends the scheduling attempt."""


@dataclass(slots=True, eq=False)
class Wanted:
    """One request or alternative with its class, and which devices it selects."""

    choice: Choice
    device_class: DeviceClass
    selectors: tuple[Selector, ...]
    """Those of the class, then the request's own."""

    @classmethod
    def of(cls, choice: Choice, device_class: DeviceClass) -> "Wanted":
        """Look the selectors up."""
        expressions = (*device_class.selectors, *choice.selectors)
        return cls(choice, device_class, tuple(map(selector_of, expressions)))

    def selects(self, device: Device, claim: str) -> bool:
        """Whether the device matches the class and the request.

        Raises:
            AllocationError: a selector has no answer; `claim` is named in the text.
        """
        of_class = len(self.device_class.selectors)
        for index, selector in enumerate(self.selectors):
            try:
                if not selector.matches(device):
                    return False
            except SelectorError as error:
                where = f"class {self.device_class.name}: selector #{index}"
                if index >= of_class:
                    where = f"claim {claim}: selector #{index - of_class}"
                raise AllocationError(f"{where}: {error}") from error
        return True


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One claim of a task."""

    demand: Demand
    wanted: tuple[tuple[Wanted, ...], ...]
    """For each request its choices."""

    @classmethod
    def of(cls, demand: Demand, classes: DeviceClasses) -> "Part":
        """Look the classes up.

        Raises:
            KeyError: a class does not exist.
        """
        return cls(
            demand,
            tuple(
                tuple(_wanted(choice, classes) for choice in request.choices)
                for request in demand.requests
            ),
        )


def _wanted(choice: Choice, classes: DeviceClasses) -> Wanted:
    device_class = classes.get(choice.class_name)
    if device_class is None:
        raise KeyError(choice.class_name)
    return Wanted.of(choice, device_class)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """The claims to be allocated together, in order."""

    parts: tuple[Part, ...]
