"""The port of the replica that leads, found anew when it is lost.

`stellwerk page` asks through it. Invariant: at most one port is forwarded at a time, and where
there is no leader, it is looked for every few seconds and not with each question.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, Self

from stellwerk.client.operator_port import NoAnswer, OperatorPort, PortRefusal
from stellwerk.commands.operator_port import open_port
from stellwerk.commands.port_arguments import PortAddress
from stellwerk.errors import SchedulerError
from stellwerk.models.answers.answer import Kind

_PAUSE_SECONDS: Final = 3.0
"""After a failure, before the leader is looked for again."""


class LeaderPort:
    """Questions to whichever replica leads; open it with `async with`."""

    def __init__(self, address: PortAddress) -> None:
        self._address = address
        self._port: OperatorPort | None = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._failure: SchedulerError | None = None
        self._failed_at_seconds = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close(self._port)

    async def get(self, path: str, kind: type[Kind]) -> Kind:
        """The answer to a path; raises as `OperatorPort.get`."""
        return await self._ask(lambda port: port.get(path, kind))

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body; raises as `OperatorPort.get`."""
        return await self._ask(lambda port: port.post(path, body, kind))

    async def _ask(self, question: Callable[[OperatorPort], Awaitable[Kind]]) -> Kind:
        """Ask; where the port is lost or leads no more, ask once more through a new one."""
        port = await self._opened()
        try:
            return await question(port)
        except (NoAnswer, PortRefusal) as lost:
            if isinstance(lost, PortRefusal) and not lost.leader:
                raise
            await self._close(port)
        return await question(await self._opened())

    async def _opened(self) -> OperatorPort:
        async with self._opening:
            if self._port is not None:
                return self._port
            paused = time.monotonic() - self._failed_at_seconds < _PAUSE_SECONDS
            if self._failure is not None and paused:
                raise self._failure
            try:
                self._port = await self._stack.enter_async_context(open_port(self._address))
            except SchedulerError as failure:
                self._failure, self._failed_at_seconds = failure, time.monotonic()
                raise
            self._failure = None
            return self._port

    async def _close(self, port: OperatorPort | None) -> None:
        async with self._opening:
            if port is not None and port is self._port:
                self._port = None
                await self._stack.aclose()
