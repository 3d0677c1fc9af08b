"""Environments, and the programs compiled in them: the public face of `cel`.

An environment names the variables and functions that expressions may use. Called by what carries
expressions, such as the definitions of resources in the embedded cluster. Invariant: a distinct
expression is parsed, checked and compiled once, as long as the cache holds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.bounded_cache import RecentlyMade
from stellwerk_kube.cel.checker import check
from stellwerk_kube.cel.compiler import compiled
from stellwerk_kube.cel.cost import MAX_CALL_COST, Frame
from stellwerk_kube.cel.errors import CompileError, EvaluationError, Issue
from stellwerk_kube.cel.library.conversions import CONVERSIONS
from stellwerk_kube.cel.library.formats import FORMATS
from stellwerk_kube.cel.library.lists import INCLUDES, LISTS
from stellwerk_kube.cel.library.moments import MOMENTS
from stellwerk_kube.cel.library.network import NETWORK
from stellwerk_kube.cel.library.operators import OPERATORS
from stellwerk_kube.cel.library.optionals import OPTIONALS
from stellwerk_kube.cel.library.patterns import PATTERNS
from stellwerk_kube.cel.library.quantities import QUANTITIES
from stellwerk_kube.cel.library.strings import STRINGS
from stellwerk_kube.cel.library.versions import VERSIONS
from stellwerk_kube.cel.parser import parse
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.types import BOOL, DYN, STRING, ObjectType, Type, map_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from stellwerk_kube.cel.tree import Node
    from stellwerk_kube.cel.values import Value


KUBERNETES: Final = Library(
    OPERATORS,
    CONVERSIONS,
    MOMENTS,
    STRINGS,
    PATTERNS,
    OPTIONALS,
    LISTS,
    QUANTITIES,
    VERSIONS,
    NETWORK,
    FORMATS,
)


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The result of an evaluation."""

    value: Value
    """The result; None if it failed."""
    error: EvaluationError | None
    cost: int


@dataclass(frozen=True, slots=True)
class Program:
    """A compiled expression."""

    source: str
    result_type: Type
    variables: frozenset[str]
    """The variables that the expression mentions."""
    _closure: Callable[[Frame], Value]

    def evaluate(self, variables: Mapping[str, Value], limit: int = MAX_CALL_COST) -> Value:
        """The value of the expression.

        Raises:
            EvaluationError: it has none, or costs more than `limit`.
        """
        return self._run(Frame(variables, limit))

    def outcome(self, variables: Mapping[str, Value], limit: int = MAX_CALL_COST) -> Evaluation:
        """The value of the expression or its error, and what it cost."""
        frame = Frame(variables, limit)
        try:
            return Evaluation(self._run(frame), None, frame.cost)
        except EvaluationError as error:
            return Evaluation(None, error, frame.cost)

    def _run(self, frame: Frame) -> Value:
        try:
            return self._closure(frame)
        except RecursionError:
            raise EvaluationError("the values are nested too deep") from None


class Environment:
    """The variables, with their types, and the functions of expressions."""

    def __init__(self, variables: Mapping[str, Type], library: Library = KUBERNETES) -> None:
        """Declare what expressions may use."""
        self._variables = dict(variables)
        self._library = library
        self._programs = RecentlyMade(self._program)

    def compile(self, source: str) -> Program:
        """The program of an expression.

        Raises:
            CompileError: it is no CEL, or its types do not fit.
        """
        return self._programs.of(source)

    def _program(self, source: str) -> Program:
        tree = _trees.of(source)
        checked = check(source, tree, self._variables, self._library)
        return Program(source, checked.result, checked.variables, compiled(tree, self._library))


_trees: Final = RecentlyMade(parse)


def device_tree(expression: str) -> Node:
    """The tree of a device selector.

    Raises:
        CompileError: it is no CEL.
    """
    return _trees.of(expression)


# --- device selectors ---------------------------------------------------------------------------

DEVICE: Final = "device"
"""The one variable that a selector of devices has."""
MAX_SELECTOR_BYTES: Final = 10 * 1024
"""Bytes of a selector of devices (`CELSelectorExpressionMaxLength`)."""
_VARIABLES: Final = {
    DEVICE: ObjectType(
        "kubernetes.DRADevice",
        (),
        {
            "driver": STRING,
            "allowMultipleAllocations": BOOL,
            "attributes": map_of(STRING, map_of(STRING, DYN)),
            "capacity": map_of(STRING, map_of(STRING, Type("kubernetes.Quantity"))),
        },
    )
}
_OF_DEVICES: Final = Environment(_VARIABLES)
_OF_DEVICES_WITH_LISTS: Final = Environment(_VARIABLES, Library(KUBERNETES, INCLUDES))


def device_program(expression: str, *, with_lists: bool = False) -> Program:
    """The program of a device selector; its result is a bool, or shows its type when it runs.

    `with_lists`: it may ask with `includes` whether an attribute has a value among others.

    Raises:
        CompileError: it is no CEL, its types do not fit, or it gives something else than a bool.
    """
    program = (_OF_DEVICES_WITH_LISTS if with_lists else _OF_DEVICES).compile(expression)
    if program.result_type not in (BOOL, DYN):
        text = f"must evaluate to bool or the unknown type, not {program.result_type}"
        raise CompileError(expression, [Issue(0, text)])
    return program
