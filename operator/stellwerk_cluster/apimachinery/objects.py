"""The shape of API objects inside the embedded cluster, and the few accessors all modules need.

Objects are plain JSON dictionaries. Invariant: an object that is in the store is never changed in
place; a change builds new dictionaries along the changed path and shares the rest.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_cluster.apimachinery.failures import too_many_parts
from stellwerk_kube.clock import parse_moment, rfc3339_microseconds, rfc3339_seconds

if TYPE_CHECKING:
    from datetime import datetime

    from stellwerk_kube.json_values import JsonObject, JsonValue

Key: TypeAlias = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""

EMPTY: Final[JsonObject] = {}
MAX_OBJECT_PARTS: Final = 60_000
"""Keys and values of an object or of a body. What the API does with an object on the event loop
(defaults, managed fields, its answer) takes up to 3 µs for each and holds all other requests: 0.2 s
at most."""


def check_object_parts(value: JsonValue) -> None:
    """Refuse a value of more than `MAX_OBJECT_PARTS` keys and values.

    Raises:
        StatusError: it has more (413).
    """
    parts, waiting = 0, [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            parts += 1 + len(each)
            waiting += each.values()
        elif isinstance(each, list):
            parts += 1
            waiting += each
        else:
            parts += 1
        if parts > MAX_OBJECT_PARTS:
            raise too_many_parts(MAX_OBJECT_PARTS)


def path_of(key: Key) -> str:
    """The path of a key, by which lists are ordered as in etcd: `a-b` comes before `a/`."""
    return f"{key[0]}/{key[1]}"


def meta(obj: JsonObject) -> JsonObject:
    """The metadata of an object (empty if it has none)."""
    found: JsonObject = obj.get("metadata") or EMPTY
    return found


def key_of(obj: JsonObject) -> Key:
    """The key under which an object is stored."""
    metadata = meta(obj)
    return metadata.get("namespace", ""), metadata.get("name", "")


def labels_of(obj: JsonObject) -> dict[str, str]:
    """The labels of an object (empty if it has none)."""
    found: dict[str, str] = meta(obj).get("labels") or EMPTY
    return found


def controller_of(obj: JsonObject) -> JsonObject | None:
    """The owner reference of the controller that manages an object."""
    for reference in meta(obj).get("ownerReferences", ()):
        if reference.get("controller"):
            owner: JsonObject = reference
            return owner
    return None


def is_terminating(obj: JsonObject) -> bool:
    """Whether deletion of the object has begun."""
    return "deletionTimestamp" in meta(obj)


def pick(obj: JsonValue, path: tuple[str, ...]) -> JsonValue:
    """The value under a path of keys, or None."""
    for part in path:
        if not isinstance(obj, dict):
            return None
        obj = obj.get(part)
    return obj


def with_value(obj: JsonObject, path: tuple[str, ...], value: JsonValue) -> JsonObject:
    """A copy of the object that has `value` under `path`; None removes the key."""
    head, *rest = path
    changed = dict(obj)
    if rest:
        changed[head] = with_value(obj.get(head) or EMPTY, tuple(rest), value)
    elif value is None:
        changed.pop(head, None)
    else:
        changed[head] = value
    return changed


def deep_copy(obj: JsonObject) -> JsonObject:
    """A copy that shares nothing with the original."""
    return copy.deepcopy(obj)


timestamp: Final = rfc3339_seconds
"""Write a Time of the API."""
micro_timestamp: Final = rfc3339_microseconds
"""Write a MicroTime of the API."""


def parse_timestamp(text: str) -> datetime:
    """The moment that a timestamp names.

    Raises:
        ValueError: the text is no RFC 3339 time.
    """
    return parse_moment(text)


def go_text(value: JsonValue) -> str:
    """A value as Go's %v prints it: maps with their keys in order, strings bare."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_text(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(go_text(each) for each in value)}]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
