"""The operator's answers to the page: each question asked once at a time, and kept for a moment.

The page's views ask through it. Invariant: however many windows follow however many pages, the
operator is asked a few questions at once and each at most once a second; and what is kept is
bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from stellwerk_kube.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stellwerk.answers.answer import Kind
    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject

Answer = TypeVar("Answer")

FRESH_SECONDS: Final = 1.0
KEPT: Final = 32
_AT_ONCE: Final = 3
_WAITING: Final = 32
"""More questions than these are turned away."""


class Port(Protocol):
    """The operator's port, as the page needs it."""

    async def get(self, path: str, kind: type[Kind]) -> Kind:
        """The answer to a path."""

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body."""


class ApiReader(Protocol):
    """The API server, as the page needs it: read with the user's own credentials."""

    async def history(self, profile: str) -> ProfileHistory:
        """The accepted specs of a profile; raises SchedulerError."""

    async def pod(self, namespace: str, name: str) -> JsonObject:
        """The manifest of a pod; raises SchedulerError."""


class Answers:
    """Answers of one port."""

    def __init__(self, port: Port, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, asyncio.Future[Any]]] = OrderedDict()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, path: str, kind: type[Kind]) -> Kind:
        """The answer to a path, of which each has one kind; at most a second old.

        Raises:
            SchedulerError: there is none.
        """
        now = self._clock.monotonic()
        kept = self._kept.get(path)
        if kept is None or (kept[1].done() and (kept[0] <= now or _failed(kept[1]))):
            asked = asyncio.ensure_future(self._ask(lambda: self._port.get(path, kind)))
            asked.add_done_callback(_failed)  # an error that no window waits for any more
            kept = self._kept[path] = (now + FRESH_SECONDS, asked)
            self._kept.move_to_end(path)
            self._let_go(now)
        # A window that is closed does not take the answer from the others.
        answer: Kind = await asyncio.shield(kept[1])
        return answer

    def _let_go(self, now: float) -> None:
        """Keep no answer that is older than a second, and no more than a few in all."""
        while self._kept:
            until, asked = next(iter(self._kept.values()))
            if len(self._kept) <= KEPT and not (asked.done() and until <= now):
                return
            self._kept.popitem(last=False)

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body; raises as `get`."""
        return await self._ask(lambda: self._port.post(path, body, kind))

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a question that is not the port's; raises as `get`."""
        return await self._ask(question)

    async def _ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        if self._waiting >= _WAITING:
            raise SchedulerError("too many requests at once: close a few windows")
        self._waiting += 1
        try:
            async with self._slots:
                return await question()
        finally:
            self._waiting -= 1


def _failed(answer: asyncio.Future[Any]) -> bool:
    return answer.cancelled() or answer.exception() is not None
