"""What a search is to find: the claims of a pod without their names, and the classes they use.

The plugin makes one Task per distinct set of claims. Invariant: two pods with the same Task get the
same answer on the same node, texts of errors aside.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from stellwerk.models.resource_slice import Device
from stellwerk.plugins.devices.claims import Choice, Demand
from stellwerk.plugins.devices.classes import DeviceClass, DeviceClasses
from stellwerk.plugins.devices.selectors import Selector, SelectorError, selector_of


class AllocationError(Exception):
    """The search is over, with an error that ends the scheduling attempt."""

    def __init__(
        self, text: str, *, claim: int | None = None, request: str = "", of_node: bool = False
    ) -> None:
        """`text` follows the name of the claim of that number; None: it is complete.

        `request` is whose search it ended; `of_node`: the text names what that node alone has.
        """
        super().__init__(text)
        self.claim = claim
        self.request = request
        self.of_node = of_node

    def text(self, names: Sequence[str]) -> str:
        """What went wrong, for claims of these names."""
        (text,) = self.args
        return str(text) if self.claim is None else f"claim {names[self.claim]}{text}"


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

    def selects(self, device: Device, claim: int) -> bool:
        """Whether the device matches the class and the request.

        Raises:
            AllocationError: a selector has no answer; its text names the claim of that number.
        """
        for index, selector in enumerate(self.selectors):
            try:
                if not selector.matches(device):
                    return False
            except SelectorError as error:
                raise self._failed(index, error, claim) from error
        return True

    def _failed(self, index: int, error: SelectorError, claim: int) -> AllocationError:
        of_class, request = len(self.device_class.selectors), self.choice.full_name
        if index < of_class:
            text = f"class {self.device_class.name}: selector #{index}: {error}"
            return AllocationError(text, request=request)
        text = f": selector #{index - of_class}: {error}"
        return AllocationError(text, claim=claim, request=request)


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
