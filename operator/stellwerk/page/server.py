"""The page's own small server, on the loopback interface alone.

`stellwerk page` and `stellwerk up` open it. Invariant: it holds no state of a window, and what it
keeps does not grow with their number.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from stellwerk.clock import SystemClock
from stellwerk.errors import cannot_listen
from stellwerk.listening import LimitedSite, Limits, PortUse, within_limits
from stellwerk.page.answers import Answers
from stellwerk.page.kept_key import kept_key
from stellwerk.page.request_guard import KEY, RequestGuard, add_headers
from stellwerk.page.supposition_form import MOST_BYTES
from stellwerk.page.views import Views

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from stellwerk.page.answers import HistoryReader, Port

    Handler = Callable[[web.Request], Awaitable[web.Response]]

_USER: Final = "the user of this page"
_LIMITS: Final = Limits(
    methods=frozenset({"GET", "HEAD", "POST"}),
    body_bytes={"/what-if": MOST_BYTES},
    user_requests=Limits().requests,
)
_STATIC: Final = Path(__file__).parent / "static"
_FILES: Final = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}


@asynccontextmanager
async def open_page(
    port: Port, number: int = 0, history: HistoryReader | None = None
) -> AsyncIterator[str]:
    """Serve the page inside; yields its address, which holds the key to it.

    A page on a port of its own keeps its key. `history` reads that of a profile.

    Raises:
        ConfigurationError: the port is taken, or the key cannot be kept.
    """
    guard, use = RequestGuard(kept_key(number) if number else ""), PortUse(_LIMITS)

    async def whoever_has_the_key(request: web.Request) -> str:
        guard.let_in(request)
        return _USER

    before = [within_limits(use, whoever_has_the_key)]
    application = web.Application(middlewares=before, client_max_size=MOST_BYTES)
    application.on_response_prepare.append(add_headers)
    application.add_routes(Views(Answers(port, SystemClock()), history).routes)
    for name, kind in _FILES.items():
        application.router.add_get(f"/static/{name}", _file(_STATIC / name, kind))
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await LimitedSite(runner, "127.0.0.1", number, use).start()
        except OSError as error:
            raise cannot_listen(f"127.0.0.1:{number}", error) from error
        bound: int = runner.addresses[0][1]
        yield f"http://127.0.0.1:{bound}/?{KEY}={guard.key}"
    finally:
        await runner.cleanup()


def _file(path: Path, kind: str) -> Handler:
    text = path.read_bytes()

    async def handler(_: web.Request) -> web.Response:
        return web.Response(body=text, content_type=kind, charset="utf-8")

    return handler
