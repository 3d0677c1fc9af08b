"""Between a handler that answers a watch and its socket.

`injector` puts a writer under every request and disturbs those of struck watches. Invariant: a
writer that is not disturbed hands everything on as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from socket import SO_LINGER, SOL_SOCKET
from typing import TYPE_CHECKING, Final

from aiohttp.abc import AbstractStreamWriter
from typing_extensions import override

if TYPE_CHECKING:
    from multidict import CIMultiDict

    from stellwerk_cluster.faults.table import Drip
    from stellwerk_cluster.faults.watch_lines import Close, LineSchedule
    from stellwerk_kube.clock import Clock

_NO_LINGER: Final = struct.pack("ii", 1, 0)
_MAX_WAIT_SECONDS: Final = 0.5
"""Longest wait before the table is looked at again, which may be disarmed meanwhile."""


class DisturbedWriter(AbstractStreamWriter):
    """aiohttp's writer, or the lines that a schedule lets out."""

    def __init__(self, inner: AbstractStreamWriter, clock: Clock) -> None:
        """Write to `inner`."""
        self._inner = inner
        self._clock = clock
        self._schedule: LineSchedule | None = None
        self._half_line = b""
        self._news = asyncio.Event()
        self._over = False
        self._drip: Drip | None = None
        self._half_seconds: float | None = None
        self.closing = False
        """Whether a fault has begun to end the stream."""

    def disturb(self, schedule: LineSchedule | None) -> None:
        """Let the lines of the body out as the schedule says; None: as they come."""
        self._schedule = schedule

    def drip(self, fault: Drip) -> None:
        """Send every body in small pieces."""
        self._drip = fault

    def halve(self, silent_seconds: float) -> None:
        """Send half of what the body begins with, and reset the connection after this time."""
        self._half_seconds = silent_seconds

    async def _send(self, data: bytes | bytearray | memoryview) -> None:
        """Write bytes of a body, as the faults of bytes have it."""
        if self._half_seconds is not None and data:
            await self._inner.write(bytes(data[: (len(data) + 1) // 2]))
            self.closing = True
            await asyncio.sleep(self._half_seconds)
            self._over = True
            reset(self._inner.transport)
            raise ConnectionResetError("a fault has ended the answer")
        if self._drip is None:
            await self._inner.write(data)
            return
        for begin in range(0, len(data), self._drip.bytes):
            await self._inner.write(data[begin : begin + self._drip.bytes])
            await asyncio.sleep(self._drip.seconds)

    async def pump(self) -> None:
        """Write lines when they are due; returns when a fault has ended the stream."""
        schedule = self._schedule
        while schedule is not None:
            lines = schedule.due(self._clock.monotonic())
            if lines:
                await self._send(b"".join(lines))
            if schedule.close is not None:
                await self._close(schedule.close)
                return
            wait_seconds = min(schedule.next_seconds() - self._clock.monotonic(), _MAX_WAIT_SECONDS)
            self._news.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(wait_seconds, 0.0)):
                    await self._news.wait()

    async def _close(self, close: Close) -> None:
        self.closing = True
        if close.last:
            await self._send(close.last)
        await asyncio.sleep(close.silent_seconds)
        self._over = True
        if close.reset:
            reset(self._inner.transport)
        else:
            await self._inner.write_eof()

    @override
    async def write(self, chunk: bytes | bytearray | memoryview) -> None:
        if self._schedule is None:
            await self._send(chunk)
            return
        if self._over:
            raise ConnectionResetError("a fault has ended the stream")
        if self.closing:
            return  # lost on the way, which the API does not notice
        *lines, self._half_line = (self._half_line + bytes(chunk)).split(b"\n")
        now_seconds = self._clock.monotonic()
        for line in lines:
            self._schedule.accept(line + b"\n", now_seconds)
        self._news.set()

    @override
    async def write_eof(self, chunk: bytes = b"") -> None:
        if self._over or self.closing:
            return
        if self._schedule is not None:
            chunk = b"".join([*self._schedule.rest(), self._half_line, chunk])
            self._over = True
        if chunk and (self._drip is not None or self._half_seconds is not None):
            await self._send(chunk)
            chunk = b""
        await self._inner.write_eof(chunk)

    @override
    async def drain(self) -> None:
        await self._inner.drain()

    @override
    def enable_compression(self, encoding: str = "deflate", strategy: int | None = None) -> None:
        self._inner.enable_compression(encoding, strategy)

    @override
    def enable_chunking(self) -> None:
        self._inner.enable_chunking()

    @override
    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        await self._inner.write_headers(status_line, headers)

    @override
    def send_headers(self) -> None:
        self._inner.send_headers()

    @property
    @override
    def transport(self) -> asyncio.WriteTransport | None:
        return self._inner.transport

    @property
    @override
    def buffer_size(self) -> int:  # type: ignore[override]  # aiohttp only reads it
        """Bytes that are not sent yet."""
        return self._inner.buffer_size

    @property
    @override
    def output_size(self) -> int:  # type: ignore[override]  # aiohttp only reads it
        """Bytes written so far."""
        return self._inner.output_size

    @property  # type: ignore[explicit-override]  # mypy misses it where there is a setter
    @override
    def length(self) -> int | None:
        """Bytes of the body that are left to write, where that is known."""
        return self._inner.length

    @length.setter
    @override
    def length(self, value: int | None) -> None:
        self._inner.length = value


def reset(transport: asyncio.BaseTransport | None) -> None:
    """Reset a connection (RST), as one that breaks does."""
    if transport is None:
        return
    socket = transport.get_extra_info("socket")
    if socket is not None:
        with contextlib.suppress(OSError):
            socket.setsockopt(SOL_SOCKET, SO_LINGER, _NO_LINGER)
    if isinstance(transport, asyncio.WriteTransport) or hasattr(transport, "abort"):
        transport.abort()
    else:
        transport.close()
