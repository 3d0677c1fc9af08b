"""Where the cluster is and who we are there: read from a kubeconfig or from the pod we run in.

`app` loads it once; `KubernetesClient` and kopf's login handler open their sessions through it. The
only module that uses kubernetes_asyncio, and only to load. Invariant: every session sends the
newest credentials that are known, and TLS is verified unless the kubeconfig says otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import orjson
import yaml
from kubernetes_asyncio.client import Configuration
from kubernetes_asyncio.config import ConfigException, load_incluster_config, load_kube_config
from typing_extensions import override
from yarl import URL

from stellwerk import __version__
from stellwerk.clock import SystemClock
from stellwerk.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from stellwerk.clock import Clock

logger = logging.getLogger(__name__)
# What the loader logs it also raises, and a start-up mistake is told in one line.
logging.getLogger("kubernetes_asyncio.config").setLevel(logging.CRITICAL)

USER_AGENT: Final = f"stellwerk/{__version__}"
_HEADERS: Final = {
    "User-Agent": USER_AGENT,
    "Accept": "application/json",
    # Big lists would cost both sides seconds of compression, for a network that is seldom slow.
    "Accept-Encoding": "identity",
}
_REREAD_SECONDS: Final = 60.0
"""Token and certificate files rotate; kubelet replaces a token long before the old one ends."""
_RETRY_SECONDS: Final = 10.0
_EXPIRY_MARGIN_SECONDS: Final = 30.0
_KEEP_ALIVE_SECONDS: Final = 75.0
_READ_BUFFER_BYTES: Final = 256 * 1024
_DEFAULT_KUBECONFIG: Final = "~/.kube/config"


@dataclass(frozen=True, slots=True)
class _Loaded:
    """What one look at the configuration gave."""

    server: str
    authorization: str | None
    ca_file: str | None
    certificate_file: str | None
    key_file: str | None
    verify: bool
    tls_server_name: str | None
    proxy: str | None
    stale_after_seconds: float | None
    """When to look again; None = only after the server has refused these credentials."""


class _Source(Protocol):
    """A place from which credentials can be read again and again."""

    async def load(self) -> _Loaded: ...


class Credentials:
    """The address of a cluster, and credentials for it that stay fresh."""

    def __init__(self, source: _Source, loaded: _Loaded, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._loaded = loaded
        self._reloading = asyncio.Lock()
        self._stale_at_seconds = self._stale_at(loaded)
        self._retry_at_seconds = float("-inf")
        self._ssl_context = _ssl_context(loaded)
        self._proxy = loaded.proxy or _environment_proxy(loaded.server)

    @property
    def server(self) -> str:
        """The base URL of the API, without a slash at the end."""
        return self._loaded.server

    async def authorization(self) -> str | None:
        """Return the Authorization header to send, read anew when it may have changed."""
        if self._clock.monotonic() >= self._stale_at_seconds:
            await self._reload(self._loaded)
        return self._loaded.authorization

    def new_session(self, *, timeout: aiohttp.ClientTimeout | None = None) -> aiohttp.ClientSession:
        """Open a pooled HTTP session; who asked for it closes it."""
        loaded = self._loaded
        middlewares: list[aiohttp.ClientMiddlewareType] = [self._authorize]
        if loaded.tls_server_name is not None:
            middlewares.append(_server_name(loaded.tls_server_name))
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=0, ssl=self._ssl_context or True, keepalive_timeout=_KEEP_ALIVE_SECONDS
            ),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            response_class=OrjsonResponse,
            middlewares=middlewares,
            proxy=self._proxy,
            read_bufsize=_READ_BUFFER_BYTES,
            timeout=timeout or aiohttp.ClientTimeout(),
        )

    @property
    def proxied(self) -> bool:
        """Whether the server is reached through a proxy."""
        return self._proxy is not None

    @property
    def ssl_context(self) -> ssl.SSLContext | None:
        """For connections of one's own; None if the server speaks plain HTTP."""
        return self._ssl_context

    @property
    def tls_server_name(self) -> str | None:
        """The name that the server's certificate must have, if it is not that of its address."""
        return self._loaded.tls_server_name

    async def renewed(self, refused: str | None) -> str | None:
        """Look for newer credentials after a refusal; None if there are none."""
        if self._loaded.authorization == refused:
            await self._reload(self._loaded)
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
        renewed = await self.renewed(sent)
        if renewed is None:
            return response
        response.release()
        request.headers["Authorization"] = renewed
        return await handler(request)

    async def _reload(self, seen: _Loaded) -> None:
        """Read the credentials again, unless somebody has done so since they were `seen`."""
        async with self._reloading:
            now_seconds = self._clock.monotonic()
            if self._loaded is not seen or now_seconds < self._retry_at_seconds:
                return
            # A server that refuses every credential must not make us run a plugin per request.
            self._retry_at_seconds = now_seconds + _RETRY_SECONDS
            try:
                loaded = await self._source.load()
                if self._ssl_context is not None:
                    _load_client_certificate(self._ssl_context, loaded)
            except ConfigurationError as error:
                # The old ones may still be good; the server will say when they are not.
                logger.warning("keeping the present credentials: %s", error)
                self._stale_at_seconds = self._retry_at_seconds
                return
            self._loaded = loaded
            self._stale_at_seconds = self._stale_at(loaded)

    def _stale_at(self, loaded: _Loaded) -> float:
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
    source: _Source
    if kubeconfig is None and "KUBECONFIG" not in environ and _in_cluster(environ):
        source = _InCluster()
    else:
        source = _Kubeconfig(
            kubeconfig or environ.get("KUBECONFIG") or _DEFAULT_KUBECONFIG, context, clock
        )
    return Credentials(source, await source.load(), clock)


