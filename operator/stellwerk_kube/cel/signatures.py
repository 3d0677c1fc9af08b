"""The functions of a library: names, types, costs and implementations.

The modules of `library` declare them here, one decorator each; `checker` and `compiler` ask.
Invariant: an implementation raises nothing but `EvaluationError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from stellwerk_kube.cel.cost import unit
from stellwerk_kube.cel.types import Type, parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from stellwerk_kube.cel.values import Value

_F = TypeVar("_F", bound="Callable[..., Value]")


@dataclass(frozen=True, slots=True)
class Overload:
    """One form of a function."""

    function: str
    member: bool
    parameters: tuple[Type, ...]
    """The receiver of a member function is the first."""
    result: Type
    implementation: Callable[..., Value]
    cost: Callable[..., int]


class Library:
    """A set of functions."""

    def __init__(self, *parts: Library) -> None:
        """Begin with the functions of other libraries."""
        self._overloads: dict[tuple[str, bool], list[Overload]] = {}
        for part in parts:
            for each in part.overloads():
                self._add(each)

    def _add(self, overload: Overload) -> None:
        self._overloads.setdefault((overload.function, overload.member), []).append(overload)

    def function(
        self, name: str, *forms: str, cost: Callable[..., int] = unit
    ) -> Callable[[_F], _F]:
        """Declare the decorated callable as `name`, with forms such as `(string, int) -> int`.

        A form that begins with a dot is a member's: `.(string, int)` is called as `text.name(1)`.
        """

        def declare(implementation: _F) -> _F:
            for form in forms:
                left, _, result = form.rpartition(" -> ")
                member, left = left.startswith("."), left.removeprefix(".")
                parameters = () if left == "()" else parse_type(f"f{left}").parameters
                self._add(
                    Overload(name, member, parameters, parse_type(result), implementation, cost)
                )
            return implementation

        return declare

    def find(self, name: str, *, member: bool) -> list[Overload]:
        """The forms of a function."""
        return self._overloads.get((name, member), [])

    def overloads(self) -> Iterator[Overload]:
        """All forms of all functions."""
        for found in self._overloads.values():
            yield from found
