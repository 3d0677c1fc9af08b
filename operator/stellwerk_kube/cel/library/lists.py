"""Lists and sets: cel-go's lists extension (version 3), its sets, and Kubernetes' lists."""

from __future__ import annotations

from functools import cmp_to_key
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.arithmetic import add
from stellwerk_kube.cel.comparison import contains, equal, order
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library
from stellwerk_kube.cel.values import Duration, Uint, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.cel.values import Value

LISTS: Final = Library()

_COMPARABLE: Final = (
    "int",
    "uint",
    "double",
    "bool",
    "duration",
    "timestamp",
    "string",
    "bytes",
)
_PREDICATE: Final = tuple(f".(list({each})) -> bool" for each in _COMPARABLE)
_CHOICE: Final = tuple(f".(list({each})) -> {each}" for each in _COMPARABLE)
_SORTING: Final = tuple(f".(list({each})) -> list({each})" for each in _COMPARABLE)
_KEYED: Final = tuple(f".(list(A), list({each})) -> list(A)" for each in _COMPARABLE)
_MAX_RANGE: Final = 100_000
"""Numbers of a `lists.range`, which makes all of them at once."""


INCLUDES: Final = Library()
"""A function of device selectors alone: an attribute may be one value or several."""


def _entries(values: Value, *_rest: Value) -> int:
    return cost.LIST_COST + (size_of(values) if isinstance(values, list) else 1)


@INCLUDES.function("includes", ".(dyn, dyn) -> bool", cost=_entries)
def _includes(values: Value, element: Value) -> bool:
    return contains(values, element) if isinstance(values, list) else equal(values, element)


def _length(values: Value, *_rest: Value) -> int:
    return cost.LIST_COST + size_of(values) + 1


def _squared(values: Value, *_rest: Value) -> int:
    return cost.LIST_COST + cost.weight(values) * size_of(values) + 1


def _flattened(values: list[Value], *_rest: Value) -> int:
    return cost.LIST_COST + cost.weight(values)


@LISTS.function("isSorted", *_PREDICATE, cost=cost.elements)
def _is_sorted(values: list[Value]) -> bool:
    return all(order(left, right) <= 0 for left, right in pairwise(values))


def _declare_sum(name: str, zero: Value) -> None:
    def total(values: list[Value]) -> Value:
        # A list of dyn chooses among the forms without a look at its elements.
        result = type(values[0])(0) if values and type(values[0]) in _SUMMABLE else zero
        for each in values:
            result = add(result, each)
        return result

    LISTS.function("sum", f".(list({name})) -> {name}", cost=cost.elements)(total)


_SUMMABLE: Final = (int, Uint, float, Duration)
for _name, _zero in (("int", 0), ("uint", Uint(0)), ("double", 0.0), ("duration", Duration(0))):
    _declare_sum(_name, _zero)


def _chosen(name: str, preferred: int) -> Callable[[list[Value]], Value]:
    def choose(values: list[Value]) -> Value:
        if not values:
            raise EvaluationError(f"{name} called on empty list")
        result = values[0]
        for each in values[1:]:
            if order(result, each) == preferred:
                result = each
        return result

    return choose


LISTS.function("min", *_CHOICE, cost=cost.elements)(_chosen("min", 1))
LISTS.function("max", *_CHOICE, cost=cost.elements)(_chosen("max", -1))


@LISTS.function("indexOf", ".(list(A), A) -> int", cost=cost.elements)
def _index_of(values: list[Value], element: Value) -> int:
    return next((place for place, each in enumerate(values) if equal(element, each)), -1)


@LISTS.function("lastIndexOf", ".(list(A), A) -> int", cost=cost.elements)
def _last_index_of(values: list[Value], element: Value) -> int:
    backwards = reversed(list(enumerate(values)))
    return next((place for place, each in backwards if equal(element, each)), -1)


@LISTS.function("slice", ".(list(T), int, int) -> list(T)", cost=_length)
def _slice(values: list[Value], start: int, end: int) -> list[Value]:
    if start < 0 or end < 0:
        why = "negative indexes not supported"
    elif start > end:
        why = "start index must be less than or equal to end index"
    elif len(values) < end:
        why = f"list is length {len(values)}"
    else:
        return values[start:end]
    raise EvaluationError(f"cannot slice({start}, {end}), {why}")


@LISTS.function(
    "flatten", ".(list(list(T))) -> list(T)", ".(list(dyn), int) -> list(dyn)", cost=_flattened
)
def _flatten(values: list[Value], level: int = 1) -> list[Value]:
    if level < 0:
        raise EvaluationError("level must be non-negative")
    result = list(values)
    while level and any(isinstance(each, list) for each in result):
        level -= 1
        result = [
            inner for each in result for inner in (each if isinstance(each, list) else (each,))
        ]
    return result


def _sorted_by(values: list[Value], keys: list[Value]) -> list[Value]:
    if any(type(each) is not type(keys[0]) for each in keys):
        raise EvaluationError("list elements must have the same type")
    if len(keys) == 1:
        order(keys[0], keys[0])
    places: list[int] = list(range(len(values)))

    def compare(one: int, other: int) -> int:
        return order(keys[one], keys[other])

    places.sort(key=cmp_to_key(compare))
    return [values[place] for place in places]


@LISTS.function("sort", *_SORTING, cost=cost.sorting)
def _sort(values: list[Value]) -> list[Value]:
    return _sorted_by(values, values)


@LISTS.function("@sortByAssociatedKeys", *_KEYED, cost=cost.sorting)
def _sort_by_keys(values: list[Value], keys: list[Value]) -> list[Value]:
    return _sorted_by(values, keys)


@LISTS.function(
    "lists.range", "(int) -> list(int)", cost=lambda length: cost.LIST_COST + max(0, length)
)
def _range(length: int) -> list[Value]:
    if length > _MAX_RANGE:
        raise EvaluationError(f"lists.range: {length} is more than {_MAX_RANGE}")
    return list(range(length))


@LISTS.function("reverse", ".(list(T)) -> list(T)", cost=_length)
def _reverse(values: list[Value]) -> list[Value]:
    return list(reversed(values))


@LISTS.function("distinct", ".(list(T)) -> list(T)", cost=_squared)
def _distinct(values: list[Value]) -> list[Value]:
    result: list[Value] = []
    for each in values:
        if not contains(result, each):
            result.append(each)
    return result


@LISTS.function("sets.contains", "(list(T), list(T)) -> bool", cost=cost.pairs)
def _sets_contains(values: list[Value], wanted: list[Value]) -> bool:
    return all(contains(values, each) for each in wanted)


@LISTS.function("sets.equivalent", "(list(T), list(T)) -> bool", cost=cost.pairs)
def _sets_equivalent(left: list[Value], right: list[Value]) -> bool:
    return _sets_contains(left, right) and _sets_contains(right, left)


@LISTS.function("sets.intersects", "(list(T), list(T)) -> bool", cost=cost.pairs)
def _sets_intersects(left: list[Value], right: list[Value]) -> bool:
    return any(contains(left, each) for each in right)
