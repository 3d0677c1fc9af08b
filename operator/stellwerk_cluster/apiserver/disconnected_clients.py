"""Clients that are gone before their request is answered: nothing to answer, and nothing to log.

`cluster` puts it around whatever answers. Invariant: an error of a connection is passed over only
where it is the client's own that has ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


def while_connected(handler: Handler) -> Handler:
    """Return a handler that raises no error of a connection once its client is gone."""

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionError:
            if request.transport is None or request.transport.is_closing():
                return web.Response()  # aiohttp finds that it cannot be sent, which is no error
            raise

    return handle
