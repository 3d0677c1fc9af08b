"""Custom objects as CEL rules see them: the types that a schema declares, and the values.

Called by `rules`. Invariant: a value is converted only where the schema gives it another type than
JSON does, or a name that rules cannot write; otherwise rules read the object itself.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.cel.library.moments import parse_duration, parse_timestamp
from stellwerk_kube.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    ObjectType,
    Type,
    list_of,
    map_of,
)
from stellwerk_kube.cel.values import MapList, SetList

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk_kube.cel.values import Value
    from stellwerk_kube.json_values import JsonObject, JsonValue

Converter: TypeAlias = "Callable[[JsonValue], Value]"

_RESERVED: Final = frozenset(
    # A list of words is easier to compare with the grammar than a set of literals.
    [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ]
)
"""Words of CEL. A field of such a name is written `self.__namespace__`, and since Kubernetes 1.31
also `self.namespace` (`DeclTypeProvider.SetRecognizeKeywordAsFieldName`); the grammar does not take
the first four in the second form.
"""
_NAME: Final = re.compile(r"[a-zA-Z_./-][a-zA-Z0-9_./-]*")
_SPECIAL: Final = re.compile(r"__|[-./]")
_ESCAPES: Final = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_SCALARS: Final = {"boolean": BOOL, "number": DOUBLE, "integer": INT}
_FORMATS: Final = {
    "byte": BYTES,
    "duration": DURATION,
    "date": TIMESTAMP,
    "date-time": TIMESTAMP,
}
_ROOT_FIELDS: Final = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {
        "type": "object",
        "properties": {"name": {"type": "string"}, "generateName": {"type": "string"}},
    },
}


def escaped(name: str) -> str | None:
    """The name of a property as rules write it; None for a name that they cannot write."""
    if name in _RESERVED:
        return f"__{name}__"
    if not _NAME.fullmatch(name):
        return None
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], name)


def with_root_fields(schema: JsonObject) -> JsonObject:
    """The schema of a whole object, with the fields that every object has."""
    properties = {**(schema.get("properties") or EMPTY), **_ROOT_FIELDS}
    return {**schema, "type": "object", "properties": properties}


def _is_embedded(schema: JsonObject) -> bool:
    return bool(schema.get("x-kubernetes-embedded-resource"))


def declared_type(schema: JsonObject) -> Type | None:
    """The type that a schema declares; None if rules do not see its values."""
    if schema.get("x-kubernetes-int-or-string"):
        return DYN
    if _is_embedded(schema):
        schema = with_root_fields(schema)
    match schema.get("type"):
        case "array":
            items = declared_type(schema.get("items") or EMPTY)
            return list_of(items) if items is not None else None
        case "object":
            return _object_type(schema)
        case "string":
            return _FORMATS.get(schema.get("format", ""), STRING)
        case kind:
            return _SCALARS.get(str(kind))


def _object_type(schema: JsonObject) -> Type | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        values = declared_type(additional)
        return map_of(STRING, values) if values is not None else None
    fields: dict[str, Type] = {}
    for name, part in (schema.get("properties") or EMPTY).items():
        shown, declared = escaped(name), declared_type(part)
        if shown is not None and declared is not None:
            fields[shown] = declared
            if name in _RESERVED:
                fields[name] = declared
    return ObjectType("object", (), fields)


def converter(schema: JsonObject) -> Converter | None:
    """The function that makes the value that rules see; None if that is the JSON value."""
    if schema.get("x-kubernetes-int-or-string"):
        return None
    match schema.get("type"):
        case "array":
            return _list_converter(schema)
        case "object":
            return _object_converter(schema)
        case "number":
            return _number
        case "string":
            return _TEXT_CONVERTERS.get(schema.get("format", ""))
        case _:
            return None


def _number(value: JsonValue) -> Value:
    return value if value is None else float(value)


def _list_converter(schema: JsonObject) -> Converter | None:
    convert = converter(schema.get("items") or EMPTY)
    sort = schema.get("x-kubernetes-list-type")
    keys = tuple(escaped(name) or name for name in schema.get("x-kubernetes-list-map-keys") or ())
    if convert is None and sort not in ("set", "map"):
        return None

    def convert_list(value: JsonValue) -> Value:
        if not isinstance(value, list):
            return value
        elements = list(map(convert, value)) if convert else value
        if sort == "set":
            return SetList(elements)
        return MapList(elements, keys) if sort == "map" else elements

    return convert_list


def _object_converter(schema: JsonObject) -> Converter | None:
    additional = schema.get("additionalProperties")
    if isinstance(additional, dict):
        convert = converter(additional)
        return _map_converter(convert) if convert else None
    changed: dict[str, tuple[str, Converter | None]] = {}
    for name, part in (schema.get("properties") or EMPTY).items():
        shown, convert_part = escaped(name), converter(part)
        if shown is not None and (shown != name or convert_part is not None):
            changed[name] = shown, convert_part
    if not changed:
        return None

    def convert_object(value: JsonValue) -> Value:
        if not isinstance(value, dict):
            return value
        result: dict[Value, Value] = {}
        for name, item in value.items():
            shown, convert_item = changed.get(name, (name, None))
            result[shown] = convert_item(item) if convert_item else item
            if shown != name and name in _RESERVED:
                result[name] = result[shown]
        return result

    return convert_object


def _map_converter(convert: Converter) -> Converter:
    def convert_map(value: JsonValue) -> Value:
        if not isinstance(value, dict):
            return value
        return {name: convert(item) for name, item in value.items()}

    return convert_map


def _bytes(value: JsonValue) -> Value:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        return value


def _duration(value: JsonValue) -> Value:
    parsed = parse_duration(value) if isinstance(value, str) else None
    return value if parsed is None else parsed


def _moment(value: JsonValue) -> Value:
    parsed = parse_timestamp(value) if isinstance(value, str) else None
    return value if parsed is None else parsed


def _day(value: JsonValue) -> Value:
    return _moment(f"{value}T00:00:00Z") if isinstance(value, str) else value


_TEXT_CONVERTERS: Final[dict[str, Converter]] = {
    "byte": _bytes,
    "duration": _duration,
    "date": _day,
    "date-time": _moment,
}
