"""The macros: calls that bind variables, and `has`.

`checker` and `compiler` treat each kind by its own rule; this module tells them from functions.
Invariant: a call is a macro by its name and number of arguments, as the parser of cel-go decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.errors import Issue
from stellwerk_kube.cel.tree import Bind, Call, Name, Select

if TYPE_CHECKING:
    from stellwerk_kube.cel.tree import Node


class Fold(Enum):
    """The computation of a macro over the elements of a list or map."""

    ALL = auto()
    EXISTS = auto()
    EXISTS_ONE = auto()
    FILTER = auto()
    MAP = auto()
    TRANSFORM_MAP = auto()
    TRANSFORM_ENTRIES = auto()
    SORT = auto()


@dataclass(frozen=True, slots=True)
class Loop:
    """A macro over the elements of a list or map."""

    fold: Fold
    at: int
    source: Node
    variables: tuple[str, ...]
    """One: the element or key. Two: the position or key, and the value."""
    condition: Node | None
    """The condition that elements must fulfil to be transformed; None: there is none."""
    body: Node


@dataclass(frozen=True, slots=True)
class Presence:
    """`has(operand.field)`."""

    select: Select


_ONE_VARIABLE: Final = {
    "all": Fold.ALL,
    "exists": Fold.EXISTS,
    "exists_one": Fold.EXISTS_ONE,
    "existsOne": Fold.EXISTS_ONE,
    "filter": Fold.FILTER,
    "map": Fold.MAP,
    "sortBy": Fold.SORT,
}
_TWO_VARIABLES: Final = {
    "all": Fold.ALL,
    "exists": Fold.EXISTS,
    "existsOne": Fold.EXISTS_ONE,
    "exists_one": Fold.EXISTS_ONE,
    "transformList": Fold.MAP,
    "transformMap": Fold.TRANSFORM_MAP,
    "transformMapEntry": Fold.TRANSFORM_ENTRIES,
}
_TRANSFORMS: Final = frozenset({Fold.MAP, Fold.TRANSFORM_MAP, Fold.TRANSFORM_ENTRIES})
_ARGUMENTS_WITH_CONDITION: Final = 4
"""Arguments of a macro with two variables and a condition."""
_ARGUMENTS_OF_TWO_VARIABLES: Final = 3
"""Arguments of a macro with two variables, of `bind`, and of `map` with a condition."""


class MacroError(Exception):
    """A macro is used in a form that it does not have."""

    def __init__(self, issue: Issue) -> None:
        """Hold what is wrong."""
        super().__init__(issue.text)
        self.issue = issue


def expanded(call: Call) -> Loop | Presence | Bind | None:
    """The macro that a call is; None if it is a function.

    Raises:
        MacroError: it has the name and the number of arguments of a macro, but not the form.
    """
    count = len(call.arguments)
    if call.target is None:
        return _presence(call) if call.function == "has" and count == 1 else None
    if call.function == "bind" and count == _ARGUMENTS_OF_TWO_VARIABLES and _is_cel(call.target):
        name, value, result = call.arguments
        return Bind(call.at, _variable(name, "cel.bind() variable names"), value, result)
    if call.function in _ONE_VARIABLE and count == 2:  # noqa: PLR2004  (variable and body)
        variable, body = call.arguments
        fold = _ONE_VARIABLE[call.function]
        return Loop(fold, call.at, call.target, (_name(variable),), None, body)
    if call.function == "map" and count == _ARGUMENTS_OF_TWO_VARIABLES:
        variable, condition, body = call.arguments
        return Loop(Fold.MAP, call.at, call.target, (_name(variable),), condition, body)
    return _two_variables(call, count)


def _two_variables(call: Call, count: int) -> Loop | None:
    fold = _TWO_VARIABLES.get(call.function)
    if fold is None or call.target is None:
        return None
    if count != _ARGUMENTS_OF_TWO_VARIABLES and not (
        count == _ARGUMENTS_WITH_CONDITION and fold in _TRANSFORMS
    ):
        return None
    first, second, *rest = call.arguments
    names = (_name(first), _name(second))
    if names[0] == names[1]:
        raise MacroError(Issue(second.at, f"duplicate variable name: {names[1]}"))
    condition = rest[0] if len(rest) > 1 else None
    return Loop(fold, call.at, call.target, names, condition, rest[-1])


def _presence(call: Call) -> Presence:
    (operand,) = call.arguments
    if not isinstance(operand, Select):
        raise MacroError(Issue(call.at, "invalid argument to has() macro"))
    return Presence(operand)


def _is_cel(target: Node) -> bool:
    return isinstance(target, Name) and target.name == "cel"


def _name(node: Node) -> str:
    return _variable(node, "argument")


def _variable(node: Node, what: str) -> str:
    if isinstance(node, Name) and not node.name.startswith("."):
        return node.name
    text = (
        "argument must be a simple name"
        if what == "argument"
        else f"{what} must be simple identifiers"
    )
    raise MacroError(Issue(node.at, text))


def qualified_name(node: Node) -> str | None:
    """`a.b.c` as a name, or None for what is no chain of names."""
    parts: list[str] = []
    while isinstance(node, Select):
        parts.append(node.field)
        node = node.operand
    return ".".join([node.name, *reversed(parts)]) if isinstance(node, Name) else None
