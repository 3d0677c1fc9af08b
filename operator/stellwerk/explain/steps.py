"""The type of long answers: computed in steps, between which decisions have their turn.

Every part of `explain` that the operator's port serves returns one. Invariant: a step takes
milliseconds, and the live World may change between two of them.
"""

from collections.abc import Generator
from typing import TypeAlias

from stellwerk.models.json_values import JsonObject

Steps: TypeAlias = Generator[None, None, JsonObject]
"""Yields between steps, returns the result."""


def finished(steps: Steps) -> JsonObject:
    """What all steps come to, taken at once: where no decision waits for its turn."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: JsonObject = ended.value
            return result
