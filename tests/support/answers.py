"""Answers as the operator's port writes them."""

from typing import Any

from stellwerk.answers.answer import Kind, codec
from stellwerk.explain.steps import Steps, finished


def as_json(answer: Kind) -> dict[str, Any]:
    """The JSON of an answer."""
    return codec(type(answer)).as_json(answer)


def written(steps: Steps[Kind]) -> dict[str, Any]:
    """The JSON of what all steps come to."""
    return as_json(finished(steps))
