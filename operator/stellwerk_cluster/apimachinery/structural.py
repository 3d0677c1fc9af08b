"""Structural schemas of custom resources: pruning, defaulting, validation.

Called by `registry.custom_kinds`. Schemas are the JSON of `openAPIV3Schema`. Invariant: pruning and
defaulting build new objects; validation only reads. CEL rules are `rules`' business.
"""

from __future__ import annotations

from datetime import date
from ipaddress import IPv4Address, IPv6Address, ip_interface
from typing import TYPE_CHECKING, Final
from uuid import UUID

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    duplicate,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, deep_copy, parse_timestamp
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.library.patterns import compiled_pattern
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from stellwerk_kube.json_values import JsonObject, JsonValue


_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
UNNAMED: Final = "<nil>"
"""The field of errors that name none."""
_NESTED_ALWAYS_KNOWN: Final = ("apiVersion", "kind", "metadata")


def prune(value: JsonValue, schema: JsonObject | None, path: str, unknown: list[str]) -> JsonValue:
    """Return the value without the fields that the schema lacks, and add their paths to `unknown`.

    Without a schema, an object has no known field. This is the case below `additionalProperties:
    true`, as in kube-apiserver (`pruning.PruneWithOptions`, v1.36): one level is kept, and not what
    lies below it.
    """
    if schema is not None and schema.get(_PRESERVE):
        return _prune_known(value, schema, path, unknown)
    if isinstance(value, list):
        items = schema.get("items") if schema is not None else None
        return [prune(each, items, f"{path}[{index}]", unknown) for index, each in enumerate(value)]
    if not isinstance(value, dict):
        return value
    result: JsonObject = {}
    for name, item in sorted(value.items()):
        where = f"{path}.{name}" if path else name
        if schema is not None and schema.get(_EMBEDDED) and name in _NESTED_ALWAYS_KNOWN:
            result[name] = _known_metadata(item, where, unknown) if name == "metadata" else item
        elif schema is not None and _has_field(schema, name):
            result[name] = prune(item, _field_schema(schema, name), where, unknown)
        else:
            unknown.append(where)
    return result


def _prune_known(
    value: JsonValue, schema: JsonObject | None, path: str, unknown: list[str]
) -> JsonValue:
    """Keep the fields that a schema lacks, and prune those that it has.

    The elements of a list are kept in the same way, also where their own schema does not say so.
    """
    if schema is None:
        return value
    if isinstance(value, list):
        items = schema.get("items")
        return [
            _prune_known(each, items, f"{path}[{index}]", unknown)
            for index, each in enumerate(value)
        ]
    if not isinstance(value, dict):
        return value
    result: JsonObject = {}
    for name, item in sorted(value.items()):
        where = f"{path}.{name}" if path else name
        if schema.get(_EMBEDDED) and name in _NESTED_ALWAYS_KNOWN:
            result[name] = _known_metadata(item, where, unknown) if name == "metadata" else item
        elif _has_field(schema, name):
            result[name] = prune(item, _field_schema(schema, name), where, unknown)
        else:
            result[name] = item
    return result


def _known_metadata(value: JsonValue, path: str, unknown: list[str]) -> JsonValue:
    """The metadata of an object inside an object, without fields that no metadata has.

    What is no metadata is kept: the rules of such objects refuse it.
    """
    if not isinstance(value, dict):
        return value
    try:
        known, others = decode("ObjectMeta", value)
    except DecodeError:
        return value
    unknown += [f"{path}.{each}" for each in others]
    return known


def _has_field(schema: JsonObject, name: str) -> bool:
    """Whether an object of the schema may have a field, be it named or not."""
    properties = schema.get("properties") or EMPTY
    return name in properties or schema.get("additionalProperties") is not None


def _field_schema(schema: JsonObject, name: str) -> JsonObject | None:
    """The schema of a field; None if the schema says nothing about its value."""
    found = (schema.get("properties") or EMPTY).get(name, schema.get("additionalProperties"))
    return found if isinstance(found, dict) else None


def with_defaults(value: JsonValue, schema: JsonObject) -> JsonValue:
    """The value with defaults filled in; a null that is not allowed counts as missing.

    In a list such a null stays, if its schema has no default: the other elements keep their places.
    """
    if isinstance(value, list):
        items = schema.get("items") or EMPTY
        return [
            with_defaults(_default_of(items) if _is_missing(each, items) else each, items)
            for each in value
        ]
    if not isinstance(value, dict):
        return value
    result: JsonObject = {}
    properties, additional = schema.get("properties") or EMPTY, schema.get("additionalProperties")
    named = [name for name, part in properties.items() if "default" in part]
    for name in sorted({*value, *named}):
        part = properties.get(name, additional if isinstance(additional, dict) else None)
        item = value.get(name)
        if part is None:
            result[name] = item
            continue
        if name not in value or _is_missing(item, part):
            item = _default_of(part)
            if item is None and not part.get("nullable"):
                continue
        result[name] = with_defaults(item, part)
    return result


