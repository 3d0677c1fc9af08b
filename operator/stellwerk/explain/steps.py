"""The type of long answers: computed in steps, between which decisions have their turn.

Every part of `explain` that the operator's port serves returns one. Invariant: a step takes
milliseconds, and the live World may change between two of them.
"""

from collections.abc import Generator
from typing import TypeAlias

from stellwerk.models.json_values import JsonObject

Steps: TypeAlias = Generator[None, None, JsonObject]
"""Yields between steps, returns the result."""
