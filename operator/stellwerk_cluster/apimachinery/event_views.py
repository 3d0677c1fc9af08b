"""Two groups, one store: events are kept in their core/v1 form and shown in either.

Used by `views`, and by selectors of fields. Invariant: converting there and
back loses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

NEW_GROUP: Final = "events.k8s.io"
_CORE_NAME: Final = {
    "note": "message",
    "regarding": "involvedObject",
    "reportingController": "reportingComponent",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
}
_NEW_NAME: Final = {core: new for new, core in _CORE_NAME.items()}
_EMPTY_IN_CORE: Final[JsonObject] = {
    "involvedObject": {},
    "source": {},
    "firstTimestamp": None,
    "lastTimestamp": None,
    "eventTime": None,
    "reportingComponent": "",
    "reportingInstance": "",
}
_EMPTY_IN_NEW: Final[JsonObject] = {
    "eventTime": None,
    "regarding": {},
    "deprecatedSource": {},
    "deprecatedFirstTimestamp": None,
    "deprecatedLastTimestamp": None,
}


def to_core(obj: JsonObject) -> JsonObject:
    """The core/v1 form of an event in events.k8s.io."""
    core = {_CORE_NAME.get(name, name): value for name, value in obj.items()}
    # Kind and apiVersion come first: rendering cuts them off the bytes of list items.
    return {"kind": "Event", "apiVersion": "v1", **_EMPTY_IN_CORE, **_without_type(core)}


def from_core(obj: JsonObject) -> JsonObject:
    """The events.k8s.io form of an event in core/v1."""
    empty = ("reportingComponent", "reportingInstance")
    shown = {
        _NEW_NAME.get(name, name): value
        for name, value in obj.items()
        if value != "" or name not in empty
    }
    type_ = {"kind": "Event", "apiVersion": f"{NEW_GROUP}/v1"}
    return {**type_, **_EMPTY_IN_NEW, **_without_type(shown)}


def _without_type(obj: JsonObject) -> JsonObject:
    return {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}


def field_path(kind: ResourceKind, name: str) -> tuple[str, ...]:
    """Where the value of a field selector lies in the stored form."""
    if kind.storage_name == "events":
        if name == "source":
            return ("source", "component")
        head, _, rest = name.partition(".")
        head = _CORE_NAME.get(head, head)
        return (head, rest) if rest else (head,)
    if name == "status.successful":
        return ("status", "succeeded")
    return tuple(name.split("."))
