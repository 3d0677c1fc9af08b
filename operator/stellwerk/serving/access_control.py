"""The users who may read the operator's port beyond its probes, as the API server decides.

`serving.http` asks before each request. Invariant: a request that is let through was allowed by the
API server at most ten seconds ago; without an answer of it none passes.
"""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from aiohttp import web

from stellwerk.client.reviews import ANONYMOUS, Identity
from stellwerk_kube.errors import ApiError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from stellwerk_kube.clock import Clock

KEPT_ANSWER_SECONDS: Final = 10.0
"""Time for which an answer of the API server about a caller is used again. Rights that were taken
away still hold here for this long."""
_MAX_KEPT_REVIEWS: Final = 1024
"""Answers about callers that are kept. Beyond it the oldest are dropped."""
_QUESTIONS_AT_ONCE: Final = 4
"""Callers with invented tokens wait for each other, and not the scheduler for them."""
_MAX_TOKEN_CHARACTERS: Final = 16 * 1024
"""Characters of a token that the API server is asked about."""
_BEARER: Final = "bearer "

T = TypeVar("T")


class Reviewer(Protocol):
    """The cluster's reviews of tokens and rights."""

    async def identify(self, token: str) -> Identity | None:
        """Return whose token it is."""

    async def may(self, identity: Identity, verb: str, path: str) -> bool:
        """Return whether it may use a path."""


class AccessControl:
    """Lets requests pass, or ends them with 401, 403 or 503."""

    def __init__(self, reviewer: Reviewer, clock: Clock) -> None:
        self._reviewer = reviewer
        self._clock = clock
        self._identities: _Answers[Identity | None] = _Answers(clock)
        self._rights: _Answers[bool] = _Answers(clock)
        self._questions = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def check(self, request: web.Request) -> Identity:
        """Return who asks, if the request may be answered.

        Raises:
            HTTPUnauthorized: its token is none of the cluster's.
            HTTPForbidden: its user has no right to the path.
            HTTPServiceUnavailable: the API server did not say.
        """
        verb = request.method.lower()
        try:
            identity = await self._identity(request)
            allowed = await self._rights.get(
                (identity, verb, request.path),
                lambda: self._ask(self._reviewer.may(identity, verb, request.path)),
            )
        except ApiError as error:
            raise web.HTTPServiceUnavailable(
                text=f"the API server does not say who may read this: {error}\n"
            ) from error
        if not allowed:
            raise web.HTTPForbidden(
                text=f'User "{identity.name}" cannot {verb} path "{request.path}"\n'
            )
        return identity

    async def _identity(self, request: web.Request) -> Identity:
        shown = self._from_certificate(request)
        if shown is not None:
            return shown
        header = request.headers.get("Authorization", "")
        if not header.lower().startswith(_BEARER):
            return ANONYMOUS
        token = header[len(_BEARER) :].strip()
        known = (
            await self._identities.get(
                hashlib.sha256(token.encode()).digest(),
                lambda: self._ask(self._reviewer.identify(token)),
            )
            if 0 < len(token) <= _MAX_TOKEN_CHARACTERS
            else None
        )
        if known is None:
            raise web.HTTPUnauthorized(
                text="Unauthorized\n", headers={"WWW-Authenticate": "Bearer"}
            )
        return known

    def _from_certificate(self, request: web.Request) -> Identity | None:
        """The common name and organizations of a client certificate that TLS has verified.

        Raises:
            HTTPUnauthorized: it has expired since.
        """
        transport = request.transport
        shown = transport.get_extra_info("peercert") if transport is not None else None
        if not shown:
            return None
        if ssl.cert_time_to_seconds(shown["notAfter"]) < self._clock.now().timestamp():
            raise web.HTTPUnauthorized(text="the client certificate has expired\n")
        attributes = [pair for entry in shown["subject"] for pair in entry]
        names = [value for key, value in attributes if key == "commonName"]
        groups = [value for key, value in attributes if key == "organizationName"]
        if not names:
            return None
        return Identity(names[-1], (*groups, "system:authenticated"))

    async def _ask(self, question: Awaitable[T]) -> T:
        async with self._questions:
            return await question


class _Answers(Generic[T]):
    """Answers that hold for ten seconds; one question at a time for each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[Hashable, tuple[float, asyncio.Future[T]]] = OrderedDict()

    async def get(self, key: Hashable, ask: Callable[[], Awaitable[T]]) -> T:
        now_seconds = self._clock.monotonic()
        kept = self._kept.get(key)
        if kept is None or kept[0] <= now_seconds or _has_failed(kept[1]):
            asked = asyncio.ensure_future(ask())
            asked.add_done_callback(_has_failed)  # an error that no caller waits for any more
            kept = self._kept[key] = (now_seconds + KEPT_ANSWER_SECONDS, asked)
            self._kept.move_to_end(key)
            while len(self._kept) > _MAX_KEPT_REVIEWS:
                self._kept.popitem(last=False)
        # One caller that goes away does not take the answer from the others.
        return await asyncio.shield(kept[1])


def _has_failed(answer: asyncio.Future[Any]) -> bool:
    return answer.done() and (answer.cancelled() or answer.exception() is not None)
