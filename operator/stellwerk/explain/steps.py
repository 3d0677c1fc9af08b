"""The type of long answers: computed in steps, between which decisions have their turn.

Every part of `explain` that the operator's port serves returns one. Invariant: a step takes
milliseconds, and the live World may change between two of them.
"""

from collections.abc import Generator
from typing import TypeAlias, TypeVar

from stellwerk.models.json_values import JsonObject

Steps: TypeAlias = Generator[None, None, JsonObject]
"""Yields between steps, returns the result."""
Result = TypeVar("Result")


def finished(steps: Generator[None, None, Result]) -> Result:
    """What all steps come to, taken at once: where no decision waits for its turn."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: Result = ended.value
            return result
