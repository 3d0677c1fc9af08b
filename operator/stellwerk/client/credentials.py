"""Sessions with the cluster: its address, the operator's credentials, the certificates to trust.

`app` makes one `Credentials` (`load_credentials`); `KubernetesClient` and kopf's login handler open
their sessions through it. Rotation: the first request after `Access.stale_after_seconds`, or a 401,
starts the task `credentials`, which has `access` read them again. Other pairs of certificate and
key rotate elsewhere: the port's in `serving.certificates`, those of extenders in `extender_tls`.
Invariant: every session sends the newest credentials that are known, no request waits for newer
ones while these are valid, and TLS is verified unless the kubeconfig says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson
from typing_extensions import override

from stellwerk import __version__
from stellwerk.client.access import MIN_REREAD_SECONDS, InCluster, Kubeconfig
from stellwerk.client.renewable_context import RenewableContext
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.destinations import environment_proxy
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.user_files import expanded

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from stellwerk.client.access import Access, Source
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

USER_AGENT: Final = f"stellwerk/{__version__}"
_HEADERS: Final = {
    "User-Agent": USER_AGENT,
    "Accept": "application/json",
    # Big lists would cost both sides seconds of compression, for a network that is seldom slow.
    "Accept-Encoding": "identity",
}
_KEEP_ALIVE_SECONDS: Final = 75.0
"""Time after which a session closes an idle connection."""
_READ_BUFFER_BYTES: Final = 256 * 1024
"""Bytes that a session buffers of an answer: four times aiohttp's, for the pages of large lists."""
MAX_READ_ANSWER_BYTES: Final = 32 << 20
"""Bytes of an answer's body. A page of 250 objects has a few MiB, and the largest object that an
API server can be given takes 18 MiB as JSON (`transport.MAX_STREAM_LINE_BYTES`). Parsed, a body
takes up to ten times as much. Beyond it the rest is not read, and the connection is closed."""
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


