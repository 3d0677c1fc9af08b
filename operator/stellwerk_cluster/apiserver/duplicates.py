"""Fields that stand twice in a JSON body, with their paths.

Asked for every body that a client sends. Invariant: a body without such fields costs two counts of
its quotation marks and no second parse.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson

from stellwerk_cluster.apimachinery.failures import bad_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.objects import JsonValue


class _Noting(dict[str, "JsonValue"]):
    """An object that remembers which of its fields stood in it more than once."""

    doubled: list[str]


def duplicate_fields(content: bytes, value: JsonValue) -> list[str]:
    """The paths of the fields that stand twice in a text whose value is known.

    Raises:
        StatusError: the text is nested more deeply than can be followed (400).
    """
    if _has_as_many_texts(content, value):
        return []
    try:
        return list(_paths(json.loads(content, object_pairs_hook=_noted), ""))
    except RecursionError as error:
        message = "error decoding: json: exceeded max depth"
        raise bad_request(message) from error


def _has_as_many_texts(content: bytes, value: JsonValue) -> bool:
    """A field that was overwritten took its quotation marks along."""
    if b"\\u" in content:
        return False
    try:
        return content.count(b'"') == orjson.dumps(value).count(b'"')
    except orjson.JSONEncodeError:  # what is read may be nested more deeply than what is written
        return False


def _noted(pairs: list[tuple[str, JsonValue]]) -> _Noting:
    found = _Noting()
    found.doubled = []
    for name, value in pairs:
        if name in found and name not in found.doubled:
            found.doubled.append(name)
        found[name] = value
    return found


def _paths(value: JsonValue, path: str) -> Iterator[str]:
    if isinstance(value, _Noting):
        for name, item in value.items():
            where = f"{path}.{name}" if path else name
            if name in value.doubled:
                yield where
            yield from _paths(item, where)
    elif isinstance(value, list):
        for position, item in enumerate(value):
            yield from _paths(item, f"{path}[{position}]")
