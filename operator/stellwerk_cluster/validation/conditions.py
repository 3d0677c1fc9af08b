"""The rules of conditions as most kinds have them (metav1.Condition).

Called by the validation of statuses. Invariant: as elsewhere, one `FieldError` for each wrong
field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    too_long,
    unsupported,
)
from stellwerk_cluster.validation.checks import not_negative, qualified_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from stellwerk.models.json_values import JsonObject

_STATUSES: Final = ("False", "True", "Unknown")
_REASON: Final = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_LONGEST_REASON: Final = 1024
_LONGEST_MESSAGE: Final = 32768


def condition_errors(conditions: Sequence[JsonObject], field: str) -> Iterator[FieldError]:
    """What is wrong with the conditions of a status."""
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        where = f"{field}[{position}]"
        if condition["type"] in seen:
            yield duplicate(f"{where}.type", condition["type"])
        seen.add(condition["type"])
        yield from _one(condition, where)


def _one(condition: JsonObject, where: str) -> Iterator[FieldError]:
    if not condition["type"]:
        yield required(f"{where}.type")
    else:
        yield from qualified_name(condition["type"], f"{where}.type")
    if condition["status"] not in _STATUSES:
        yield unsupported(f"{where}.status", condition["status"], _STATUSES)
    yield from not_negative(condition.get("observedGeneration", 0), f"{where}.observedGeneration")
    if condition["lastTransitionTime"] is None:
        yield required(f"{where}.lastTransitionTime")
    reason, message = condition["reason"], condition["message"]
    if not reason:
        yield required(f"{where}.reason")
    elif not re.fullmatch(_REASON, reason):
        text = (
            "a condition reason must start with alphabetic character, optionally followed by a "
            "string of alphanumeric characters or '_,:', and must end with an alphanumeric "
            "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',"
            f"  or 'ReasonA:ReasonB', regex used for validation is '{_REASON}')"
        )
        yield bad_value(f"{where}.reason", reason, text)
    if len(reason) > _LONGEST_REASON:
        yield too_long(f"{where}.reason", _LONGEST_REASON)
    if len(message) > _LONGEST_MESSAGE:
        yield too_long(f"{where}.message", _LONGEST_MESSAGE)
