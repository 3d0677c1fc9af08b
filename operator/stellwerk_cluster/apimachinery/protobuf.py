"""Bodies in `application/vnd.kubernetes.protobuf`: to and from the objects that JSON would hold.

Called where bodies are read and answers are written. A body is four bytes, then an envelope that
names kind and apiVersion and holds the object's own message. Invariant: an object that is written
and read again is the same object, but for fields that hold what their absence means.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson
from google.protobuf.message import DecodeError as WireError

from stellwerk_cluster.apimachinery.json_text import go_json
from stellwerk_cluster.apimachinery.messages import map_value, message_class, wire_fields
from stellwerk_cluster.apimachinery.objects import micro_timestamp, parse_timestamp, timestamp
from stellwerk_kube.schema.decoder import SCHEMA_ALTERNATIVES
from stellwerk_kube.schema.scalars import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stellwerk_kube.json_values import JsonObject, JsonValue

MEDIA_TYPE: Final = "application/vnd.kubernetes.protobuf"
_PREFIX: Final = b"k8s\x00"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STRING: Final = 1
"""`type` of an IntOrString that holds a string."""


_Made: TypeAlias = Any
"""A message, or what stands in one: its class is made at run time, and no type knows it."""


class MalformedError(ValueError):
    """A body that is no protobuf, or whose message does not fit its kind."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """A body before its message is read: what it says it is, and the message's bytes."""

    api_version: str
    kind: str
    raw: bytes


def open_envelope(content: bytes) -> Envelope:
    """The envelope of a body.

    Raises:
        MalformedError: the body has none.
    """
    if not content.startswith(_PREFIX):
        shown = " ".join(str(byte) for byte in _PREFIX)
        raise MalformedError(
            f"provided data does not appear to be a protobuf message, expected prefix [{shown}]"
        )
    unknown: _Made = _parse("Unknown", content[len(_PREFIX) :])
    try:
        return Envelope(unknown.typeMeta.apiVersion, unknown.typeMeta.kind, unknown.raw)
    except ValueError as error:
        raise MalformedError(f"proto: {error}") from error


def read_message(type_name: str, raw: bytes) -> JsonObject:
    """The object in a message of that type, without kind and apiVersion.

    Raises:
        MalformedError: the bytes are no such message.
        KeyError: objects of the type have no message.
    """
    message = _parse(type_name, raw)
    try:
        return _object_of(message)
    except (ValueError, OverflowError) as error:
        raise MalformedError(f"proto: {error}") from error


def write_body(type_name: str, obj: JsonObject) -> bytes:
    """The body that holds an object, or a list of objects (`PodList`).

    Raises:
        KeyError: objects of the type have no message.
    """
    message = message_class(type_name)()
    _fill(message, obj)
    envelope: _Made = message_class("Unknown")()
    envelope.typeMeta.apiVersion = obj["apiVersion"]
    envelope.typeMeta.kind = obj["kind"]
    envelope.raw = message.SerializePartialToString()
    return _PREFIX + bytes(envelope.SerializePartialToString())


def _parse(name: str, raw: bytes) -> Message:
    message = message_class(name)()
    try:
        message.MergeFromString(raw)
    except (WireError, ValueError) as error:
        raise MalformedError(f"proto: {error}") from error
    return message


# From messages to objects.


def _object_of(message: Message) -> JsonObject:
    fields = wire_fields(message.DESCRIPTOR.full_name)
    found: JsonObject = {}
    for descriptor, value in message.ListFields():
        wire = fields[descriptor.number]
        if not wire.type:
            found.update(_object_of(value))
            continue
        read = _value_of(wire.type, value)
        if read is not None:
            found[wire.name] = read
    return found


def _value_of(type_: str, value: _Made) -> JsonValue:
    if type_.startswith("["):
        return [_value_of(type_[1:-1], each) for each in value]
    if type_.startswith("{"):
        inner = map_value(type_)
        return {key: _value_of(inner, value[key]) for key in value}
    reader = _READERS.get(type_)
    if reader is not None:
        return reader(value)
    return _object_of(value)


def _same(value: _Made) -> JsonValue:
    return value


def _text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _time_of(message: _Made) -> str | None:
    """None for the zero time, which is an empty message."""
    if not message.ListFields():
        return None
    return timestamp(_EPOCH + timedelta(seconds=message.seconds))


def _micro_time_of(message: _Made) -> str | None:
    if not message.ListFields():
        return None
    return micro_timestamp(
        _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    )


