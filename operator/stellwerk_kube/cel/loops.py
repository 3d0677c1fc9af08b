"""The macros that go through the elements of a list or map.

Called by `compiler`. Invariant: a variable that a macro hides has its value again afterwards, also
when the macro fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.comparison import lookup_key
from stellwerk_kube.cel.errors import NO_SUCH_OVERLOAD, CostLimitError, EvaluationError
from stellwerk_kube.cel.macros import Fold, Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_kube.cel.cost import Frame
    from stellwerk_kube.cel.signatures import Library
    from stellwerk_kube.cel.tree import Node
    from stellwerk_kube.cel.values import Value

_Closure: TypeAlias = "Callable[[Frame], Value]"
_Compile: TypeAlias = "Callable[[Node, frozenset[str]], _Closure]"
_Elements: TypeAlias = "Iterator[Value]"

_MISSING: Final = object()
_KEPT_COST: Final = 13
_DROPPED_COST: Final = 1
_TESTED_COST: Final = 3
_COUNTED_COST: Final = 2


def loop_closure(
    loop: Loop, library: Library, compile_node: _Compile, local: frozenset[str]
) -> _Closure:
    """The function that computes a macro over elements."""
    inner = local | set(loop.variables)
    condition = compile_node(loop.condition, inner) if loop.condition is not None else None
    body = compile_node(loop.body, inner)
    source = compile_node(loop.source, local)
    two = len(loop.variables) > 1
    if loop.fold is Fold.SORT:
        sorting = library.find("@sortByAssociatedKeys", member=True)[0].implementation

        def sort(frame: Frame, elements: _Elements) -> Value:
            values, keys = [], []
            for value in elements:
                values.append(value)
                keys.append(body(frame))
                frame.charge(_KEPT_COST)
            frame.charge(cost.sorting(values, keys))
            return sorting(values, keys)

        fold: _Fold = sort
    else:
        fold = _FOLDS[loop.fold](condition, body, loop.variables)

    names, sorts = loop.variables, loop.fold is Fold.SORT

    def run(frame: Frame) -> Value:
        elements = _elements(source(frame), two=two, maps=not sorts)
        variables = frame.variables
        hidden = [(name, variables.get(name, _MISSING)) for name in names]
        try:
            return fold(frame, _bound(variables, names, elements))
        finally:
            for name, value in hidden:
                if value is _MISSING:
                    variables.pop(name, None)
                else:
                    variables[name] = value

    return run


_Fold: TypeAlias = "Callable[[Frame, _Elements], Value]"


def _elements(source: Value, *, two: bool, maps: bool) -> Iterable[Value]:
    if isinstance(source, list):
        return enumerate(source) if two else source
    if isinstance(source, dict) and maps:
        return source.items() if two else source
    raise EvaluationError(NO_SUCH_OVERLOAD)


def _bound(
    variables: dict[str, Value], names: tuple[str, ...], elements: Iterable[Value]
) -> _Elements:
    """The elements, each while the variables stand for it."""
    if len(names) == 1:
        (name,) = names
        for element in elements:
            variables[name] = element
            yield element
        return
    first, second = names
    for element in elements:
        variables[first], variables[second] = element
        yield element


def decided(frame: Frame, conditions: Iterable[_Closure], decisive: bool) -> Value:  # noqa: FBT001
    """The decisive value if one of the conditions has it, else the other; it absorbs errors.

    Raises:
        EvaluationError: none has it, and one failed; that of the first.
    """
    failure: EvaluationError | None = None
    for condition in conditions:
        try:
            verdict = condition(frame)
        except CostLimitError:
            raise
        except EvaluationError as error:
            failure = failure or error
            continue
        if verdict is decisive:
            return decisive
        if type(verdict) is not bool:
            failure = failure or EvaluationError(NO_SUCH_OVERLOAD)
    if failure is not None:
        raise failure
    return not decisive


def _tested(frame: Frame, body: _Closure, elements: _Elements) -> Iterator[_Closure]:
    """The body, once for each element."""
    for _ in elements:
        frame.charge(_TESTED_COST)
        yield body


def _deciding(decisive: bool) -> Callable[..., _Fold]:  # noqa: FBT001  (the value that decides)
    """`all`, decided by a false, and `exists`, decided by a true; a decision absorbs errors."""

    def make(_condition: _Closure | None, body: _Closure, _names: tuple[str, ...]) -> _Fold:
        def decide(frame: Frame, elements: _Elements) -> Value:
            return decided(frame, _tested(frame, body, elements), decisive)

        return decide

    return make


def _passes(condition: _Closure | None, frame: Frame) -> bool:
    if condition is None:
        return True
    verdict = condition(frame)
    if type(verdict) is not bool:
        raise EvaluationError(NO_SUCH_OVERLOAD)
    frame.charge(_DROPPED_COST)
    return verdict


def _exists_one(_condition: _Closure | None, body: _Closure, _names: tuple[str, ...]) -> _Fold:
    def count(frame: Frame, elements: _Elements) -> Value:
        found = 0
        for _ in elements:
            if _passes(body, frame):
                frame.charge(_COUNTED_COST)
                found += 1
        return found == 1

    return count


def _filter(_condition: _Closure | None, body: _Closure, _names: tuple[str, ...]) -> _Fold:
    def keep(frame: Frame, elements: _Elements) -> Value:
        frame.charge(cost.LIST_COST)
        result: list[Value] = []
        for element in elements:
            if _passes(body, frame):
                frame.charge(_KEPT_COST)
                result.append(element)
        return result

    return keep


def _map(condition: _Closure | None, body: _Closure, _names: tuple[str, ...]) -> _Fold:
    def transform(frame: Frame, elements: _Elements) -> Value:
        frame.charge(cost.LIST_COST)
        result: list[Value] = []
        for _ in elements:
            if _passes(condition, frame):
                result.append(body(frame))
                frame.charge(_KEPT_COST - 1)
        return result

    return transform


def _transform_map(condition: _Closure | None, body: _Closure, names: tuple[str, ...]) -> _Fold:
    key_name = names[0]

    def transform(frame: Frame, elements: _Elements) -> Value:
        frame.charge(cost.MAP_COST)
        result: dict[Value, Value] = {}
        for _ in elements:
            key = frame.variables[key_name]
            if _passes(condition, frame):
                result[key] = body(frame)
                frame.charge(_COUNTED_COST)
        return result

    return transform


def _transform_entries(
    condition: _Closure | None, body: _Closure, _names: tuple[str, ...]
) -> _Fold:
    def transform(frame: Frame, elements: _Elements) -> Value:
        frame.charge(cost.MAP_COST)
        result: dict[Value, Value] = {}
        for _ in elements:
            if not _passes(condition, frame):
                continue
            entries = body(frame)
            if not isinstance(entries, dict):
                raise EvaluationError(NO_SUCH_OVERLOAD)
            frame.charge(_COUNTED_COST + len(entries))
            for key, value in entries.items():
                if lookup_key(result, key) is not None:
                    raise EvaluationError(f"insert failed: key {key} already exists")
                result[key] = value
        return result

    return transform


_FOLDS: Final[dict[Fold, Callable[..., _Fold]]] = {
    Fold.ALL: _deciding(decisive=False),
    Fold.EXISTS: _deciding(decisive=True),
    Fold.EXISTS_ONE: _exists_one,
    Fold.FILTER: _filter,
    Fold.MAP: _map,
    Fold.TRANSFORM_MAP: _transform_map,
    Fold.TRANSFORM_ENTRIES: _transform_entries,
}
