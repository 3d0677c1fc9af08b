"""Structural schemas of custom resources: pruning, defaulting, validation.

Called by `registry.custom_kinds`. Schemas are the JSON of `openAPIV3Schema`. Invariant: pruning and
defaulting build new objects; validation only reads. CEL rules are `rules`' business.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, JsonValue, deep_copy, parse_timestamp
from stellwerk_cluster.apimachinery.patterns import matches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_NESTED_ALWAYS_KNOWN: Final = ("apiVersion", "kind", "metadata")


def prune(value: JsonValue, schema: JsonObject, path: str, unknown: list[str]) -> JsonValue:
    """The value without the fields that the schema lacks; their paths go to `unknown`."""
    if isinstance(value, list):
        items = schema.get("items") or EMPTY
        return [prune(each, items, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    properties, additional = schema.get("properties") or EMPTY, schema.get("additionalProperties")
    result: JsonObject = {}
    for name, item in sorted(value.items()):
        where = f"{path}.{name}" if path else name
        if name in properties:
            result[name] = prune(item, properties[name], where, unknown)
        elif isinstance(additional, dict):
            result[name] = prune(item, additional, where, unknown)
        elif (
            additional is True
            or schema.get(_PRESERVE)
            or (schema.get(_EMBEDDED) and name in _NESTED_ALWAYS_KNOWN)
        ):
            result[name] = item
        else:
            unknown.append(where)
    return result


def with_defaults(value: JsonValue, schema: JsonObject) -> JsonValue:
    """The value with defaults filled in; a null that is not allowed counts as missing."""
    if isinstance(value, list):
        items = schema.get("items") or EMPTY
        return [with_defaults(each, items) for each in value]
    if not isinstance(value, dict):
        return value
    result = dict(value)
    properties, additional = schema.get("properties") or EMPTY, schema.get("additionalProperties")
    for name, part in properties.items():
        if name in result and result[name] is None and not part.get("nullable"):
            del result[name]
        if name not in result and "default" in part:
            result[name] = deep_copy({"": part["default"]})[""]
        if name in result:
            result[name] = with_defaults(result[name], part)
    if isinstance(additional, dict):
        for name in result.keys() - properties.keys():
            result[name] = with_defaults(result[name], additional)
    return dict(sorted(result.items()))


def validate(value: JsonValue, schema: JsonObject, path: str) -> list[FieldError]:
    """The errors of a value."""
    return list(_validate(value, schema, path))


_HIDING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)


def hides_rules(errors: list[FieldError]) -> bool:
    """Whether the errors are of the sort that keeps CEL rules from being checked."""
    return any(error.reason in _HIDING for error in errors)


def _validate(value: JsonValue, schema: JsonObject, path: str) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    wrong_type = _type_error(value, schema, path)
    if wrong_type is not None:
        yield wrong_type
        return
    if isinstance(value, dict):
        yield from _validate_object(value, schema, path)
    elif isinstance(value, list):
        yield from _validate_list(value, schema, path)
    elif isinstance(value, str):
        yield from _validate_text(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _validate_number(value, schema, path)
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    yield from _validate_combined(value, schema, path)


def _type_of(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return {int: "integer", str: "string", list: "array", dict: "object"}.get(type(value), "null")


def _type_error(value: JsonValue, schema: JsonObject, path: str) -> FieldError | None:
    found = _type_of(value)
    if schema.get(_INT_OR_STRING):
        wanted, fits = "integer,string", found in ("integer", "string")
    else:
        wanted = schema.get("type", "")
        fits = not wanted or found == wanted or (wanted == "number" and found == "integer")
    if fits:
        return None
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return FieldError(path, "FieldValueTypeInvalid", text)


def _validate_object(value: JsonObject, schema: JsonObject, path: str) -> Iterator[FieldError]:
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)
    properties, additional = schema.get("properties") or EMPTY, schema.get("additionalProperties")
    for name, item in value.items():
        part = properties.get(name, additional if isinstance(additional, dict) else None)
        if part is not None:
            yield from _validate(item, part, f"{path}.{name}" if path else name)
    for name, compares, text in (
        ("maxProperties", len(value) > schema.get("maxProperties", len(value)), "at most"),
        ("minProperties", len(value) < schema.get("minProperties", 0), "at least"),
    ):
        if compares:
            yield bad_value(
                path, len(value), f"{path} in body should have {text} {schema[name]} properties"
            )


def _validate_list(value: list[JsonValue], schema: JsonObject, path: str) -> Iterator[FieldError]:
    highest = schema.get("maxItems")
    if highest is not None and len(value) > highest:
        text = f"Too many: {len(value)}: must have at most {highest} items"
        yield FieldError(path, "FieldValueTooMany", text)
    if len(value) < schema.get("minItems", 0):
        yield bad_value(
            path, len(value), f"{path} in body should have at least {schema['minItems']} items"
        )
    items = schema.get("items") or EMPTY
    for position, item in enumerate(value):
        yield from _validate(item, items, f"{path}[{position}]")
    yield from _validate_keys(value, schema, path)


def _validate_keys(value: list[JsonValue], schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Lists that are maps or sets have each key once."""
    sort = schema.get("x-kubernetes-list-type")
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    if sort not in ("map", "set"):
        return
    seen: set[bytes] = set()
    for position, item in enumerate(value):
        shown = (
            {name: item.get(name) for name in keys}
            if sort == "map" and isinstance(item, dict)
            else item
        )
        mark = orjson.dumps(shown, option=orjson.OPT_SORT_KEYS)
        if mark in seen:
            yield duplicate(f"{path}[{position}]", shown)
        seen.add(mark)