def _int_or_string_of(message: _Made) -> int | str:
    found: int | str = message.strVal if message.type == _STRING else message.intVal
    return found


def _json_of(message: _Made) -> JsonValue:
    return orjson.loads(message.raw) if message.raw else None


def _alternative_of(message: _Made) -> JsonValue:
    """A schema, or what stands in its place: a truth value, or a list."""
    if message.HasField("schema"):
        return _object_of(message.schema)
    fields = wire_fields(message.DESCRIPTOR.full_name)
    other = next(each for each in fields.values() if each.name != "schema")
    return _value_of(other.type, getattr(message, other.attribute)) or (
        False if other.type == "bool" else None
    )


_READERS: Final[dict[str, Callable[[_Made], JsonValue]]] = {
    "string": _same,
    "bool": _same,
    "int": _same,
    "float": whole_number,
    "bytes": _text_of_bytes,
    "Time": _time_of,
    "MicroTime": _micro_time_of,
    "Quantity": lambda message: message.string or "0",
    "IntOrString": _int_or_string_of,
    "any": _json_of,
    "JSON": _json_of,
    **dict.fromkeys(SCHEMA_ALTERNATIVES, _alternative_of),
    "Strings": lambda message: list(message.items),
}


# From objects to messages.


def _fill(message: _Made, obj: JsonObject) -> None:
    for wire in wire_fields(message.DESCRIPTOR.full_name).values():
        if not wire.type:
            _fill(getattr(message, wire.attribute), obj)
            continue
        value = obj.get(wire.name)
        if value is not None:
            _put(message, wire.attribute, wire.type, value)


def _put(message: _Made, name: str, type_: str, value: _Made) -> None:
    if type_.startswith("["):
        held = getattr(message, name)
        for each in value:
            _append(held, type_[1:-1], each)
    elif type_.startswith("{"):
        held, inner = getattr(message, name), map_value(type_)
        for key, each in value.items():
            if inner in _SCALAR_VALUES:
                held[key] = _SCALAR_VALUES[inner](each)
            else:
                _write(held[key], inner, each)
    elif type_ in _SCALAR_VALUES:
        setattr(message, name, _SCALAR_VALUES[type_](value))
    else:
        inner_message = getattr(message, name)
        inner_message.SetInParent()
        _write(inner_message, type_, value)


def _append(held: _Made, type_: str, value: _Made) -> None:
    if type_ in _SCALAR_VALUES:
        held.append(_SCALAR_VALUES[type_](value))
    else:
        _write(held.add(), type_, value)


def _write(message: _Made, type_: str, value: _Made) -> None:
    writer = _WRITERS.get(type_)
    if writer is None:
        _fill(message, value)
    else:
        writer(message, value)


def _write_time(message: _Made, value: str) -> None:
    since = parse_timestamp(value) - _EPOCH
    message.seconds = since // timedelta(seconds=1)
    message.nanos = since.microseconds * 1000


def _write_int_or_string(message: _Made, value: int | str) -> None:
    if isinstance(value, str):
        message.type, message.intVal, message.strVal = _STRING, 0, value
    else:
        message.type, message.intVal, message.strVal = 0, value, ""


def _write_quantity(message: _Made, value: str) -> None:
    message.string = value


def _write_raw(message: _Made, value: JsonValue) -> None:
    if value is not None:
        message.raw = go_json(value)


def _write_alternative(message: _Made, value: JsonValue) -> None:
    if isinstance(value, dict):
        _fill(message.schema, value)
        message.schema.SetInParent()
    fields = wire_fields(message.DESCRIPTOR.full_name)
    other = next(each for each in fields.values() if each.name != "schema")
    if other.type == "bool":
        message.allows = value is not False
    elif isinstance(value, list):
        _put(message, other.attribute, other.type, value)


def _write_strings(message: _Made, value: list[str]) -> None:
    message.items.extend(value)


_SCALAR_VALUES: Final[dict[str, Callable[[_Made], _Made]]] = {
    "string": _same,
    "bool": _same,
    "int": _same,
    "float": _same,
    "bytes": base64.b64decode,
}
_WRITERS: Final[dict[str, Callable[[_Made, _Made], None]]] = {
    "Time": _write_time,
    "MicroTime": _write_time,
    "Quantity": _write_quantity,
    "IntOrString": _write_int_or_string,
    "any": _write_raw,
    "JSON": _write_raw,
    **dict.fromkeys(SCHEMA_ALTERNATIVES, _write_alternative),
    "Strings": _write_strings,
}
