"""The changes of a pod watch, in protobuf or in JSON.

The controllers and kubelets of a cluster watch pods in protobuf. An API server encodes a change
once for all watches of one encoding. A benchmark that watched in JSON would pay for the encoding
that Stellwerk's own watch needs, and its cost to the API server would look too small.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import orjson

from stellwerk_kube.protobuf import PROTOBUF, fields, raw_message

ACCEPT: Final = f"{PROTOBUF};stream=watch"
_LENGTH_BYTES: Final = 4

# meta.k8s.io WatchEvent, RawExtension and ObjectMeta; Pod, PodSpec and PodStatus
_TYPE, _OBJECT, _RAW = 1, 2, 1
_METADATA, _SPEC, _STATUS = 1, 2, 3
_NAME, _RESOURCE_VERSION, _NODE_NAME, _PHASE = 1, 6, 10, 1


class PodChange(NamedTuple):
    """What a measurement needs of an event."""

    type: str
    name: str
    node_name: str
    phase: str
    resource_version: str


class PodChanges:
    """Reads the changes from pieces of a stream."""

    def __init__(self, content_type: str) -> None:
        """Read a stream of this type."""
        self._split = _frames if content_type.startswith(PROTOBUF) else _lines
        self._read = _of_protobuf if content_type.startswith(PROTOBUF) else _of_json
        self._rest = b""

    def of(self, piece: bytes) -> Iterator[PodChange]:
        """Yield the changes that are complete with this piece.

        Raises:
            RuntimeError: the server has ended the watch with an error.
        """
        whole, self._rest = self._split(self._rest + piece)
        for each in whole:
            change = self._read(each)
            if change.type == "ERROR":
                raise RuntimeError(f"the pod watch failed: {each[:400]!r}")
            yield change


def _lines(content: bytes) -> tuple[list[bytes], bytes]:
    *lines, rest = content.split(b"\n")
    return lines, rest


def _frames(content: bytes) -> tuple[list[bytes], bytes]:
    frames, at = [], 0
    while len(content) - at >= _LENGTH_BYTES:
        end = at + _LENGTH_BYTES + int.from_bytes(content[at : at + _LENGTH_BYTES], "big")
        if end > len(content):
            break
        frames.append(content[at + _LENGTH_BYTES : end])
        at = end
    return frames, content[at:]


def _of_json(line: bytes) -> PodChange:
    event = orjson.loads(line)
    pod = event["object"]
    metadata = pod.get("metadata", {})
    return PodChange(
        event["type"],
        metadata.get("name", ""),
        pod.get("spec", {}).get("nodeName", ""),
        pod.get("status", {}).get("phase", ""),
        metadata.get("resourceVersion", ""),
    )


def _of_protobuf(frame: bytes) -> PodChange:
    event = dict(fields(frame))
    type_ = _text(event, _TYPE)
    if type_ == "ERROR":
        return PodChange(type_, "", "", "", "")
    pod = dict(fields(raw_message(_message(dict(fields(_message(event, _OBJECT))), _RAW))))
    metadata, spec, status = (
        dict(fields(_message(pod, each))) for each in (_METADATA, _SPEC, _STATUS)
    )
    return PodChange(
        type_,
        _text(metadata, _NAME),
        _text(spec, _NODE_NAME),
        _text(status, _PHASE),
        _text(metadata, _RESOURCE_VERSION),
    )


def _message(of: dict[int, int | bytes], number: int) -> bytes:
    value = of.get(number, b"")
    if isinstance(value, int):
        raise RuntimeError(f"field {number} of a watch event is a number")  # noqa: TRY004
    return value


def _text(of: dict[int, int | bytes], number: int) -> str:
    return _message(of, number).decode()
