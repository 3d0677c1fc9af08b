"""The types of built-in kinds: decoding of request bodies, merge keys, and the input of OpenAPI.

`types.txt` is the one list of types and fields, in lines `field type flag…`. The flags: `required`
(present in every object of the API; filled with the type's zero when missing), `always` (an
optional struct that is nevertheless always written), `nullable` (written as null when missing),
`pointer` (a zero value is kept, otherwise it counts as absent), `merge` and `merge=key` (how a
strategic merge patch merges a list), `retain` (it honours $retainKeys). For field ownership:
`map=key,key` and `set` (how an applied list merges; all others are taken whole), `default=value`
(of a key), `atomic` (a map, or on the line of a type all its values, is taken whole), `granular`
(this value of an atomic type is not). Invariant: a decoded object holds only known fields, with the
types they should have, in canonical form.
"""

from __future__ import annotations

import base64
import copy
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final, TypeAlias

from typing_extensions import override

from stellwerk.models.canonical_quantity import canonical_quantity
from stellwerk_cluster.apimachinery.objects import JsonValue, parse_timestamp
from stellwerk_cluster.apimachinery.quantities import SYNTAX

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject


class DecodeError(Exception):
    """A body that does not have the form of its kind; the text is what the API says about it."""


@dataclass(slots=True)
class Decoding:
    """Collects what one decoding finds besides the object."""

    unknown: list[str] = field(default_factory=list)
    """Paths of fields that the kind does not have."""


Decoder: TypeAlias = Callable[[JsonValue, Decoding, str], JsonValue]
"""(value, findings, path) → canonical value; None means that the field counts as absent."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type, as its line in types.txt says."""

    name: str
    type: str
    flags: frozenset[str]
    merge_key: str
    keys: tuple[str, ...] = ()
    """The fields that tell the items of a list apart when it is applied."""
    default: str = ""
    """The value of a key that an item leaves out."""

    @property
    def merges(self) -> bool:
        """Whether a strategic merge patch merges the list instead of replacing it."""
        return "merge" in self.flags

    @property
    def element(self) -> str:
        """The type of one element of a list or map; otherwise the type itself."""
        return self.type.strip("[]{}")


@cache
def types() -> dict[str, dict[str, Field]]:
    """All types of types.txt, by name."""
    found: dict[str, dict[str, Field]] = {}
    fields: dict[str, Field] = {}
    for line in _types_text().splitlines():
        words = line.split()
        if not line.startswith(" "):
            fields = found.setdefault(words[0], {})
            continue
        flags = dict(flag.partition("=")[::2] for flag in words[2:])
        fields[words[0]] = Field(
            words[0],
            words[1],
            frozenset(flags),
            flags.get("merge", ""),
            tuple(filter(None, flags.get("map", "").split(","))),
            flags.get("default", ""),
        )
    return found


@cache
def atomic_types() -> frozenset[str]:
    """The types whose values have one owner as a whole."""
    lines = (line.split() for line in _types_text().splitlines() if not line.startswith(" "))
    return frozenset(words[0] for words in lines if "atomic" in words[1:])


def _types_text() -> str:
    return (
        resources.files("stellwerk_cluster.apimachinery").joinpath("types.txt").read_text("utf-8")
    )


