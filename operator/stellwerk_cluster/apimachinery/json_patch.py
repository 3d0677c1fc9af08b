"""JSON patch (RFC 6902), with the habits of the API server: indices from the end, null for nothing.

A pure function from (object, operations) to a new object, called by `patching`. Invariant: the
original is not changed.
"""

from __future__ import annotations

import copy
import re
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    StatusError,
    bad_request,
    patch_rejected,
    too_many_operations,
)
from stellwerk_kube.schema.mismatches import json_name

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject, JsonValue

MAX_OPERATIONS: Final = 10_000
"""Operations of a JSON patch (`maxJSONPatchOperations`)."""
_MAX_COPIED_BYTES: Final = 3 << 20
"""Bytes to which copies may make a document grow: a copy of a copy doubles it."""
_OPERATION: Final = "handlers.jsonPatchOp"
_TEXTS: Final = ("op", "path", "from")
_INDEX: Final = re.compile(r"-?\d{1,9}")


def json_patch(target: JsonObject, operations: JsonValue) -> JsonObject:
    """The target after the operations.

    Raises:
        StatusError: the patch is no list of operations (400), has too many (413), or one of them is
            malformed, its path is missing or its test fails (422).
    """
    _check_types(operations)
    operations = operations or []
    if len(operations) > MAX_OPERATIONS:
        raise too_many_operations(MAX_OPERATIONS, len(operations))
    document: JsonValue = copy.deepcopy(target)
    copied_bytes = 0
    for operation in operations:
        try:
            if operation["op"] == "copy":
                copied_bytes += len(orjson.dumps(_at(document, pointer(operation["from"]))))
            document = _apply_operation(document, operation)
        except (AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
            raise patch_rejected() from error
        if copied_bytes > _MAX_COPIED_BYTES:
            raise patch_rejected()
    if not isinstance(document, dict):
        raise patch_rejected()
    return document


def _check_types(operations: JsonValue) -> None:
    """Refuse what the API server cannot read as a list of operations."""
    if not isinstance(operations, (list, type(None))):
        raise _undecodable(operations, f"Go value of type []{_OPERATION}")
    for operation in operations or ():
        if not isinstance(operation, (dict, type(None))):
            raise _undecodable(operation, f"Go value of type {_OPERATION}")
        for name in _TEXTS:
            value = (operation or {}).get(name)
            if not isinstance(value, (str, type(None))):
                raise _undecodable(value, f"Go struct field jsonPatchOp.{name} of type string")


def _undecodable(value: JsonValue, place: str) -> StatusError:
    found = json_name(value)
    return bad_request(f"error decoding patch: json: cannot unmarshal {found} into {place}")


def unknown_fields(operations: JsonValue) -> list[str]:
    """The paths of the fields of operations that no operation has."""
    return [
        f"[{position}].{name}"
        for position, operation in enumerate(operations if isinstance(operations, list) else ())
        for name in (operation if isinstance(operation, dict) else ())
        if name not in (*_TEXTS, "value")
    ]


def _apply_operation(document: JsonValue, operation: JsonObject) -> JsonValue:
    path = pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation.get("value"), insert=True)
        case "replace":
            _at(document, path)
            return _put(document, path, operation.get("value"), insert=False)
        case "remove":
            _take(document, path)
        case "test":
            if not _equal(_found(document, path), operation.get("value")):
                raise patch_rejected()
        case "move":
            return _put(document, path, _take(document, pointer(operation["from"])), insert=True)
        case "copy":
            value = copy.deepcopy(_at(document, pointer(operation["from"])))
            return _put(document, path, value, insert=True)
        case _:
            raise patch_rejected()
    return document


def _equal(one: JsonValue, other: JsonValue) -> bool:
    """Whether the values are equal as JSON, where true is not 1."""
    sort = orjson.OPT_SORT_KEYS
    return orjson.dumps(one, option=sort) == orjson.dumps(other, option=sort)


def pointer(text: JsonValue) -> list[str]:
    """The parts of a JSON pointer.

    Raises:
        ValueError: it does not begin at the root.
    """
    if text == "":
        return []
    if not isinstance(text, str) or not text.startswith("/"):
        raise ValueError(text)
    return [part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/")]


def _index(part: str, length: int) -> int:
    """A position in a list of that length; negative ones count from its end."""
    if not _INDEX.fullmatch(part):
        raise ValueError(part)
    position = int(part)
    if position < 0:
        position += length
    if not 0 <= position < length:
        raise IndexError(part)
    return position


def _at(document: JsonValue, path: list[str]) -> JsonValue:
    for part in path:
        document = (
            document[_index(part, len(document))] if isinstance(document, list) else document[part]
        )
    return document


def _found(document: JsonValue, path: list[str]) -> JsonValue:
    """The value at the path; a field that is missing is as good as null to a test."""
    if not path:
        return document
    parent = _at(document, path[:-1])
    return parent.get(path[-1]) if isinstance(parent, dict) else _at(parent, path[-1:])


def _put(document: JsonValue, path: list[str], value: JsonValue, *, insert: bool) -> JsonValue:
    if not path:
        return value
    parent, last = _at(document, path[:-1]), path[-1]
    if not isinstance(parent, list):
        parent[last] = value
    elif insert:
        position = len(parent) if last == "-" else _index(last, len(parent) + 1)
        parent.insert(position, value)
    else:
        parent[_index(last, len(parent))] = value
    return document


def _take(document: JsonValue, path: list[str]) -> JsonValue:
    parent, last = _at(document, path[:-1]), path[-1]
    return parent.pop(_index(last, len(parent)) if isinstance(parent, list) else last)