def _validate_text(value: str, schema: JsonObject, path: str) -> Iterator[FieldError]:
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        yield FieldError(
            path, "FieldValueTooLong", f"Too long: may not be more than {longest} bytes"
        )
    elif len(value) < schema.get("minLength", 0):
        yield bad_value(
            path, value, f"{path} in body should be at least {schema['minLength']} chars long"
        )
    elif "pattern" in schema and not matches(schema["pattern"], value):
        yield bad_value(path, value, f"{path} in body should match '{schema['pattern']}'")
    if schema.get("format") == "date-time" and not _is_time(value):
        yield bad_value(path, value, f'{path} in body must be of type date-time: "{value}"')


def _is_time(text: str) -> bool:
    try:
        parse_timestamp(text)
    except ValueError:
        return False
    return True


def _validate_number(value: float, schema: JsonObject, path: str) -> Iterator[FieldError]:
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if highest is not None:
        exclusive = schema.get("exclusiveMaximum")
        if value > highest or (exclusive and value == highest):
            text = "less than" if exclusive else "less than or equal to"
            yield bad_value(path, value, f"{path} in body should be {text} {highest}")
    if lowest is not None:
        exclusive = schema.get("exclusiveMinimum")
        if value < lowest or (exclusive and value == lowest):
            text = "greater than" if exclusive else "greater than or equal to"
            yield bad_value(path, value, f"{path} in body should be {text} {lowest}")
    if schema.get("type") == "integer" and not _in_range(value, schema.get("format", "")):
        text = f"Checked value must be of type integer with format {schema['format']} in {path}"
        yield bad_value("<nil>", "", text)
    factor = schema.get("multipleOf")
    if factor and value % factor:
        yield bad_value(path, value, f"{path} in body should be a multiple of {factor}")


def _in_range(value: float, format_: str) -> bool:
    lowest, highest = _RANGES.get(format_, (-math.inf, math.inf))
    return lowest <= value <= highest


_RANGES: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}


def _validate_combined(value: JsonValue, schema: JsonObject, path: str) -> Iterator[FieldError]:
    for part in schema.get("allOf") or ():
        yield from _validate(value, part, path)
    any_of = schema.get("anyOf") or ()
    if any_of and all(validate(value, part, path) for part in any_of):
        yield bad_value(
            path, _type_of(value), f"{path} in body must validate at least one schema (anyOf)"
        )
    one_of = schema.get("oneOf") or ()
    if one_of and sum(1 for part in one_of if not validate(value, part, path)) != 1:
        text = f"{path} in body must validate one and only one schema (oneOf)"
        yield bad_value(path, _type_of(value), text)
    if "not" in schema and not validate(value, schema["not"], path):
        yield bad_value(path, _type_of(value), f"{path} in body must not validate the schema (not)")
