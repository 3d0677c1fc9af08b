"""Finds where requests begin and end on a connection, and checks their sizes.

LimitedConnection feeds a RequestFraming before aiohttp sees a byte. Invariant: a request is refused
as soon as the bytes that have come are too many, whatever would follow; what is not refused is
framed as aiohttp frames it.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from stellwerk_kube.listening.limits import Limits

_END_OF_HEAD: Final = re.compile(rb"\r?\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"([!#-'*+\-.^_`|~\w]+) ([^ ?#]*)", re.ASCII)
_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r?\n")
_CHUNKED: Final = re.compile(rb"\ntransfer-encoding:[^\n]*chunked")
_CHUNK_SIZE: Final = re.compile(rb"[ \t]*([0-9a-f]{1,16})[ \t]*(?:;[^\n]*)?\r?\n", re.IGNORECASE)
MAX_CHUNK_LINE_BYTES: Final = 1 << 10
"""Bytes of the line before a chunk, its extensions included."""


class BeyondLimitError(Exception):
    """A request that goes beyond a limit; `reason` is the word by which it is counted."""

    def __init__(self, status: HTTPStatus, reason: str, text: str) -> None:
        super().__init__(text)
        self.status = status
        self.reason = reason


class RequestFraming:
    """The place in a request that a connection has reached, from the bytes that it has sent.

    It finds the ends of heads and bodies, and checks their sizes. Against peers that send a head or
    a body without end: aiohttp limits a line and a field, but no head as a whole, and knows neither
    methods nor sizes by path.
    """

    __slots__ = (
        "_allowed_bytes",
        "_chunked",
        "_left",
        "_limits",
        "_seen",
        "_trailer_bytes",
        "requests",
    )

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._seen = bytearray()
        """The head, or the line between chunks, as far as it has come."""
        self._left = 0
        """Bytes of the body, or of the chunk, that are still to come."""
        self._chunked = False
        self._trailer_bytes: int | None = None
        """Bytes that have come behind the last chunk; None: the last chunk has not come."""
        self._allowed_bytes: int | None = None
        """Further bytes that the body may have; None: without a limit."""
        self.requests = 0
        """Heads that have ended."""

    @property
    def in_body(self) -> bool:
        """Whether more of a body is to come."""
        return self._left > 0 or self._chunked

    @property
    def in_head(self) -> bool:
        """Whether a request has begun whose head has not ended."""
        return not self.in_body and bool(self._seen)

    def feed(self, data: bytes) -> int:
        """Take bytes, at most to the end of a request; return the number of bytes taken.

        Raises:
            BeyondLimitError: a request is beyond a limit, or a body not framed as HTTP has it.
        """
        at = 0
        while at < len(data):
            begun = self.in_body
            if self._left:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            elif self._chunked:
                at = self._between_chunks(data, at)
            else:
                before = self.requests
                at = self._head(data, at)
                begun = self.requests > before
            if begun and not self.in_body:
                break
        return at

    def _head(self, data: bytes, at: int) -> int:
        """Take bytes of a head; return the place behind them."""
        seen = self._seen
        if not seen:
            while at < len(data) and data[at] in b"\r\n":
                at += 1
        before = len(seen)
        most = self._limits.request_line_bytes + self._limits.header_bytes + 4
        seen += data[at : at + most - before + 1]
        found = _END_OF_HEAD.search(seen, max(0, before - 3))
        if found is None:
            self._check(seen, ended=False)
            return len(data)
        head = bytes(seen[: found.end()])
        seen.clear()
        self._check(head, ended=True)
        self._begin_body(head)
        self.requests += 1
        return at + len(head) - before

    def _check(self, head: bytes | bytearray, *, ended: bool) -> None:
        """Raise if a head, or as much of it as has come, is beyond a limit."""
        limits, line_end = self._limits, head.find(b"\n")
        line_bytes = line_end if line_end >= 0 else len(head)
        if line_bytes > limits.request_line_bytes:
            raise BeyondLimitError(
                HTTPStatus.REQUEST_URI_TOO_LONG,
                "request_line",
                f"a request line has at most {limits.request_line_bytes} bytes",
            )
        fields = head.count(b"\n", line_bytes + 1) - ended
        too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
        if fields > limits.header_fields:
            text = f"a request has at most {limits.header_fields} header fields"
            raise BeyondLimitError(too_large, "headers", text)
        if len(head) - line_bytes > limits.header_bytes:
            text = f"the headers of a request have at most {limits.header_bytes} bytes"
            raise BeyondLimitError(too_large, "headers", text)

    def _begin_body(self, head: bytes) -> None:
        """Read from a head how long the body is, before a byte of it is taken."""
        limits, lower, line = self._limits, head.lower(), _REQUEST_LINE.match(head)
        method, path = ("", "") if line is None else (line[1].decode(), line[2].decode("latin-1"))
        if line is not None and method not in limits.methods:
            text = f"allowed methods are {', '.join(sorted(limits.methods))}"
            raise BeyondLimitError(HTTPStatus.METHOD_NOT_ALLOWED, "method", text)
        if limits.body_bytes is not None:
            takes_none = method in {"GET", "HEAD"}
            self._allowed_bytes = 0 if takes_none else limits.body_bytes.get(path, 0)
        self._chunked = _CHUNKED.search(lower) is not None
        length = None if self._chunked else _LENGTH.search(lower)
        self._left = self._within_allowed(int(length[1])) if length is not None else 0

    def _within_allowed(self, size: int) -> int:
        """Count `size` bytes of a body, and return their number."""
        if self._allowed_bytes is not None:
            if size > self._allowed_bytes:
                text = "the body is larger than this path and method allow"
                raise BeyondLimitError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body", text)
            self._allowed_bytes -= size
        return size

    def _between_chunks(self, data: bytes, at: int) -> int:
        """Read the line before a chunk, or what is behind the last one."""
        line_end = data.find(b"\n", at)
        end = line_end + 1 if line_end >= 0 else len(data)
        self._seen += data[at:end]
        if len(self._seen) > MAX_CHUNK_LINE_BYTES:
            text = "a chunk begins with a line that is too long"
            raise BeyondLimitError(HTTPStatus.BAD_REQUEST, "malformed", text)
        if line_end < 0:
            return end
        line = bytes(self._seen)
        self._seen.clear()
        if self._trailer_bytes is not None:
            self._trailer_bytes += len(line)
            if not line.strip():
                self._chunked, self._trailer_bytes = False, None
            elif self._trailer_bytes > self._limits.header_bytes:
                too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                raise BeyondLimitError(
                    too_large, "headers", "the trailer behind the last chunk is too long"
                )
            return end
        size = _CHUNK_SIZE.fullmatch(line)
        if size is None:
            raise BeyondLimitError(
                HTTPStatus.BAD_REQUEST, "malformed", "a chunk begins without a size"
            )
        length = int(size[1], 16)
        if length:
            self._left = self._within_allowed(length) + len(b"\r\n")
        else:
            self._trailer_bytes = 0
        return end
