"""A line between one operator and the API server: it can be slow, and it can be cut.

What goes through it is noted. Invariant: nothing is changed, reordered or lost but by `cut`.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_BINDING = re.compile(rb"POST /api/v1/namespaces/[^/ ]+/pods/([^/ ]+)/binding ")


class Line:
    """Forwards bytes to a port of this machine."""

    def __init__(self, port: int, *, delay_seconds: float = 0.0, spread: float = 0.0) -> None:
        """`spread`: the delay is drawn up to so many times longer for each piece."""
        self.bindings: list[str] = []
        """Names of the pods whose binding was asked for over this line, as often as it was."""
        self.delay_seconds = delay_seconds
        """Of each piece of a request; answers are not held up."""
        self._spread = spread
        self._port = port
        self._whole = asyncio.Event()
        self._whole.set()
        self._carrying: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """Lose what is sent, in either direction; connections stay open, and try again."""
        self._whole.clear()

    def mend(self) -> None:
        """Deliver what is still tried, and go on."""
        self._whole.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        for source, target, asks in ((reader, there_writer, True), (there_reader, writer, False)):
            task = asyncio.create_task(self._carry(source, target, asks=asks))
            self._carrying.add(task)
            task.add_done_callback(self._carrying.discard)

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, asks: bool
    ) -> None:
        try:
            while piece := await source.read(65536):
                if asks:
                    self.bindings += [each.decode() for each in _BINDING.findall(piece)]
                    longer = random.uniform(0.0, self._spread)
                    await asyncio.sleep(self.delay_seconds * (1.0 + longer))
                await self._whole.wait()
                if source.exception() is not None or source.at_eof():
                    return  # given up meanwhile, and not sent again
                target.write(piece)
                await target.drain()
        except OSError:
            pass  # the other side is gone
        finally:
            target.close()

    async def close(self) -> None:
        for task in list(self._carrying):
            task.cancel()
            await asyncio.wait({task})


@asynccontextmanager
async def line_to(
    server: str,
    token: str,
    kubeconfig: Path,
    *,
    delay_seconds: float = 0.0,
    spread: float = 0.0,
) -> AsyncIterator[Line]:
    """Open a line to a server, and write a kubeconfig with that token that leads over it."""
    port = int(server.rsplit(":", 1)[1])
    line = Line(port, delay_seconds=delay_seconds, spread=spread)
    listener = await asyncio.start_server(line.serve, "127.0.0.1", 0)
    _write_kubeconfig(kubeconfig, listener.sockets[0].getsockname()[1], token)
    try:
        yield line
    finally:
        listener.close()
        await line.close()


def _write_kubeconfig(kubeconfig: Path, port: int, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    kubeconfig.write_text(json.dumps(config), encoding="utf-8")
