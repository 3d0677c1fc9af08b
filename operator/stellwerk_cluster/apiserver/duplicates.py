"""Fields that stand twice in a JSON body, with their paths.

Asked for every body that a client sends. Invariant: a body without such fields costs two counts of
its quotation marks and no second parse.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.objects import JsonValue


class _Noting(dict[str, "JsonValue"]):
    """An object that remembers which of its fields stood in it more than once."""

    doubled: list[str]


def duplicate_fields(content: bytes, value: JsonValue) -> list[str]:
    """The paths of the fields that stand twice in a text whose value is known."""
    # A field that was overwritten took its quotation marks along.
    if b"\\u" not in content and content.count(b'"') == orjson.dumps(value).count(b'"'):
        return []
    return list(_paths(json.loads(content, object_pairs_hook=_noted), ""))


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
