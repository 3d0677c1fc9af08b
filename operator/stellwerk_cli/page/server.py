"""The page's own small server, on the loopback interface alone.

`stellwerk page` and `stellwerk up` open it. Invariant: it holds no state of a window, and what it
keeps does not grow with their number. The key of a page with a port of its own is kept in a file,
so that bookmarks outlive a restart: the user's own, which no other can read; what is not so is
refused, and never overwritten.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import secrets
import stat
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web

from stellwerk_cli.page.answers import Answers
from stellwerk_cli.page.request_guard import KEY, RequestGuard, add_headers
from stellwerk_cli.page.supposition_form import MAX_FORM_BYTES
from stellwerk_cli.page.views import Views
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import ConfigurationError, cannot_listen
from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.middleware import within_limits
from stellwerk_kube.listening.port_use import PortUse
from stellwerk_kube.listening.site import LimitedSite
from stellwerk_kube.user_files import expanded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from stellwerk_cli.page.answers import ApiReader, Port

    Handler = Callable[[web.Request], Awaitable[web.Response]]


_KEY: Final = re.compile(r"[A-Za-z0-9_-]{32}")
_PRIVATE_MODE: Final = 0o600
"""Mode of the file with the key of the page: its owner alone reads it."""
_NO_PLACE: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})
"""The errors of a folder that the user may not write to."""

logger = logging.getLogger(__name__)


def kept_key(port: int) -> str:
    """Return the key of the page on a port: that of before, or a new one, which is kept.

    A user without a folder to write to, as one has in a container, gets a new key at each start.

    Raises:
        ConfigurationError: the file is not private, is no key, or cannot be written.
    """
    file = _folder() / f"page-{port}.key"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            return _written(file)
        except FileExistsError:
            return _read(file)
    except OSError as error:
        if error.errno in _NO_PLACE and not os.path.lexists(file):
            logger.warning(
                "the page's key will change at the next start, because it cannot be kept in %s: %s",
                file,
                error.strerror,
            )
            return secrets.token_urlsafe(24)
        raise ConfigurationError(f"the page's key cannot be kept in {file}: {error}") from error


def _folder() -> Path:
    """The place of what programs keep for a user."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if state.startswith("/") else expanded("~/.local/state")) / "stellwerk"


def _written(file: Path) -> str:
    """A new key, in a file that was not there; it appears whole."""
    key = secrets.token_urlsafe(24)
    new = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with os.fdopen(
            os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE_MODE), "w"
        ) as opened:
            opened.write(f"{key}\n")
        file.hardlink_to(new)
    finally:
        new.unlink(missing_ok=True)
    return key


def _read(file: Path) -> str:
    with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)) as opened:
        status = os.fstat(opened.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.getuid():
            raise ConfigurationError(f"the page's key {file} is not a file of yours")
        if stat.S_IMODE(status.st_mode) & 0o077:
            raise ConfigurationError(
                f"others may read the page's key {file}: remove it to get a new one"
            )
        key = opened.read(64).strip()
    if not _KEY.fullmatch(key):
        raise ConfigurationError(f"{file} holds no key of the page: remove it")
    return key


_USER: Final = "the user of this page"
_LIMITS: Final = Limits(
    methods=frozenset({"GET", "HEAD", "POST"}),
    body_bytes={"/what-if": MAX_FORM_BYTES},
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
    port: Port,
    number: int = 0,
    api: ApiReader | None = None,
    remarks: Callable[[], Iterable[str]] = tuple,
) -> AsyncIterator[str]:
    """Serve the page inside; yields its address, which holds the key to it.

    A page on a port of its own keeps its key. `api`: None: the page has the operator's port alone.
    `remarks`: what is assumed of a cluster that is followed without an operator.

    Raises:
        ConfigurationError: the port is taken, or the key cannot be kept.
    """
    guard, use = RequestGuard(kept_key(number) if number else ""), PortUse(_LIMITS)

    async def whoever_has_the_key(request: web.Request) -> str:
        guard.let_in(request)
        return _USER

    before = [within_limits(use, whoever_has_the_key)]
    application = web.Application(middlewares=before, client_max_size=MAX_FORM_BYTES)
    application.on_response_prepare.append(add_headers)
    for name, kind in _FILES.items():
        application.router.add_get(f"/static/{name}", _file(_STATIC / name, kind))
    application.add_routes(Views(Answers(port, SystemClock()), api, remarks).routes)
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
