"""Events in Kubernetes' protobuf, and the Status that answers them.

`client.transport` sends a body so where `client.kubernetes` names its encoder, and reads the Status
of a refusal. Kubernetes' generic wire format is that of protobuf, in an envelope with the kind.
The API server spends less CPU on an event in protobuf than in JSON; for a binding it makes no
difference (docs/performance-stages.md). Field numbers are those of the `generated.proto` files of
k8s.io/api 1.36; within a version of a kind they never change. Invariant: a body says what the
mapping says that it is made of, or making it raises.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from stellwerk_kube.clock import parse_moment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_MAGIC: Final = b"k8s\x00"
"""The first bytes of every object in protobuf."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_VARINT: Final = 0
_BYTES: Final = 2
_FIXED_BYTES: Final = {1: 8, 5: 4}
"""Bytes of a value by its wire type."""
_LOW_BITS: Final = 0x7F
_MORE: Final = 0x80
_MAX_NUMBER_BITS: Final = 64

# runtime.Unknown and runtime.TypeMeta
_TYPE_META, _RAW = 1, 2
_API_VERSION, _KIND = 1, 2
# meta.v1.ObjectMeta
_METADATA: Final = {"name": 1, "namespace": 3}
# core.v1.ObjectReference
_REFERENCE: Final = {
    "kind": 1,
    "namespace": 2,
    "name": 3,
    "uid": 4,
    "apiVersion": 5,
    "resourceVersion": 6,
    "fieldPath": 7,
}
# events.v1.Event
_EVENT_TIME, _SERIES, _REGARDING, _RELATED = 2, 3, 8, 9
_EVENT_TEXTS: Final = {
    "reportingController": 4,
    "reportingInstance": 5,
    "action": 6,
    "reason": 7,
    "note": 10,
    "type": 11,
}
_EVENT_FIELDS: Final = frozenset(
    {"apiVersion", "kind", "metadata", "eventTime", "series", "regarding", "related", *_EVENT_TEXTS}
)
# events.v1.EventSeries
_COUNT, _LAST_OBSERVED = 1, 2
# meta.v1.MicroTime
_SECONDS, _NANOS = 1, 2
# meta.v1.Status and StatusDetails
_STATUS_TEXTS: Final = {3: "message", 4: "reason"}
_DETAILS: Final = 5
_RETRY_AFTER: Final = 5


def event_body(event: Mapping[str, Any]) -> bytes:
    """Encode an Event of events.k8s.io/v1.

    Raises:
        KeyError: it has a field that is not known here.
    """
    if unknown := event.keys() - _EVENT_FIELDS:
        raise KeyError(*sorted(unknown))
    parts = [
        _message(1, _texts(event["metadata"], _METADATA)),
        _message(_EVENT_TIME, _micro_time(event["eventTime"])),
    ]
    if series := event.get("series"):
        observed = _message(_LAST_OBSERVED, _micro_time(series["lastObservedTime"]))
        parts.append(_message(_SERIES, _number(_COUNT, series["count"]) + observed))
    parts += [
        _message(number, event[name].encode())
        for name, number in _EVENT_TEXTS.items()
        if name in event
    ]
    for name, number in (("regarding", _REGARDING), ("related", _RELATED)):
        if name in event:
            parts.append(_message(number, _texts(event[name], _REFERENCE)))
    return _enveloped(event, b"".join(parts))


def read_status(body: bytes) -> dict[str, Any] | None:
    """Return what a Status in protobuf says, with the keys that it has as JSON; None: it is none.

    Raises:
        ValueError: the body begins like protobuf and is malformed.
    """
    if not body.startswith(_MAGIC):
        return None
    said: dict[str, Any] = {}
    for number, value in fields(raw_message(body)):
        if number in _STATUS_TEXTS and isinstance(value, bytes):
            said[_STATUS_TEXTS[number]] = value.decode()
        elif number == _DETAILS and isinstance(value, bytes):
            details = dict(fields(value))
            if _RETRY_AFTER in details:
                said["details"] = {"retryAfterSeconds": details[_RETRY_AFTER]}
    return said


def raw_message(body: bytes) -> bytes:
    """Return an object's message without its envelope.

    Raises:
        ValueError: the body is no Kubernetes protobuf.
    """
    if not body.startswith(_MAGIC):
        raise ValueError("it does not begin with k8s and a zero byte")
    raw = dict(fields(body[len(_MAGIC) :])).get(_RAW, b"")
    if not isinstance(raw, bytes):
        raise ValueError("its message is a number")  # noqa: TRY004 as every malformed body
    return raw


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field: an integer, or the bytes of a text or message.

    Raises:
        ValueError: this is no message.
    """
    at, size = 0, len(message)
    while at < size:
        tag, at = _read_number(message, at)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == _VARINT:
            value, at = _read_number(message, at)
            yield number, value
            continue
        if wire_type == _BYTES:
            length, at = _read_number(message, at)
        elif wire_type in _FIXED_BYTES:
            length = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"field {number} has wire type {wire_type}, which is not known")
        if length > size - at:
            raise ValueError(f"field {number} is longer than its message")
        yield number, message[at : at + length]
        at += length


def _enveloped(obj: Mapping[str, Any], message: bytes) -> bytes:
    type_meta = _message(_API_VERSION, obj["apiVersion"].encode())
    type_meta += _message(_KIND, obj["kind"].encode())
    return _MAGIC + _message(_TYPE_META, type_meta) + _message(_RAW, message)


def _texts(of: Mapping[str, str], numbers: Mapping[str, int]) -> bytes:
    """Encode an object that has texts alone."""
    return b"".join([_message(numbers[name], text.encode()) for name, text in of.items()])


def _micro_time(text: str) -> bytes:
    """Encode a time like 2026-01-01T00:00:00.000000Z."""
    since = parse_moment(text) - _EPOCH
    seconds = since.days * 86_400 + since.seconds
    return _number(_SECONDS, seconds) + _number(_NANOS, since.microseconds * 1000)


def _number(number: int, value: int) -> bytes:
    return _written_number(number << 3 | _VARINT) + _written_number(value)


def _message(number: int, message: bytes) -> bytes:
    """Encode bytes, a text or a message as a field; numbers go up to 15, and take one byte."""
    size = len(message)
    if size < _MORE:  # most of them: no call for a length of one byte
        return b"%c%c%b" % (number << 3 | _BYTES, size, message)
    return b"%c%b%b" % (number << 3 | _BYTES, _written_number(size), message)


def _written_number(value: int) -> bytes:
    """Encode an integer of at least 0 in groups of 7 bits, the lowest first."""
    written = bytearray()
    while value >= _MORE:
        written.append(value & _LOW_BITS | _MORE)
        value >>= 7
    written.append(value)
    return bytes(written)


def _read_number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < _MAX_NUMBER_BITS:
        if at >= len(message):
            raise ValueError("the message ends inside a number")
        byte = message[at]
        at += 1
        value |= (byte & _LOW_BITS) << shift
        if byte < _MORE:
            return value, at
        shift += 7
    raise ValueError("a number of more than 64 bits")