class OrjsonResponse(aiohttp.ClientResponse):
    """A response whose JSON is parsed by orjson; kopf reads its lists through `json()`."""

    @override
    async def json(self, **_: Any) -> Any:  # kopf passes nothing; aiohttp's options do not apply
        parsed = orjson.loads(await self.read())
        self._body = None  # a page of a list is megabytes, and is not asked for twice
        return parsed


class _InCluster:
    """The service account of the pod that we run in."""

    async def load(self) -> _Loaded:
        configuration = Configuration()
        try:
            load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        except (ConfigException, OSError) as error:
            raise ConfigurationError(
                f"cannot read this pod's service account: {_one_line(error)}"
            ) from error
        return _loaded(configuration, stale_after_seconds=_REREAD_SECONDS)


class _Kubeconfig:
    """One context of a kubeconfig, or of several joined as in $KUBECONFIG."""

    def __init__(self, paths: str, context: str | None, clock: Clock) -> None:
        self._paths = paths
        self._context = context
        self._clock = clock

    async def load(self) -> _Loaded:
        user = self._user()
        configuration = Configuration()
        try:
            loader = await load_kube_config(
                config_file=self._paths,
                context=self._context,
                client_configuration=configuration,
                persist_config=False,
            )
        except Exception as error:
            # The loader lets whatever a broken file makes it stumble over come through.
            raise ConfigurationError(
                f"cannot use kubeconfig {self._paths}: {_one_line(error)}"
            ) from error
        expiry = getattr(loader, "exec_plugin_expiry", None)
        return _loaded(configuration, stale_after_seconds=self._stale_after(user, expiry))

    def _stale_after(self, user: Mapping[str, Any], expiry: datetime | None) -> float | None:
        if "exec" in user:
            if expiry is None:
                return None  # as for kubectl: good until refused
            aware = expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=UTC)
            left_seconds = (aware - self._clock.now()).total_seconds()
            return max(_RETRY_SECONDS, left_seconds - _EXPIRY_MARGIN_SECONDS)
        rotating = ("tokenFile", "auth-provider", "client-certificate")
        return _REREAD_SECONDS if any(key in user for key in rotating) else None

    def _user(self) -> Mapping[str, Any]:
        """Return the user entry of the context in use; says clearly what is wrong with the file."""
        documents = [_read_kubeconfig(path) for path in self._files()]
        name = self._context or _first(documents, "current-context")
        if name is None:
            raise ConfigurationError(
                f"kubeconfig {self._paths} names no current context: choose one with --context"
            )
        contexts = _named(documents, "contexts")
        if name not in contexts:
            raise ConfigurationError(
                f'kubeconfig {self._paths} has no context "{name}": '
                f"it has {', '.join(sorted(contexts)) or 'none'}"
            )
        user_name = contexts[name].get("context", {}).get("user")
        user = _named(documents, "users").get(user_name, {}).get("user")
        return user if isinstance(user, dict) else {}

    def _files(self) -> list[Path]:
        paths = [Path(path).expanduser() for path in self._paths.split(os.pathsep) if path]
        present = [path for path in paths if path.exists()]
        if not present:
            raise ConfigurationError(
                f"no kubeconfig at {self._paths}: name one with --kubeconfig, "
                "or start an embedded cluster with `stellwerk cluster`"
            )
        return present