class Credentials:
    """The address of a cluster, and credentials for it that stay fresh."""

    def __init__(self, source: Source, loaded: Access, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._loaded = loaded
        self._look: asyncio.Task[None] | None = None
        """The look for newer credentials that is under way."""
        self.fresh_until_seconds = self._stale_at(loaded)
        """Monotonic, of the clock; until then `known` is what `authorization` returns."""
        self.known = loaded.authorization
        """The Authorization header as last read."""
        self._valid_until_seconds = clock.monotonic() + loaded.valid_seconds
        self._retry_at_seconds = float("-inf")
        self._tls = RenewableContext.of(loaded)
        self._first_connector: aiohttp.TCPConnector | None = None
        self._proxy = loaded.proxy or environment_proxy(loaded.server)
        self.needs_session: Final = self._proxy is not None or bool(loaded.impersonation)
        """Whether every request must go through a session: it knows the proxy, and the headers by
        which requests act for another user."""

    @property
    def access(self) -> Access:
        """The result of the last look at the configuration."""
        return self._loaded

    @property
    def server(self) -> str:
        """The base URL of the API, without a slash at the end."""
        return self._loaded.server

    async def authorization(self) -> str | None:
        """Return the Authorization header to send, read anew when it may have changed."""
        now_seconds = self._clock.monotonic()
        if now_seconds >= self.fresh_until_seconds:
            look = self._look_again(self._loaded)
            if look is not None and now_seconds >= self._valid_until_seconds:
                await asyncio.shield(look)
        return self._loaded.authorization

    def new_session(
        self,
        *,
        timeout: aiohttp.ClientTimeout | None = None,
        traces: list[aiohttp.TraceConfig] | None = None,
        shares: bool = False,
    ) -> aiohttp.ClientSession:
        """Open a pooled HTTP session, for the caller to close.

        One that `shares` takes the connections of the first session while that is open: a watch
        goes on where its list came from. A connection with TLS holds half a MiB of buffers.
        """
        loaded, first = self._loaded, self._first_connector
        shared = first if shares and first is not None and not first.closed else None
        connector = shared or aiohttp.TCPConnector(
            limit=0, ssl=self._tls or True, keepalive_timeout=_KEEP_ALIVE_SECONDS
        )
        if first is None or first.closed:
            self._first_connector = connector
        middlewares: list[aiohttp.ClientMiddlewareType] = [self._authorize]
        if loaded.tls_server_name is not None:
            middlewares.append(_server_name(loaded.tls_server_name))
        if loaded.impersonation:
            middlewares.append(_acting_for(loaded.impersonation))
        return aiohttp.ClientSession(
            connector=connector,
            connector_owner=shared is None,
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=BoundedResponse,
            middlewares=middlewares,
            proxy=self._proxy,
            read_bufsize=_READ_BUFFER_BYTES,
            # Nothing packed was asked for. What comes packed is not read, because a small answer
            # could unpack to gigabytes.
            auto_decompress=False,
            timeout=timeout or aiohttp.ClientTimeout(),
            trace_configs=traces,
        )

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """For connections of one's own; None if the server speaks plain HTTP."""
        return self._tls

    @property
    def tls_server_name(self) -> str | None:
        """The name that the server's certificate must have, if it is not that of its address."""
        return self._loaded.tls_server_name

    async def renewed(self, refused: str | None) -> str | None:
        """Look for newer credentials after a refusal; None if there are none."""
        if self._loaded.authorization == refused:
            look = self._look_again(self._loaded)
            if look is not None:
                await asyncio.shield(look)
        newest = self._loaded.authorization
        return newest if newest != refused else None

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        """Send the newest credentials; where the server refuses them, look for newer, once."""
        sent = await self.authorization()
        if sent is not None:
            request.headers["Authorization"] = sent
        response = await handler(request)
        if response.status != HTTPStatus.UNAUTHORIZED:
            return response
        try:
            renewed = await self.renewed(sent)
        except BaseException:  # cancelled: the response is in no other hands
            response.close()
            raise
        if renewed is None:
            return response
        response.release()
        request.headers["Authorization"] = renewed
        return await handler(request)

    def _look_again(self, seen: Access) -> asyncio.Task[None] | None:
        """Look for credentials that are newer than those `seen`; None if it is too early."""
        if self._loaded is not seen:
            return None
        if self._look is None or self._look.done():
            now_seconds = self._clock.monotonic()
            if now_seconds < self._retry_at_seconds:
                return None
            # A server that refuses every credential must not make us run a plugin per request.
            self._retry_at_seconds = now_seconds + MIN_REREAD_SECONDS
            self._look = asyncio.create_task(self._reload(), name="credentials")
        return self._look

    async def _reload(self) -> None:
        """Read the credentials again, and keep the present ones if that fails."""
        try:
            loaded = await self._source.load()
            if self._tls is not None:
                self._tls.renew(loaded)
        except ConfigurationError as error:
            # The old ones may still be good; the server will say when they are not.
            logger.warning("keeping the present credentials: %s", error)
            self.fresh_until_seconds = self._retry_at_seconds = (
                self._clock.monotonic() + MIN_REREAD_SECONDS
            )
            return
        self._loaded = loaded
        self.known = loaded.authorization
        self.fresh_until_seconds = self._stale_at(loaded)
        self._valid_until_seconds = self._clock.monotonic() + loaded.valid_seconds

    def _stale_at(self, loaded: Access) -> float:
        if loaded.stale_after_seconds is None:
            return float("inf")
        return self._clock.monotonic() + loaded.stale_after_seconds


async def load_credentials(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
    clock: Clock | None = None,
) -> Credentials:
    """Find the cluster: the kubeconfig named, else $KUBECONFIG, else this pod's, else the user's.

    Raises:
        ConfigurationError: nothing was found, or what was found cannot be read.
    """
    clock = clock or SystemClock()
    source: Source
    if kubeconfig is None and "KUBECONFIG" not in environ and _in_cluster(environ):
        source = InCluster(environ)
    else:
        source = Kubeconfig(
            kubeconfig or environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG, context, clock
        )
    loaded = await source.load()
    if not loaded.verify and loaded.server.startswith("https"):
        _warn_of_unverified(loaded.server)
    return Credentials(source, loaded, clock)


@lru_cache(maxsize=16)
def _warn_of_unverified(server: str) -> None:
    """Warn once of each server, however many clients a command opens."""
    logger.warning(
        "the certificate of %s is not verified (insecure-skip-tls-verify): these "
        "credentials are sent to whatever answers there",
        server,
    )


def context_namespace(
    kubeconfig: str | None = None,
    context: str | None = None,
    *,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Return the namespace that kubectl would take: of the context, else "default".

    Raises:
        ConfigurationError: a kubeconfig or context was named and cannot be used.
    """
    paths = kubeconfig or environ.get("KUBECONFIG")
    if paths is None and context is None and not expanded(_DEFAULT_KUBECONFIG).exists():
        return "default"
    return Kubeconfig(paths or _DEFAULT_KUBECONFIG, context, SystemClock()).context_namespace()


class TooLargeError(aiohttp.ClientError):
    """A body has more than `MAX_READ_ANSWER_BYTES`."""

    def __init__(self) -> None:
        super().__init__(f"the answer has more than {MAX_READ_ANSWER_BYTES >> 20} MiB")


class BoundedResponse(aiohttp.ClientResponse):
    """A response of bounded size whose JSON is parsed by orjson; kopf reads lists by `json()`."""

    @override
    async def read(self) -> bytes:
        """Read the body.

        Raises:
            TooLargeError: it is larger than `MAX_READ_ANSWER_BYTES`.
        """
        if self._body is None:
            pieces, size = list[bytes](), 0
            try:
                async for piece in self.content.iter_any():
                    size += len(piece)
                    if size > MAX_READ_ANSWER_BYTES:
                        break
                    pieces.append(piece)
            except BaseException:
                self.close()
                raise
            if size > MAX_READ_ANSWER_BYTES:
                self.close()
                raise TooLargeError
            self._body = b"".join(pieces)
        return await super().read()

    @override
    async def json(self, **_: Any) -> Any:  # kopf passes nothing; aiohttp's options do not apply
        parsed = orjson.loads(await self.read())
        self._body = None  # a page of a list is megabytes, and is not asked for twice
        return parsed


def _server_name(name: str) -> aiohttp.ClientMiddlewareType:
    """Verify the server's certificate for another name than its address."""

    async def with_server_name(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.server_hostname = name
        return await handler(request)

    return with_server_name


def _acting_for(headers: Sequence[tuple[str, str]]) -> aiohttp.ClientMiddlewareType:
    """Act for another user by these headers, of which several may have one name."""

    async def with_impersonation(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        for name in dict.fromkeys(name for name, _ in headers):
            request.headers.popall(name, None)  # of an earlier attempt
        request.headers.extend(headers)
        return await handler(request)

    return with_impersonation


def _in_cluster(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))
