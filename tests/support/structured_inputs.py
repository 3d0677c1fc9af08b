"""Inputs that are odd by their structure: HTTP requests from a grammar, and protobuf messages.

`fuzzing` gives them to ports and readers. A request is made of parts, each of which may be odd, and
put together; of a message the fields are changed and the lengths around them are right again, so
that readers come to what was changed. Invariant: an input follows from the Random that it is drawn
from.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias

# --- HTTP, by the grammar of RFC 9112 -------------------------------------------------------------

_METHODS: Final = (
    *(b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"),
    *(b"TRACE", b"CONNECT", b"PRI", b"get", b"G\x00T", b"", b"M" * 9000, b"\xc3\x89", b"GET\t"),
)
_TARGETS: Final = (
    *(b"*", b"/", b"//", b"http://a/livez", b"a:443", b"", b"/%00", b"/%", b"/%zz", b"/\xff"),
    *(b"/livez/../metrics", b"/a?b#c", b"/" + b"a/" * 3000, b"?x", b"http://[::1", b"/%2e%2e/"),
)
_VERSIONS: Final = (
    *(b"HTTP/1.0", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.1"),
    *(b"HTTP/2.0", b"HTTP/0.9", b"HTTP/1.", b"http/1.1", b"HTTP/11", b"", b"HTTP/1.1 x"),
)
_NAMES: Final = (
    *(b"Host", b"Accept", b"Authorization", b"Connection", b"Content-Encoding", b"Content-Type"),
    *(b"Cookie", b"Expect", b"If-None-Match", b"Origin", b"TE", b"Trailer", b"Upgrade", b"Range"),
    *(b"Impersonate-User", b"X-Remote-User", b"X\x00Y", b"", b" X", b"X ", b"X:", b"\xe4", b"(X)"),
    *(b"Content-Length", b"Transfer-Encoding", b"Sec-WebSocket-Key", b"Forwarded", b"X" * 2000),
)
_VALUES: Final = (
    *(b"", b"a", b"close", b"keep-alive, close", b"upgrade", b"websocket", b"100-continue", b"*/*"),
    *(b"gzip", b"gzip, gzip", b"deflate", b"chunked", b"identity", b"Bearer ", b"Bearer \xff"),
    *(
        b"application/json",
        b"application/yaml",
        b"text/plain; charset=\x00",
        b"multipart/form-data",
    ),
    *(b"Basic Og==", b"a\r\n b", b"a\rb", b"a\nb: c", b"\x00", b"\x7f", b"\xff" * 300, b"0", b"-1"),
    *(b"+1", b"1, 1", b"1, 2", b"0x10", b"9" * 30, b"1e3", b"bytes=0-", b"a" * 9000, b"\t \t"),
    *(b"application/vnd.kubernetes.protobuf", b"application/json;as=Table;v=v1;g=meta.k8s.io"),
)
_ENDS: Final = (b"\r\n", b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n", b"")
_SIZES: Final = (b"0", b"ffffffffffffffffff", b"-1", b"0x5", b"5 ", b"5;a=b", b"", b"g", b"5\n\n")


def http_bytes(random: Random, requests: Sequence[bytes]) -> bytes:
    """One to three requests on a connection, each made anew or taken from these in part."""
    count = random.choice((1, 1, 1, 2, 3))
    whole = b"".join(_request(random, requests) for _ in range(count))
    return whole[: 256 << 10]


def _request(random: Random, requests: Sequence[bytes]) -> bytes:
    head, _, body = random.choice(requests).partition(b"\r\n\r\n")
    first, *lines = head.split(b"\r\n")
    method, target, version = first.split(b" ", 2)
    lines = [line for line in lines if random.random() > 0.1]
    if random.random() < 0.2:
        method = random.choice(_METHODS)
    if random.random() < 0.2:
        target = random.choice(_TARGETS)
    if random.random() < 0.1:
        version = random.choice(_VERSIONS)
    for _ in range(random.choice((0, 0, 1, 2, 4))):
        field_line = random.choice(_NAMES) + b": " + random.choice(_VALUES)
        lines.insert(random.randrange(len(lines) + 1), field_line)
    framing, sent = _framed(random, body)
    lines = [each for each in lines if not each.lower().startswith((b"content-l", b"transfer-e"))]
    lines += framing
    random.shuffle(lines)
    end = b"\r\n" if random.random() < 0.9 else random.choice(_ENDS)
    space = b" " if random.random() < 0.95 else random.choice((b"  ", b"\t", b"", b"\x0b"))
    start = space.join((method, target, version))
    return end.join([start, *lines, b"", sent])


def _framed(random: Random, body: bytes) -> tuple[list[bytes], bytes]:
    """Fields that frame a body, and what is sent behind them."""
    length, chunked = b"Content-Length: %d", b"Transfer-Encoding: chunked"
    right = length % len(body)
    other = length % random.choice((0, len(body) + 9, 1 << 40))
    odd_length = b"Content-Length: " + random.choice(_VALUES)
    odd_coding = b"Transfer-Encoding: " + random.choice(_VALUES)
    in_chunks = _chunks(random, body)
    framings: tuple[tuple[list[bytes], bytes], ...] = (
        *[([right], body)] * 3,
        *[([chunked], in_chunks)] * 2,
        ([], body),
        ([right, chunked], in_chunks),  # of two servers in a row each may believe another one
        ([right, other], body),
        ([odd_length], body),
        ([odd_coding], in_chunks),
    )
    return random.choice(framings)


def _chunks(random: Random, body: bytes) -> bytes:
    sent, at = b"", 0
    while at < len(body):
        size = random.choice((1, 7, 100, 5000))
        part = body[at : at + size]
        at += size
        told = b"%x" % len(part) if random.random() < 0.95 else random.choice(_SIZES)
        sent += told + b"\r\n" + part + (b"\r\n" if random.random() < 0.95 else b"")
    last = random.choice((b"0\r\n\r\n",) * 6 + (b"", b"0\r\n", b"00\r\n\r\n", b"0\r\nX: y\r\n\r\n"))
    return sent + last


# --- protobuf -------------------------------------------------------------------------------------

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_NUMBERS: Final = (0, 1, 2, 127, 128, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, 300)
_TEXTS: Final = (
    *(b"", b"\x00", b"\xff\xfe", b"a" * 70_000, b"\xed\xa0\x80", b"../..", b"1e999", b"-0", b"%"),
    *(b'{"a":' * 300, b"null", b"\x1b[2J", b"9" * 400, b"2026-13-45T99:99:99Z", b"\x0a\x02" * 2000),
)
_DEEPEST: Final = 300
Fields: TypeAlias = "list[_Field]"


@dataclass
class _Field:
    """A field of a message as it is on the wire."""

    number: int
    kind: int
    value: "int | bytes | Fields"


@dataclass
class _Reading:
    data: bytes
    at: int = 0
    fields: Fields = field(default_factory=list)

    def varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    def run(self) -> Fields:
        while self.at < len(self.data):
            tag = self.varint()
            number, kind = tag >> 3, tag & 7
            value: int | bytes
            if kind == _VARINT:
                value = self.varint()
            else:
                size = {_FIXED64: 8, _FIXED32: 4}.get(kind)
                size = self.varint() if size is None and kind == _BYTES else size
                if size is None or not number or self.at + size > len(self.data):
                    raise ValueError(kind)
                value = self.data[self.at : self.at + size]
                self.at += size
            self.fields.append(_Field(number, kind, value))
        return self.fields


def _parsed(data: bytes, depth: int = 0) -> Fields:
    """The fields of a message; what may be a message in it is one."""
    fields = _Reading(data).run()
    for each in fields:
        if isinstance(each.value, bytes) and each.kind == _BYTES and len(each.value) > 1:
            try:
                each.value = _parsed(each.value, depth + 1)
            except (ValueError, IndexError):
                continue
    return fields


def _written(fields: Fields) -> bytes:
    found = bytearray()
    for each in fields:
        found += _varint(each.number << 3 | each.kind)
        value = _written(each.value) if isinstance(each.value, list) else each.value
        if isinstance(value, int):
            found += _varint(value)
        else:
            found += _varint(len(value)) + value if each.kind == _BYTES else value
    return bytes(found)


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def protobuf_message(random: Random, good: bytes) -> bytes:
    """A message with a few fields changed, taken away, doubled, moved or nested deep."""
    fields = _parsed(good)
    for _ in range(random.choice((1, 1, 2, 4))):
        _change(random, fields)
    return _written(fields)[: 256 << 10]


def protobuf_body(random: Random, good: bytes) -> bytes:
    """A body of the API with such a message in its envelope, or with an envelope like that."""
    prefix, envelope = good[:4], _parsed(good[4:])
    if random.random() < 0.2:
        _change(random, envelope)
        return prefix + _written(envelope)
    raw = next(each for each in envelope if each.number == 2)
    inner = _written(raw.value) if isinstance(raw.value, list) else raw.value
    if isinstance(inner, int):
        raise TypeError("the object of an envelope is bytes")
    raw.value = protobuf_message(random, inner)
    return prefix + _written(envelope)


def _change(random: Random, fields: Fields) -> None:
    """Change something at a random depth."""
    while fields:
        chosen = random.choice(fields)
        if not (isinstance(chosen.value, list) and chosen.value and random.random() < 0.8):
            _change_at(random, fields, fields.index(chosen))
            return
        fields = chosen.value


def _change_at(random: Random, fields: Fields, at: int) -> None:
    chosen = fields[at]
    kind = random.choice((_FIXED64, _FIXED32))
    other, deep = random.choice(fields), _written([chosen])
    for _ in range(random.choice((3, 50, _DEEPEST))):
        deep = _written([_Field(chosen.number, _BYTES, deep)])
    values: tuple[tuple[int, int | bytes | Fields], ...] = (
        (_VARINT, random.choice(_NUMBERS)),
        (_BYTES, random.choice(_TEXTS)),
        (_BYTES, deep),
        (kind, random.randbytes(8 if kind == _FIXED64 else 4)),
        (other.kind, other.value),
    )
    match random.randrange(8):
        case 0:
            del fields[at]
        case 1:
            fields[at:at] = [chosen] * random.choice((1, 2, 500))
        case 2:
            chosen.number = random.choice((1, 2, 3, 15, 16, 100, 1 << 28))
        case _:
            chosen.kind, chosen.value = random.choice(values)
