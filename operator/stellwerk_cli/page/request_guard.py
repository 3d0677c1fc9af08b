"""The guard of the page: it lets a browser ask that was given the key, and no other site.

Every request passes it. Invariant: nothing is forwarded with the user's credentials for a request
whose host is not this machine, that another site began, or that lacks the key; so neither a name
that is bound anew (DNS rebinding) nor a form of another site nor another user of the machine gets
an answer.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web
from yarl import URL

KEY: Final = "key"
_KEPT_SECONDS: Final = 30 * 24 * 3600
"""A browser keeps the key of a page that has a port of its own so long."""
_HOSTS: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; "
    "base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none, browsers hide the origin of the page's own forms
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


async def add_headers(_: web.Request, response: web.StreamResponse) -> None:
    """Add to every answer the headers by which browsers keep the page apart from other sites."""
    response.headers.update(_HEADERS)


class RequestGuard:
    """Lets requests pass that carry the key, and gives the key to those that come with it."""

    def __init__(self, key: str = "") -> None:
        """With a key that was kept, so that windows and bookmarks of before go on; or a new one."""
        self.key = key or secrets.token_urlsafe(24)
        self._is_kept = bool(key)
        own = hashlib.sha256(self.key.encode()).hexdigest()[:8]
        self._cookie = f"stellwerk-{own}"
        """A name of its own: browsers send cookies to every port of a host."""

    def let_in(self, request: web.Request) -> None:
        """Hand the key out to a request that shows it, or let one pass that has it.

        Raises:
            HTTPForbidden: it may not ask.
            HTTPSeeOther: it has shown the key, and asks again without it in the address.
        """
        if not _is_this_machine(request.host):
            raise web.HTTPForbidden(text=f"{request.host!r} is not this machine\n")
        if not _of_this_page(request):
            raise web.HTTPForbidden(text="another site sent this request\n")
        shown = request.query.get(KEY)
        if shown is not None and self._is_key(shown):
            rest = [(name, text) for name, text in request.query.items() if name != KEY]
            welcome = web.HTTPSeeOther(URL.build(path=f"/{request.path.lstrip('/')}", query=rest))
            welcome.set_cookie(
                self._cookie,
                self.key,
                httponly=True,
                samesite="Lax",
                path="/",
                max_age=_KEPT_SECONDS if self._is_kept else None,
            )
            raise welcome
        if not self._is_key(request.cookies.get(self._cookie, "")):
            raise web.HTTPForbidden(
                text="open the address that `stellwerk page` or `stellwerk up` has printed: it "
                "holds the key to this page\n"
            )

    def _is_key(self, shown: str) -> bool:
        return hmac.compare_digest(shown.encode(errors="replace"), self.key.encode())


def _is_this_machine(host: str) -> bool:
    """Whether a Host header names the loopback interface, at whatever port it is forwarded to."""
    try:
        return urlsplit(f"//{host}").hostname in _HOSTS
    except ValueError:
        return False


def _of_this_page(request: web.Request) -> bool:
    """Whether the page itself or the address bar began a request."""
    origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site")
    if request.method not in {"GET", "HEAD"}:
        return origin == f"http://{request.host}"
    if origin is not None and origin != f"http://{request.host}":
        return False
    if site in {None, "none", "same-origin"}:
        return True
    # A link in another page may lead here; nothing there may read or embed the answer.
    return request.headers.get("Sec-Fetch-Mode") == "navigate" and (
        request.headers.get("Sec-Fetch-Dest") == "document"
    )