def _is_missing(value: JsonValue, schema: JsonObject) -> bool:
    return value is None and bool(schema) and not schema.get("nullable")


def _default_of(schema: JsonObject) -> JsonValue:
    return deep_copy({"": schema.get("default")})[""]


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


def validate(value: JsonValue, schema: JsonObject, path: str) -> list[FieldError]:
    """The errors of a value, in the order of kube-openapi's validators.

    That is: type, combined schemas, length and pattern, range, items, enum, properties, and of an
    object what it lacks last. A value of the wrong type goes on to all checks that need no type.
    """
    return _validate(value, schema, path, _UNCORRELATED)


def validate_update(
    value: JsonValue, old: JsonValue, schema: JsonObject, path: str
) -> list[FieldError]:
    """The errors of a value that replaces `old`: what has not changed may stay as wrong as it is.

    This is the ratcheting of kube-apiserver (CRDValidationRatcheting, v1.33). It compares fields by
    name and the elements of lists of type map by key. Elements of other lists, and the parts of
    allOf, anyOf, oneOf and not, are not compared one by one.
    """
    return _validate(value, schema, path, old)


def list_type_errors(value: JsonValue, schema: JsonObject, path: str) -> Iterator[FieldError]:
    """The keys that lists of type map or set have twice (`ValidateListSetsAndMaps`, v1.36)."""
    if isinstance(value, dict):
        properties = schema.get("properties") or EMPTY
        additional = schema.get("additionalProperties")
        for name, item in value.items():
            part = properties.get(name, additional if isinstance(additional, dict) else None)
            if part is not None:
                yield from list_type_errors(item, part, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        yield from _key_errors(value, schema, path)
        items = schema.get("items") or EMPTY
        for position, item in enumerate(value):
            yield from list_type_errors(item, items, f"{path}[{position}]")


_UNCORRELATED: Final = object()
"""Stands for the old value of what has none, or none that is known."""


def _validate(
    value: JsonValue, schema: JsonObject, path: str, old: JsonValue | object
) -> list[FieldError]:
    errors = list(_errors_of(value, schema, path, old))
    if errors and old is not _UNCORRELATED and _is_unchanged(value, old, schema):
        return []
    return errors


def _is_unchanged(value: JsonValue, old: JsonValue | object, schema: JsonObject) -> bool:
    """Whether a value is what it was, as far as the schema lets its parts be compared.

    An object with fields that the schema does not know counts as changed
    (`CorrelatedObject.CachedDeepEqual`, v1.36). A list of type map may have changed its order.
    """
    if isinstance(value, dict) and isinstance(old, dict):
        if value.keys() != old.keys():
            return False
        return all(
            (part := _field_schema(schema, name)) is not None
            and _is_unchanged(item, old[name], part)
            for name, item in value.items()
        )
    if isinstance(value, list) and isinstance(old, list) and value and _is_keyed(schema):
        before, keys = _by_key(old, schema), schema.get("x-kubernetes-list-map-keys") or ()
        items = schema.get("items") or EMPTY
        return len(value) == len(old) and all(
            isinstance(item, dict)
            and _is_unchanged(item, before.get(_key_of(item, keys), _UNCORRELATED), items)
            for item in value
        )
    # 1, 1.0 and true are three values.
    return old is not _UNCORRELATED and orjson.dumps(value) == orjson.dumps(old)


def _is_keyed(schema: JsonObject) -> bool:
    return bool(schema.get("x-kubernetes-list-type") == "map")


def _by_key(value: list[JsonValue], schema: JsonObject) -> dict[bytes, JsonValue]:
    """The elements of a list of type map by their keys."""
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    return {_key_of(each, keys): each for each in value if isinstance(each, dict)}


def _errors_of(
    value: JsonValue, schema: JsonObject, path: str, old: JsonValue | object
) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    wrong_type = _type_error(value, schema, path)
    if wrong_type is not None:
        yield wrong_type
    if value is None:
        return
    yield from _combined_errors(value, schema, path)
    if isinstance(value, str):
        yield from _text_errors(value, schema, path)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_errors(value, schema, path)
    elif isinstance(value, list):
        yield from _item_errors(value, schema, path, old)
    if "enum" in schema and value not in schema["enum"]:
        yield unsupported(path, value, schema["enum"])
    if isinstance(value, dict):
        yield from _property_errors(value, schema, path, old)


def _type_of(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, (int, float)):
        # Of what is no int64, Go's decoder makes a float; such a float is an integer up to 2^53.
        is_int64 = isinstance(value, int) and _INT64[0] <= value <= _INT64[1]
        whole = float(value).is_integer() and abs(value) <= _MAX_EXACT_INTEGER
        return "integer" if is_int64 or whole else "number"
    names: dict[type, str] = {str: "string", list: "array", dict: "object"}
    return names.get(type(value), "null")


def _type_error(value: JsonValue, schema: JsonObject, path: str) -> FieldError | None:
    found = _type_of(value)
    if schema.get(_INT_OR_STRING):
        wanted, fits = "integer,string", found in ("integer", "string")
    else:
        wanted = schema.get("type", "")
        fits = not wanted or found == wanted or (wanted == "number" and found == "integer")
    if fits:
        return None
    form = schema.get("format", "")
    if form and value is not None and not schema.get(_INT_OR_STRING):
        if not isinstance(value, (str, list)):
            # As kube-openapi's typeValidator: of what has a format, that and Go's type are named.
            wanted, found = form, _GO_FORMATS.get(found, "")
        elif wanted not in ("number", "integer"):
            return None
    text = f'Invalid value: "{found}": {path} in body must be of type {wanted}: "{found}"'
    return FieldError(path, "FieldValueTypeInvalid", text)


def _combined_errors(value: JsonValue, schema: JsonObject, path: str) -> Iterator[FieldError]:
    any_of = [validate(value, part, path) for part in schema.get("anyOf") or ()]
    if any_of and all(any_of):
        yield _unnamed(f'"{path}" must validate at least one schema (anyOf)')
        yield from min(any_of, key=len)
    one_of = [validate(value, part, path) for part in schema.get("oneOf") or ()]
    valid = sum(1 for errors in one_of if not errors)
    if one_of and valid != 1:
        found = f"Found {valid} valid alternatives" if valid else "Found none valid"
        yield _unnamed(f'"{path}" must validate one and only one schema (oneOf). {found}')
        if not valid:
            yield from min(one_of, key=len)
    all_of = [validate(value, part, path) for part in schema.get("allOf") or ()]
    for errors in all_of:
        yield from errors
    if any(all_of):
        none = ". None validated" if all(all_of) else ""
        yield _unnamed(f'"{path}" must validate all the schemas (allOf){none}')
    if "not" in schema and not validate(value, schema["not"], path):
        yield _unnamed(f'"{path}" must not validate the schema (not)')


def _unnamed(text: str) -> FieldError:
    """An error that names its field in its text alone."""
    return bad_value(UNNAMED, "", text)


def _text_errors(value: str, schema: JsonObject, path: str) -> Iterator[FieldError]:
    longest = schema.get("maxLength")
    if longest is not None and len(value) > longest:
        unit = "byte" if longest == 1 else "bytes"
        text = f"Too long: may not be more than {longest} {unit}"
        yield FieldError(path, "FieldValueTooLong", text)
    elif len(value) < schema.get("minLength", 0):
        yield bad_value(
            path, value, f"{path} in body should be at least {schema['minLength']} chars long"
        )
    elif "pattern" in schema and not matches(schema["pattern"], value):
        yield bad_value(path, value, f"{path} in body should match '{schema['pattern']}'")
    form = schema.get("format", "")
    if form in _FORMATS and not _has_format(value, form):
        text = f'Invalid value: "{value}": {path} in body must be of type {form}: "{value}"'
        yield FieldError(path, "FieldValueTypeInvalid", text)


_FORMATS: Final[dict[str, Callable[[str], object]]] = {
    "cidr": ip_interface,
    "date": date.fromisoformat,
    "date-time": parse_timestamp,
    "ipv4": IPv4Address,
    "ipv6": IPv6Address,
    "uuid": UUID,
}
"""Readers of texts by format, which raise ValueError; other formats are not checked."""
_GO_FORMATS: Final = {"integer": "int64", "number": "float64"}


def _has_format(text: str, form: str) -> bool:
    try:
        _FORMATS[form](text)
    except ValueError:
        return False
    return form != "cidr" or "/" in text


def _number_errors(value: float, schema: JsonObject, path: str) -> Iterator[FieldError]:
    type_, format_ = schema.get("type", ""), schema.get("format", "")
    if not _in_range(value, type_, format_):
        form = f"with format {format_}" if format_ else "(default format)"
        yield _unnamed(f"Checked value must be of type {type_} {form} in {path}")
    factor = schema.get("multipleOf")
    if factor and value % factor:
        yield bad_value(path, value, f"{path} in body should be a multiple of {factor}")
    lowest, highest = schema.get("minimum"), schema.get("maximum")
    if lowest is not None:
        exclusive = schema.get("exclusiveMinimum")
        if value < lowest or (exclusive and value == lowest):
            text = "greater than" if exclusive else "greater than or equal to"
            yield bad_value(path, value, f"{path} in body should be {text} {lowest}")
    if highest is not None:
        exclusive = schema.get("exclusiveMaximum")
        if value > highest or (exclusive and value == highest):
            text = "less than" if exclusive else "less than or equal to"
            yield bad_value(path, value, f"{path} in body should be {text} {highest}")


def _in_range(value: float, type_: str, format_: str) -> bool:
    """Whether the value can be converted to the type in the format, as Go's strconv does."""
    if type_ == "integer":
        lowest, highest = _RANGES.get(format_, _INT64)
        return float(value).is_integer() and lowest <= value <= highest
    return type_ != "number" or format_ not in _SINGLE_PRECISION or abs(value) <= _MAX_SINGLE_FLOAT


_INT64: Final = (-(1 << 63), (1 << 63) - 1)
_RANGES: Final = {
    "int32": (-(1 << 31), (1 << 31) - 1),
    "uint32": (0, (1 << 32) - 1),
    "uint64": (0, (1 << 64) - 1),
}
_MAX_EXACT_INTEGER: Final = (1 << 53) - 1
"""The largest float that swag.IsFloat64AJSONInteger takes for an integer."""
_SINGLE_PRECISION: Final = ("float", "float32")
_MAX_SINGLE_FLOAT: Final = 3.4028234663852886e38
"""The largest float of single precision, for the formats that have it."""


def _item_errors(
    value: list[JsonValue], schema: JsonObject, path: str, old: JsonValue | object
) -> Iterator[FieldError]:
    items = schema.get("items") or EMPTY
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    before = _by_key(old, schema) if _is_keyed(schema) and isinstance(old, list) else {}
    for position, item in enumerate(value):
        key = _key_of(item, keys) if before and isinstance(item, dict) else b""
        yield from _validate(item, items, f"{path}[{position}]", before.get(key, _UNCORRELATED))
    if len(value) < schema.get("minItems", 0):
        yield bad_value(
            path, len(value), f"{path} in body should have at least {schema['minItems']} items"
        )
    highest = schema.get("maxItems")
    if highest is not None and len(value) > highest:
        yield _too_many(path, len(value), highest)


def _key_of(element: JsonObject, keys: Iterable[str]) -> bytes:
    """The key of an element of a list of type map, as a text."""
    return orjson.dumps([element.get(name) for name in keys])


def _too_many(path: str, found: int, highest: int) -> FieldError:
    text = f"Too many: {found}: must have at most {highest} item{'s' if highest != 1 else ''}"
    return FieldError(path, "FieldValueTooMany", text)


def _property_errors(
    value: JsonObject, schema: JsonObject, path: str, old: JsonValue | object
) -> Iterator[FieldError]:
    fewest, most = schema.get("minProperties", 0), schema.get("maxProperties", len(value))
    if len(value) < fewest:
        yield bad_value(
            path, len(value), f"{path} in body should have at least {fewest} properties"
        )
    if len(value) > most:
        yield _too_many(path, len(value), most)
    before = old if isinstance(old, dict) else EMPTY
    for name, item in value.items():
        part = _field_schema(schema, name)
        if part is None:
            continue
        # The metadata of an object changes with every write, and is not compared.
        is_compared = name in before and (path or name not in _NESTED_ALWAYS_KNOWN)
        earlier = before[name] if is_compared else _UNCORRELATED
        yield from _validate(item, part, f"{path}.{name}" if path else name, earlier)
    for name in schema.get("required") or ():
        if name not in value:
            yield required(f"{path}.{name}" if path else name)


def _key_errors(value: list[JsonValue], schema: JsonObject, path: str) -> Iterator[FieldError]:
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


# --- patterns, on RE2 as Go's regexp is -----------------------------------------------------------


_PREFIX: Final = "error parsing regexp: "


_GO_WORDS: Final = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}
"""Messages of RE2, and of Go's package of the same syntax."""


def pattern_error(pattern: str) -> str:
    """The error of a pattern, in the words of Go's regexp; empty if RE2 can run it."""
    try:
        compiled_pattern(pattern)
    except EvaluationError as error:
        said, _, part = str(error).removeprefix(_PREFIX).partition(": ")
        if part in {"(?<=", "(?<!"}:
            # What begins as a named group is one to Go, if with a name that it may not have.
            said, rest = "invalid named capture group", pattern[pattern.index(part) :]
            part = rest[: rest.find(">") + 1] or rest
        return f"{_PREFIX}{_GO_WORDS.get(said, said)}: `{part}`"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text."""
    try:
        compiled = compiled_pattern(pattern)
    except EvaluationError:
        return False
    return compiled.search(text.encode("utf-8", "replace").decode()) is not None
