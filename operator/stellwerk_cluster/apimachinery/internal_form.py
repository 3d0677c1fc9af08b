"""Values as the API server's messages print them: its internal types, as JSON, and their diff.

A refusal quotes values in the server's own form, which has other names, another order and no
absent fields. The tables have the order, and say what a missing field is. Called by the rules of
kinds. Invariant: the value that is printed is not changed.
"""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.schema.tables import blocks
from stellwerk_kube.schema.types import type_block, types

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject, JsonValue
    from stellwerk_kube.schema.types import Field

_HOST_FIELDS: Final = ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "hostUsers")
"""Fields of a pod that the internal form has in the security context."""
_MAX_COMPARED_LINES: Final = 4000
"""Lines of the texts of two versions of an object that are compared for a message: the time grows
with their product."""
_ZEROS: Final[dict[str, JsonValue]] = {
    "string": "",
    "int": 0,
    "bool": False,
    "float": 0,
    "Quantity": "0",
    "IntOrString": 0,
}


@dataclass(frozen=True, slots=True)
class _Printed:
    """One field of an internal type."""

    name: str
    key: str
    type: str
    missing: JsonValue


@dataclass(frozen=True, slots=True)
class _Layout:
    """The fields of an internal type in order; `inline` types leave out what is not set."""

    fields: tuple[_Printed, ...]
    inline: bool


def internal_form(type_name: str, value: JsonValue) -> JsonValue:
    """The value as its internal type prints it; types without a layout stay as they are."""
    if value is None:
        return None
    if type_name.startswith("["):
        return [internal_form(type_name[1:-1], each) for each in value]
    layout = _layout(type_name)
    if layout is None:
        return value
    if type_name == "PodSpec":
        value = _with_host_fields(value)
    printed: JsonObject = {}
    if isinstance(value.get("metadata"), dict):
        printed.update(value["metadata"])
    for each in layout.fields:
        if each.key in value:
            printed[each.name] = internal_form(each.type, value[each.key])
        elif not layout.inline:
            printed[each.name] = _missing(each)
    return printed


def _missing(field: _Printed) -> JsonValue:
    """The zero of a field; a struct that is no pointer is printed with its own zeros."""
    return internal_form(field.type, {}) if field.missing == EMPTY else field.missing


def _with_host_fields(spec: JsonObject) -> JsonObject:
    context = spec.get("securityContext")
    moved = {name: spec[name] for name in _HOST_FIELDS if name in spec}
    if context is None and not moved:
        return spec
    return {**spec, "securityContext": {**(context or {}), **moved}}


def internal_diff(type_name: str, old: JsonValue, new: JsonValue) -> str:
    """The unified diff of the internal forms of two values.

    Of values with very many lines, nothing: comparing them takes the square of their length.
    """
    before, after = (_lines(internal_form(type_name, each)) for each in (old, new))
    if max(len(before), len(after)) > _MAX_COMPARED_LINES:
        return ""
    return "".join(list(difflib.unified_diff(before, after))[2:])


def _lines(value: JsonValue) -> list[str]:
    return [f"{line}\n" for line in go_json(value, indent=1).split("\n")]


def go_json(value: JsonValue, indent: int | None = None) -> str:
    """A value as Go's encoder writes it: compact, and safe to stand in HTML."""
    separators = (",", ":") if indent is None else (",", ": ")
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def _layout(type_name: str) -> _Layout | None:
    name = next((each for each in (type_name, f"~{type_name}") if each in blocks()), "")
    found = type_block(name) if name else None
    if found is None or "internal" not in found.words:
        return None
    inline = found.words["internal"] == "inline"
    shown = [each for each in found.lines if each.words.get("as") != "-"]
    return _Layout(tuple(_printed(each, inline=inline) for each in shown), inline)


def _printed(field: Field, *, inline: bool) -> _Printed:
    key = field.name.lstrip("~")
    given = field.words.get("as", "")
    name = given.rstrip("*") or (key if inline else key[0].upper() + key[1:])
    is_pointer = given.endswith("*") or "pointer" in field.words
    missing = None if is_pointer else _ZEROS.get(field.type)
    if field.type in types() and field.words.keys() & {"present", "always"}:
        missing = EMPTY
    return _Printed(name, key, field.type, missing)