def decode(type_name: str, body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The canonical form of a body, and the paths of its unknown fields.

    Raises:
        DecodeError: a field has a value of the wrong type.
    """
    findings = Decoding()
    decoded: JsonObject = _decoder(type_name)(body, findings, "")
    return decoded, findings.unknown


def empty_field(type_name: str, field_name: str) -> JsonValue:
    """A fresh value for a field of a struct type that is not set."""
    return _zero_of(types()[type_name][field_name].type)()


@cache
def zero(type_name: str) -> JsonValue:
    """The value of a required field that is missing. Shared: never change it."""
    if type_name in types():
        return decode(type_name, {})[0]
    return {
        "string": "",
        "bool": False,
        "int": 0,
        "Quantity": "0",
        "IntOrString": 0,
        "float": 0,
    }.get(type_name)


@cache
def _decoder(type_name: str) -> Decoder:
    if type_name.startswith("["):
        return _list_decoder(type_name[1:-1])
    if type_name.startswith("{"):
        return _map_decoder(type_name[1:-1])
    if type_name in types():
        return _struct_decoder(type_name)
    return _SCALARS[type_name]


def _struct_decoder(type_name: str) -> Decoder:
    return _StructDecoder(type_name).decode


class _StructDecoder:
    """Decodes objects of one struct type, field by field, and fills in what is missing."""

    def __init__(self, type_name: str) -> None:
        self._type_name = type_name
        self._fields = types()[type_name]
        # Filled on first use of a field: types refer to themselves (JSONSchemaProps).
        self._decoders: dict[str, Decoder] = {}
        self._missing: list[tuple[str, Callable[[], JsonValue]]] = [
            (each.name, _nothing if "nullable" in each.flags else _zero_of(each.type))
            for each in self._fields.values()
            if each.flags & {"nullable", "required", "always"}
        ]

    def decode(self, value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not dict:
            raise _MismatchError(value, path, self._type_name)
        try:
            result = self._decode_fields(value, findings, path)
        except _MismatchError as error:
            error.owner = error.owner or self._type_name
            raise
        for name, make in self._missing:
            if name not in result:
                result[name] = make()
        return result

    def _decode_fields(self, value: JsonObject, findings: Decoding, path: str) -> JsonObject:
        result: JsonObject = {}
        for name, item in value.items():
            if item is None:
                continue
            where = f"{path}.{name}" if path else name
            decoder = self._decoders.get(name) or self._field_decoder(name)
            if decoder is None:
                findings.unknown.append(where)
                continue
            decoded = decoder(item, findings, where)
            if decoded is not None:
                result[name] = decoded
        return result

    def _field_decoder(self, name: str) -> Decoder | None:
        known = self._fields.get(name)
        if known is None:
            return None
        decoder = _field_decoder(known)
        self._decoders[name] = decoder
        return decoder


def _nothing() -> JsonValue:
    return None


def _zero_of(type_name: str) -> Callable[[], JsonValue]:
    """A maker of fresh zeros: strategies may change them in place."""
    return lambda: copy.deepcopy(zero(type_name)) if zero(type_name) else _fresh(zero(type_name))


def _fresh(empty: JsonValue) -> JsonValue:
    return {} if isinstance(empty, dict) else empty


def _field_decoder(known: Field) -> Decoder:
    if known.flags & {"pointer", "required"}:
        return _KEEPING_ZERO.get(known.type) or _decoder(known.type)
    return _decoder(known.type)


def _list_decoder(element: str) -> Decoder:
    decode_element = _KEEPING_ZERO.get(element) or _decoder(element)

    def decode_list(value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not list:
            raise _MismatchError(value, path, f"[]{element}")
        if not value:
            return None
        return [
            decode_element({} if item is None else item, findings, f"{path}[{position}]")
            for position, item in enumerate(value)
        ]

    return decode_list


def _map_decoder(element: str) -> Decoder:
    decode_element = _KEEPING_ZERO.get(element) or _decoder(element)

    def decode_map(value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not dict:
            raise _MismatchError(value, path, f"map[string]{element}")
        if not value:
            return None
        # The API writes the keys of maps in order, and so do tables and describe.
        decoded = {}
        for name, item in sorted(value.items()):
            try:
                decoded[name] = decode_element(
                    "" if item is None else item, findings, f"{path}.{name}"
                )
            except _MismatchError as error:
                error.leave_out(f"{path}.{name}", path)
                raise
        return decoded

    return decode_map


_JSON_NAMES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "number",
    float: "number",
    list: "array",
    dict: "object",
}
_GO_NAMES: Final = {
    "int": "int32",
    "Time": "v1.Time",
    "MicroTime": "v1.MicroTime",
    "bytes": "[]uint8",
}


def json_name(value: JsonValue) -> str:
    """What the API calls a value of the wrong JSON type."""
    return _JSON_NAMES.get(type(value), "null")


class _MismatchError(DecodeError):
    """A value of the wrong JSON type; the struct around it is filled in on the way out."""

    def __init__(self, value: JsonValue, path: str, wanted: str) -> None:
        super().__init__(path)
        self._found = json_name(value)
        self._path = re.sub(r"\[\d+\]", "", path)
        self._wanted = wanted
        self.owner = ""

    def leave_out(self, entry: str, above: str) -> None:
        """Name the map in place of one of its entries, as Go does."""
        self._path = above + self._path.removeprefix(re.sub(r"\[\d+\]", "", entry))

    @override
    def __str__(self) -> str:
        prefix, element = (
            ("[]", self._wanted[2:]) if self._wanted.startswith("[]") else ("", self._wanted)
        )
        go_name = _GO_NAMES.get(element, f"v1.{element}" if element in types() else element)
        return (
            f"json: cannot unmarshal {self._found} into Go struct field {self.owner}.{self._path} "
            f"of type {prefix}{go_name}"
        )


def _string(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not str:
        raise _MismatchError(value, path, "string")
    return value or None


def _any_string(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not str:
        raise _MismatchError(value, path, "string")
    return value


def _integer(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    return _any_integer(value, _findings, path) or None


def _any_integer(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is float and value.is_integer():
        return int(value)
    if type(value) is not int:
        raise _MismatchError(value, path, "int")
    return value


def _boolean(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    return _any_boolean(value, _findings, path) or None


def _any_boolean(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not bool:
        raise _MismatchError(value, path, "bool")
    return value


def _number(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) not in (int, float):
        raise _MismatchError(value, path, "float64")
    return value


def _quantity(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) not in (str, int, float):
        raise _MismatchError(value, path, "resource.Quantity")
    try:
        return canonical_quantity(value or "0")
    except ValueError:
        message = f"quantities must match the regular expression '{SYNTAX}'"
        raise DecodeError(message) from None


def _int_or_string(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) not in (str, int):
        raise _MismatchError(value, path, "intstr.IntOrString")
    return value


def _time(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not str:
        raise _MismatchError(value, path, "Time")
    if _WHOLE_SECONDS.fullmatch(value):
        return value
    return _parsed_time(value).strftime("%Y-%m-%dT%H:%M:%SZ")


def _micro_time(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not str:
        raise _MismatchError(value, path, "MicroTime")
    if _MICROSECONDS.fullmatch(value):
        return value
    if "." not in value:
        message = (
            f'parsing time "{value}" as "2006-01-02T15:04:05.000000Z07:00": cannot parse '
            f'"{value[19:]}" as ".000000"'
        )
        raise DecodeError(message)
    return _parsed_time(value).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


_WHOLE_SECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
_MICROSECONDS: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")


def _parsed_time(text: str) -> datetime:
    try:
        return parse_timestamp(text).astimezone(UTC)
    except ValueError:
        message = (
            f'parsing time "{text}" as "2006-01-02T15:04:05Z07:00": cannot parse "{text}" as "2006"'
        )
        raise DecodeError(message) from None


def _bytes(value: JsonValue, _findings: Decoding, path: str) -> JsonValue:
    if type(value) is not str:
        raise _MismatchError(value, path, "bytes")
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        message = "illegal base64 data at input byte 0"
        raise DecodeError(message) from None
    return value


def _anything(value: JsonValue, _findings: Decoding, _path: str) -> JsonValue:
    return value


_SCALARS: Final[dict[str, Decoder]] = {
    "string": _string,
    "int": _integer,
    "float": _number,
    "bool": _boolean,
    "Quantity": _quantity,
    "IntOrString": _int_or_string,
    "Time": _time,
    "MicroTime": _micro_time,
    "bytes": _bytes,
    "any": _anything,
}
_KEEPING_ZERO: Final[dict[str, Decoder]] = {
    "string": _any_string,
    "int": _any_integer,
    "bool": _any_boolean,
}
