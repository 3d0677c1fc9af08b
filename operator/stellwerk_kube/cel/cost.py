"""The cost limit of evaluations, in cel-go's units.

A `Frame` holds the variables of one evaluation and counts its cost, which closures of `compiler`
charge. Invariant: nothing whose effort grows with its input runs before its cost is charged.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel.errors import CostLimitError
from stellwerk_kube.cel.values import size_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk_kube.cel.values import Value

MAX_CALL_COST: Final = 1_000_000
"""Highest cost of one evaluation: Kubernetes' PerCallLimit."""

MAX_VALIDATION_COST: Final = 10_000_000
"""Highest cost of all rules of one validation: Kubernetes' RuntimeCELCostBudget."""

LIST_COST: Final = 10
"""Cost of making a list: cel-go's `ListCreateBaseCost`."""
MAP_COST: Final = 30
"""Cost of making a map: cel-go's `MapCreateBaseCost`."""
_COST_PER_CHARACTER: Final = 0.1
"""Cost of each character or byte that a function reads: cel-go's `StringTraversalCostFactor`."""
_COST_PER_PATTERN_CHARACTER: Final = 0.25
"""Factor for each character of a pattern: cel-go's `RegexStringLengthCostFactor`."""
_CHARACTERS_PER_ELEMENT: Final = 1000
"""Characters of a text in a list that count as one element more when lists are compared."""
_KEYS_PER_COST: Final = 20
"""Keys of a map that are compared for a cost of 1: a comparison is cheaper than a call."""


class Frame:
    """The variables of one evaluation, and its cost so far."""

    __slots__ = ("cost", "limit", "variables")

    def __init__(self, variables: Mapping[str, Value], limit: int = MAX_CALL_COST) -> None:
        """Start with what the caller binds, at no cost."""
        self.variables = dict(variables)
        self.cost = 0
        self.limit = limit

    def charge(self, cost: int) -> None:
        """Add to the cost.

        Raises:
            CostLimitError: that is more than the evaluation may cost.
        """
        self.cost += cost
        if self.cost > self.limit:
            raise CostLimitError


def unit(*_operands: Value) -> int:
    """The cost of what does not depend on size."""
    return 1


def traversal(value: Value, *_rest: Value) -> int:
    """The cost of reading a text once."""
    return ceil(size_of(value) * _COST_PER_CHARACTER)


def rewriting(value: Value, *_rest: Value) -> int:
    """The cost of reading a text and writing another."""
    return ceil(size_of(value) * 2 * _COST_PER_CHARACTER)


def weight(value: Value) -> int:
    """The number of values in a value, however deep; a long text counts as several.

    A list that holds one list twice counts it twice: that is what comparing or showing it costs.

    Raises:
        CostLimitError: they are more than any evaluation may look at.
    """
    if not isinstance(value, (list, dict)):
        return 1
    count = 0
    waiting = [value]
    while waiting:
        found = waiting.pop()
        count += len(found)
        if count > MAX_CALL_COST:
            raise CostLimitError
        inner = found.values() if isinstance(found, dict) else found
        for each in inner:
            if isinstance(each, (list, dict)):
                waiting.append(each)
            elif isinstance(each, (str, bytes)):
                count += len(each) // _CHARACTERS_PER_ELEMENT
    return count


def containment(element: Value, container: Value) -> int:
    """The cost of looking for an element in a list, or for a key in a map."""
    return weight(container) if isinstance(container, list) else keyed(container, element)


def keyed(container: Value, key: Value) -> int:
    """The cost of taking a value out of a list or map.

    Python takes 1 for true and 0 for false, so that these keys are looked for one by one.
    """
    if isinstance(container, dict) and not isinstance(key, str) and key in (0, 1):
        return 1 + len(container) // _KEYS_PER_COST
    return 1


def comparison(left: Value, right: Value) -> int:
    """The cost of comparing two values."""
    if isinstance(left, (list, dict)) and isinstance(right, (list, dict)):
        return ceil(min(weight(left), weight(right)) * _COST_PER_CHARACTER)
    return ceil(min(size_of(left), size_of(right)) * _COST_PER_CHARACTER)


def addition(left: Value, right: Value) -> int:
    """The cost of adding two values.

    Kubernetes' lists share their parts, so that adding them costs 1 there; here they are copied.
    """
    if isinstance(left, (str, bytes)):
        return ceil((size_of(left) + size_of(right)) * _COST_PER_CHARACTER)
    if isinstance(left, list) and isinstance(right, list):
        return 1 + int((len(left) + len(right)) * _COST_PER_CHARACTER)
    return 1


def search(text: Value, part: Value) -> int:
    """The cost of looking for a text in another."""
    return ceil(size_of(text) * _COST_PER_CHARACTER) * ceil(size_of(part) * _COST_PER_CHARACTER)


def matching(text: Value, pattern: Value, *_rest: Value) -> int:
    """The cost of matching a text with a pattern."""
    return ceil((1 + size_of(text)) * _COST_PER_CHARACTER) * ceil(
        size_of(pattern) * _COST_PER_PATTERN_CHARACTER
    )


def elements(values: Value, *_rest: Value) -> int:
    """The cost of going through a list, its texts included, or through a text."""
    if isinstance(values, list):
        return (
            sum(ceil(size_of(each) * _COST_PER_CHARACTER) for each in values) + weight(values) // 10
        )
    return ceil(size_of(values) * _COST_PER_CHARACTER)


def sorting(values: Value, keys: Value | None = None) -> int:
    """The cost of sorting a list, by itself or by as many keys."""
    compared = values if keys is None else keys
    return LIST_COST + len(values) + elements(compared) * max(1, len(compared).bit_length())


def pairs(left: Value, right: Value) -> int:
    """The cost of comparing each element with each of another list."""
    return max(1, weight(left) * weight(right))
