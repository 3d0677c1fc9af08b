"""The decoding of request bodies: objects of built-in kinds in canonical form.

Called by the verbs and the HTTP layer. Invariant: a decoded object has only known fields, with the
right types, in canonical form. A message about a value of the wrong type names the type as the API
server does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_kube.json_values import JsonValue
from stellwerk_kube.schema.mismatches import DecodeError, MismatchError
from stellwerk_kube.schema.scalars import scalar
from stellwerk_kube.schema.types import types

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject


_PLAIN: Final = {
    "string": "string",
    "bool": "bool",
    "int": "int32",
    "float": "float64",
    "Quantity": "resource.Quantity",
    "Time": "v1.Time",
    "MicroTime": "v1.MicroTime",
    "IntOrString": "intstr.IntOrString",
    "bytes": "[]uint8",
    "any": "interface {}",
    "JSON": "v1.JSON",
}
SCHEMA_ALTERNATIVES: Final = {
    "JSONSchemaPropsOrBool": "bool",
    "JSONSchemaPropsOrArray": "[JSONSchemaProps]",
    "JSONSchemaPropsOrStringArray": "[string]",
}
"""Keywords of a definition's schema in which another schema can stand too."""
_MAP: Final = "map["


@dataclass(slots=True)
class Decoding:
    """Collects what one decoding finds besides the object."""

    unknown: list[str] = field(default_factory=list)
    """Paths of fields that the kind does not have."""


Decoder: TypeAlias = Callable[[JsonValue, Decoding, str], JsonValue]
"""(value, findings, path) → canonical value; None means that the field counts as absent."""


def decode(type_name: str, body: JsonObject) -> tuple[JsonObject, list[str]]:
    """The canonical form of a body, and the paths of its unknown fields.

    Raises:
        MismatchError: a field has a value of the wrong type.
    """
    findings = Decoding()
    decoded: JsonObject = _decoder(type_name, plain_go_type(type_name))(body, findings, "")
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
def _decoder(type_name: str, named: str, *, keeps_zero: bool = False) -> Decoder:
    """The decoder of a type that the API server's program calls `named`."""
    if type_name.startswith("["):
        return _list_decoder(type_name[1:-1], named)
    if type_name.startswith("{"):
        return _map_decoder(type_name[1:-1], named)
    if type_name in types():
        return _StructDecoder(type_name, named).decode
    if type_name in SCHEMA_ALTERNATIVES:
        return partial(_decode_alternative, SCHEMA_ALTERNATIVES[type_name])
    decode_scalar = scalar(type_name, named, keeps_zero=keeps_zero)
    return lambda value, _findings, path: decode_scalar(value, path)


class _StructDecoder:
    """Decodes objects of one struct type, field by field, and fills in what is missing."""

    def __init__(self, type_name: str, named: str) -> None:
        self._type_name = type_name
        self._named = named
        self._fields = types()[type_name]
        # Filled on first use of a field: types refer to themselves (JSONSchemaProps).
        self._decoders: dict[str, Decoder] = {}
        self._missing: list[tuple[str, Callable[[], JsonValue]]] = [
            (each.name, _nothing if "nullable" in each.words else _zero_of(each.type))
            for each in self._fields.values()
            if each.words.keys() & {"nullable", "present", "always"}
        ]

    def decode(self, value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not dict:
            raise MismatchError(value, path, self._named, "struct")
        try:
            result = self._decode_fields(value, findings, path)
        except MismatchError as error:
            error.owner = error.owner or self._named.rpartition(".")[2]
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
        named = known.words.get("go") or plain_go_type(known.type)
        decoder = _decoder(
            known.type, named, keeps_zero=bool(known.words.keys() & {"pointer", "present"})
        )
        self._decoders[name] = decoder
        return decoder


def _decode_alternative(other: str, value: JsonValue, _findings: Decoding, _path: str) -> JsonValue:
    """Decode a schema, or what stands in its place.

    Go reads these types by a method of their own (`JSONSchemaPropsOrBool.UnmarshalJSON`, v1.36):
    strict decoding does not see what is unknown inside, errors name the place from there, and what
    is neither a schema nor a list counts as absent.

    Raises:
        DecodeError: a truth value or a schema is wanted, and this is neither.
        MismatchError: a field inside has a value of the wrong type.
    """
    if isinstance(value, dict):
        return _decoder("JSONSchemaProps", "v1.JSONSchemaProps")(value, Decoding(), "")
    if other == "bool":
        if type(value) is not bool:
            message = "boolean or JSON schema expected"
            raise DecodeError(message)
        return value
    if isinstance(value, list):
        return _decoder(other, plain_go_type(other))(value, Decoding(), "")
    return None


def _nothing() -> JsonValue:
    return None


def _zero_of(type_name: str) -> Callable[[], JsonValue]:
    """A maker of fresh zeros: strategies may change them in place."""
    return lambda: copy.deepcopy(zero(type_name)) if zero(type_name) else _fresh(zero(type_name))


def _fresh(empty: JsonValue) -> JsonValue:
    return {} if isinstance(empty, dict) else empty


def _list_decoder(element: str, named: str) -> Decoder:
    decode_element = _decoder(element, go_element(named, element), keeps_zero=True)

    def decode_list(value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not list:
            raise MismatchError(value, path, named, "slice")
        if not value:
            return None
        # A null is JSON, and of every other type an empty value.
        empty: JsonValue = None if element == "JSON" else {}
        return [
            decode_element(empty if item is None else item, findings, f"{path}[{position}]")
            for position, item in enumerate(value)
        ]

    return decode_list


def _map_decoder(element: str, named: str) -> Decoder:
    decode_element = _decoder(element, go_element(named, element), keeps_zero=True)

    def decode_map(value: JsonValue, findings: Decoding, path: str) -> JsonValue:
        if type(value) is not dict:
            raise MismatchError(value, path, named, "map")
        if not value:
            return None
        # The API writes the keys of maps in order, and so do tables and describe.
        decoded = {}
        for name, item in sorted(value.items()):
            try:
                decoded[name] = decode_element(
                    "" if item is None else item, findings, f"{path}.{name}"
                )
            except MismatchError as error:
                error.leave_out(f"{path}.{name}", path)
                raise
        return decoded

    return decode_map


def plain_go_type(type_text: str) -> str:
    """The Go type that follows from a type of the tables."""
    if type_text.startswith("["):
        return f"[]{plain_go_type(type_text[1:-1])}"
    if type_text.startswith("{"):
        return f"{_MAP}string]{plain_go_type(type_text[1:-1])}"
    return _PLAIN.get(type_text, f"v1.{type_text}")


def go_element(container: str, plain: str) -> str:
    """The Go type of the parts of a list or map; `plain` is what the tables have for the parts."""
    if container.startswith("[]"):
        return container.removeprefix("[]")
    if container.startswith(_MAP):
        return container.partition("]")[2]
    return plain_go_type(plain)