def _read_kubeconfig(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"cannot read kubeconfig {path}: {_one_line(error)}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"cannot read kubeconfig {path}: it is not a kubeconfig")
    return document


def _first(documents: list[dict[str, Any]], key: str) -> str | None:
    return next((document[key] for document in documents if document.get(key)), None)


def _named(documents: list[dict[str, Any]], section: str) -> dict[str, dict[str, Any]]:
    """Return the entries of a section by name; as for kubectl, the first file wins."""
    entries: dict[str, dict[str, Any]] = {}
    for document in documents:
        for entry in document.get(section) or ():
            if isinstance(entry, dict):
                entries.setdefault(str(entry.get("name")), entry)
    return entries


def _loaded(configuration: Configuration, *, stale_after_seconds: float | None) -> _Loaded:
    server = (configuration.host or "").rstrip("/")
    if urlsplit(server).scheme not in {"http", "https"}:
        raise ConfigurationError(f'the server "{server}" is not an http or https address')
    return _Loaded(
        server=server,
        # Token files end with a newline, which no header may hold.
        authorization=_one_line(configuration.api_key.get("BearerToken") or "") or None,
        ca_file=configuration.ssl_ca_cert,
        certificate_file=configuration.cert_file,
        key_file=configuration.key_file,
        verify=configuration.verify_ssl,
        tls_server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        stale_after_seconds=stale_after_seconds,
    )


def _ssl_context(loaded: _Loaded) -> ssl.SSLContext | None:
    if not loaded.server.startswith("https"):
        return None
    try:
        context = ssl.create_default_context(cafile=loaded.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot read the certificate authority {loaded.ca_file}: {_one_line(error)}"
        ) from error
    # Python 3.13 began to ask for extensions that many clusters' authorities lack; Go does not.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not loaded.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _load_client_certificate(context, loaded)
    return context


def _load_client_certificate(context: ssl.SSLContext, loaded: _Loaded) -> None:
    """Offer the client certificate, if there is one, to connections that are opened from now on."""
    if loaded.certificate_file is None:
        return
    try:
        context.load_cert_chain(loaded.certificate_file, loaded.key_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot read the client certificate {loaded.certificate_file}: {_one_line(error)}"
        ) from error


def _server_name(name: str) -> aiohttp.ClientMiddlewareType:
    """Verify the server's certificate for another name than its address."""

    async def with_server_name(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        request.server_hostname = name
        return await handler(request)

    return with_server_name


def _environment_proxy(server: str) -> URL | None:
    """Return the proxy of the environment for this server; asked once, it is slow to ask."""
    parts = urlsplit(server)
    proxy = getproxies().get(parts.scheme)
    if proxy is None or parts.hostname is None or proxy_bypass(parts.hostname):
        return None
    return URL(proxy)


def _in_cluster(environ: Mapping[str, str]) -> bool:
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def _one_line(text: BaseException | str) -> str:
    words = " ".join(str(text).split())
    return words or ("" if isinstance(text, str) else type(text).__name__)
