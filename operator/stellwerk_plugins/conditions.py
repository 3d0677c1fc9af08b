"""The condition Accepted of objects that plugins read, and the event that goes with it.

The tasks of `quotas` and `numa` write them beside the cycle. Invariant: what is wrong with an
object is said in its condition where its definition has one, and in one event.
"""

from collections.abc import Mapping
from typing import Any, Final

from stellwerk.plugin_api import JsonObject, ObjectReference, Recorder

ACCEPTED: Final = "Accepted"
_INVALID: Final = "Invalid"
_MAX_CHARACTERS: Final = 1024
"""Characters of a condition's message. The API server takes 32 times as many."""


def message_of(faults: tuple[str, ...]) -> str:
    """Faults in one line, as short as a condition's message has to be; empty: there are none."""
    return "; ".join(faults)[:_MAX_CHARACTERS]


def part(of: object, name: str) -> Mapping[str, Any]:
    """A part of an object that should have parts itself; empty where it is of another form."""
    found = of.get(name) if isinstance(of, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def said(status: Mapping[str, Any]) -> str:
    """The message of the condition against an object; empty: there is none."""
    conditions = status.get("conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, Mapping) and each.get("type") == ACCEPTED:
            return str(each.get("message") or "")
    return ""


def condition(message: str) -> JsonObject:
    """The condition with a message against the object, or without one."""
    return {
        "type": ACCEPTED,
        "status": "False" if message else "True",
        "reason": _INVALID if message else ACCEPTED,
        "message": message,
    }


def warn(recorder: Recorder, api_version: str, kind: str, obj: JsonObject, message: str) -> None:
    """Write an event of what is wrong with an object; of one without a namespace in `default`."""
    metadata = obj["metadata"]
    regarding = ObjectReference(
        api_version=api_version,
        kind=kind,
        name=metadata["name"],
        namespace=metadata.get("namespace") or "",
        uid=metadata.get("uid") or "",
    )
    recorder.event(
        regarding, "Warning", _INVALID, "Checking", message, reporting_controller="stellwerk"
    )
