"""The columns of custom kinds: those that their definition declares, each with a JSON path.

Asked by `tables`. Invariant: a path that leads nowhere shows an empty cell.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.durations import age_text
from stellwerk_cluster.apimachinery.objects import JsonValue, pick
from stellwerk_cluster.apiserver.columns import Cell, Column, name_column

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject

_AGE: Final[JsonObject] = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}
"""What a definition without columns shows beside the name."""


def custom_columns(declared: list[JsonObject] | None) -> Iterator[Column]:
    """The name, and the additionalPrinterColumns of a version (None: it declares none)."""
    yield name_column()
    for each in [_AGE] if declared is None else declared:
        yield Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
            each.get("priority", 0),
            _json_path_cell(each["jsonPath"], each["type"]),
        )


@lru_cache(maxsize=1 << 10)
def _json_path_cell(path: str, type_: str) -> Cell:
    parts = tuple(re.findall(r"[^.\[\]]+", path.replace("\\.", "\0")))
    parts = tuple(part.replace("\0", ".").strip("'\"") for part in parts)

    def cell(obj: JsonObject, now: datetime) -> JsonValue:
        found = _follow(obj, parts)
        if found is None:
            return None
        if type_ == "date":
            return age_text(str(found), now)
        return found if type_ in ("integer", "number", "boolean") else _as_text(found)

    return cell


def _follow(obj: JsonValue, parts: tuple[str, ...]) -> JsonValue:
    """The value under a JSON path of names, list positions and filters `?(@.name=="value")`."""
    for position, part in enumerate(parts):
        if isinstance(obj, list):
            chosen = re.match(r"\?\(@$", part)
            if chosen or part.startswith("?("):
                return _filtered(obj, ".".join(parts[position:]))
            if not part.lstrip("-").isdigit() or not -len(obj) <= int(part) < len(obj):
                return None
            obj = obj[int(part)]
        elif isinstance(obj, dict):
            obj = obj.get(part)
        else:
            return None
    return obj


def _filtered(items: list[JsonValue], rest: str) -> JsonValue:
    match = re.match(r"\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\.?(.*)$", rest)
    if match is None:
        return None
    for item in items:
        if isinstance(item, dict) and str(item.get(match[1])) == match[2]:
            return pick(item, tuple(filter(None, match[3].split("."))))
    return None


def _as_text(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
