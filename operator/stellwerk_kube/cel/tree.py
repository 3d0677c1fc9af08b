"""The syntax tree of an expression.

Made by `parser`, read by `checker`, `macros` and `compiler`. Invariant: nodes are immutable, and
`at` is where the parser places them in the text (for an operator its sign, for a call its bracket).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    at: int
    value: object


@dataclass(frozen=True, slots=True)
class Name:
    """A variable, or a part of a qualified name."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`."""

    at: int
    operand: Node
    field: str


@dataclass(frozen=True, slots=True)
class Call:
    """A function, an operator (`_+_`) or a macro; `target` is what a member call is made on."""

    at: int
    function: str
    target: Node | None
    arguments: tuple[Node, ...]

    @property
    def operands(self) -> tuple[Node, ...]:
        """The target, if any, and the arguments."""
        return self.arguments if self.target is None else (self.target, *self.arguments)


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[a, ?b]`."""

    at: int
    elements: tuple[Node, ...]
    optional: frozenset[int]
    """Positions of the elements that are left out when they are none."""


@dataclass(frozen=True, slots=True)
class MapEntry:
    """`key: value` of a map."""

    key: Node
    value: Node
    optional: bool


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{a: b}`."""

    at: int
    entries: tuple[MapEntry, ...]


@dataclass(frozen=True, slots=True)
class MessageLiteral:
    """`Name{field: value}`; no message type is known here, so that it never compiles."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Bind:
    """`result`, in which `name` stands for `value`."""

    at: int
    name: str
    value: Node
    result: Node


Node: TypeAlias = Literal | Name | Select | Call | ListLiteral | MapLiteral | MessageLiteral | Bind
