"""The operator's answers to the page: each question asked once at a time, and kept for a moment.

The page's views ask through it. Invariant: however many windows follow however many pages, the
operator is asked a few questions at once and each at most once a second; and what is kept is
bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from stellwerk_kube.errors import SchedulerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from stellwerk.answers.answer import Kind
    from stellwerk.answers.profile_history import ProfileHistory
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject

Answer = TypeVar("Answer")

FRESH_SECONDS: Final = 1.0
"""Time for which an answer is shown again without asking the operator."""
MAX_KEPT_ANSWERS: Final = 32
"""Answers that are kept. Above it, those that are not fresh any more are dropped."""
_MAX_QUESTIONS_AT_ONCE: Final = 3
"""Questions that a page asks the operator at once, so that it does not crowd out others."""
_MAX_WAITING_QUESTIONS: Final = 32
"""Questions that wait for one of these. Further ones are refused."""


@dataclass(frozen=True, slots=True)
class PodEvent:
    """An event of a pod, as the API server has it."""

    at: str
    """The last time, RFC 3339; empty: the event does not say."""
    kind: str
    """Normal or Warning."""
    reason: str
    message: str
    count: int

    @classmethod
    def of(cls, written: JsonObject) -> PodEvent:
        """Read an event of v1 or of events.k8s.io/v1."""
        series = written.get("series") or {}
        at = (
            series.get("lastObservedTime")
            or written.get("lastTimestamp")
            or written.get("eventTime")
            or ""
        )
        return cls(
            str(at),
            str(written.get("type") or ""),
            str(written.get("reason") or ""),
            str(written.get("message") or written.get("note") or ""),
            int(series.get("count") or written.get("count") or 1),
        )


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

    async def events(self, namespace: str, name: str) -> Sequence[PodEvent]:
        """The newest events of a pod, the last one first; raises SchedulerError."""


class Answers:
    """Answers of one port."""

    def __init__(self, port: Port, clock: Clock) -> None:
        self._port = port
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, asyncio.Future[Any]]] = OrderedDict()
        self._slots = asyncio.Semaphore(_MAX_QUESTIONS_AT_ONCE)
        self._waiting = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def get(self, path: str, kind: type[Kind], fresh_seconds: float | None = None) -> Kind:
        """The answer to a path, of which each has one kind; by default at most a second old.

        Raises:
            SchedulerError: there is none.
        """
        fresh_seconds = FRESH_SECONDS if fresh_seconds is None else fresh_seconds
        return await self.kept(path, lambda: self._port.get(path, kind), fresh_seconds)

    async def kept(
        self, name: str, question: Callable[[], Awaitable[Answer]], fresh_seconds: float
    ) -> Answer:
        """The answer to a question of that name, at most so old; raises as `get`."""
        now = self._clock.monotonic()
        kept = self._kept.get(name)
        if kept is None or (kept[1].done() and (kept[0] <= now or _failed(kept[1]))):
            asked = asyncio.ensure_future(self._ask(question))
            asked.add_done_callback(_failed)  # an error that no window waits for any more
            kept = self._kept[name] = (now + fresh_seconds, asked)
            self._kept.move_to_end(name)
            self._let_go(now)
        # A window that is closed does not take the answer from the others.
        answer: Answer = await asyncio.shield(kept[1])
        return answer

    def _let_go(self, now: float) -> None:
        """Keep no answer that is too old, and no more than a few in all."""
        while self._kept:
            until, asked = next(iter(self._kept.values()))
            if len(self._kept) <= MAX_KEPT_ANSWERS and not (asked.done() and until <= now):
                return
            self._kept.popitem(last=False)

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body; raises as `get`."""
        return await self._ask(lambda: self._port.post(path, body, kind))

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to a question that is not the port's; raises as `get`."""
        return await self._ask(question)

    async def _ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        if self._waiting >= _MAX_WAITING_QUESTIONS:
            raise SchedulerError("too many requests at once: close a few windows")
        self._waiting += 1
        try:
            async with self._slots:
                return await question()
        finally:
            self._waiting -= 1


def _failed(answer: asyncio.Future[Any]) -> bool:
    return answer.cancelled() or answer.exception() is not None
