"""An extender on the wire: kube-scheduler's HTTP calls, with its bodies byte for byte.

`scheduler.extenders` decides when to call; what is sent and understood is written here. Bodies
have Go's field names, unused fields are null; `extender_answers` reads what comes back.
Invariant: a call ends within the extender's timeout, opening a connection included, with an answer
of the promised type or an ExtenderError; no redirect is followed, and no text shows a password.

An answer that comes later is not read: its connection is closed. After three time-outs in a row the
calls fail at once, but for one in ten seconds (`CircuitBreaker`). A call whose connection was
closed is made once more, except a binding. `scheduler.extenders.profile_extenders` decides what a
failure means to the pod.
"""

from __future__ import annotations

import asyncio
import base64
import logging
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import aiohttp
import orjson

from stellwerk import __version__
from stellwerk.client.connection import fence_traces, open_fence
from stellwerk.client.extender_answers import ExtenderAnswer
from stellwerk.client.extender_tls import (
    ExtenderFiles,
    TlsMaterial,
    UnusableFileError,
    extender_context,
    tls_material,
)
from stellwerk.client.web import connector_to, refused_address
from stellwerk.framework.secret_reading import read_secret
from stellwerk_kube.clock import Clock
from stellwerk_kube.destinations import EVERYWHERE, Destinations, environment_proxy
from stellwerk_kube.errors import (
    ExtenderError,
    Forbidden,
    NotFound,
    SchedulerError,
    SecretRefusedError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from yarl import URL

    from stellwerk.client.connection import Fence
    from stellwerk.client.extender_answers import AnsweredVictims, FilterAnswer
    from stellwerk.metrics import Metrics
    from stellwerk.profiles.spec.extender_spec import Extender
    from stellwerk_kube.clock import Clock

logger = logging.getLogger(__name__)

_HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": f"stellwerk/{__version__}",
    # What is compressed has no length that one could limit before it is unpacked.
    "Accept-Encoding": "identity",
}
_KEEP_ALIVE_SECONDS: Final = 90.0
"""Time after which an idle connection to an extender is closed; Go's `IdleConnTimeout`."""
_GO_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""Characters that Go's encoder escapes, so that JSON can stand in HTML; only strings have them."""
TIMEOUTS_IN_A_ROW: Final = 3
"""Calls in a row that time out before the circuit breaker opens."""
PROBE_SECONDS: Final = 10.0
"""Time between two calls while the circuit breaker is open, and limit of `check`."""
CREDENTIALS_SECONDS: Final = 60.0
"""Time between two comparisons of an extender's Secrets and files with what its connections were
opened with. Credentials that their owner no longer allows are sent for this long at most, unless
the API server does not answer."""


def go_json(value: object) -> bytes:
    """Return JSON as Go's encoder writes it."""
    text = orjson.dumps(value)
    for character, escaped in _GO_ESCAPES:
        if character in text:
            text = text.replace(character, escaped)
    return text


@dataclass(frozen=True, slots=True)
class OfferedNodes:
    """The nodes a call is about: their names, or the whole objects as JSON."""

    names: Sequence[str]
    objects: Sequence[bytes] | None = None
    """The nodes; None: the extender keeps nodes itself (`nodeCacheCapable`) and gets names only."""

    def fields(self) -> bytes:
        """Return the part of ExtenderArgs that lists the nodes."""
        if self.objects is None:
            return b'"Nodes":null,"NodeNames":' + go_json(list(self.names))
        return (
            b'"Nodes":{"metadata":{},"items":[' + b",".join(self.objects) + b']},"NodeNames":null'
        )


@dataclass(frozen=True, slots=True)
class OfferedVictims:
    """The victims on one node."""

    uids: Sequence[str]
    pdb_violations: int
    objects: Sequence[bytes] | None = None
    """The pods as JSON, for an extender that does not keep nodes itself."""


@dataclass(frozen=True, slots=True)
class ExtenderReach:
    """The files and addresses that extenders of profiles may name."""

    files: ExtenderFiles = field(default_factory=ExtenderFiles)
    destinations: Destinations = EVERYWHERE


@dataclass(frozen=True, slots=True, repr=False)
class _Credentials:
    """Credentials for one extender, as Secrets and files had them. No text of this shows them."""

    authorization: Mapping[str, str] = field(default_factory=dict)
    """The header with the user and password of a Secret."""
    tls: TlsMaterial = field(default_factory=TlsMaterial)


@dataclass(slots=True)
class _Connections:
    """One session of an extender, and how many calls use it."""

    session: aiohttp.ClientSession | None = None
    credentials: _Credentials | None = None
    """The credentials that the session was opened with; None: there is no session yet."""
    proxy: URL | None = None
    """The proxy that is asked for the extender; None: none is."""
    proxy_headers: Mapping[str, str] = field(default_factory=dict)
    """The user and password of the proxy."""
    calls: int = 0


class HttpExtender:
    """One extender. It connects with the first call; one that was closed, for each call anew."""

    def __init__(
        self,
        spec: Extender,
        get_object: Callable[[str], Awaitable[dict[str, Any]]],
        *,
        clock: Clock,
        metrics: Metrics,
        fence: Fence | None = None,
        reach: ExtenderReach | None = None,
    ) -> None:
        """Open no connection yet.

        Args:
            spec: where the extender is, and what it is asked.
            get_object: reads a Secret by its API path.
            clock: for durations.
            metrics: measures calls.
            fence: holds bindings back while the lease is not held; open by default.
            reach: what all extenders of a process may read and call; the profile loader has asked
                it about the URL.
        """
        self.spec = spec
        self._headers = {**_HEADERS, **_authorization(spec.user_info.reveal())}
        self._get_object = get_object
        self._files = reach.files if reach else ExtenderFiles()
        self._destinations = reach.destinations if reach else EVERYWHERE
        self.unusable_files = ""
        """The reason why its files could not be read when they were tried last."""
        self.unusable_secret = ""
        """The reason why its Secrets may not be used, or are not there, as of the last reading."""
        self.refused_address = ""
        """The reason why an address was not called that its name led to last."""
        self.is_checked = False
        """Whether `check` has ended once, or has nothing to find out."""
        self._clock = clock
        self._metrics = metrics
        self._fence = fence or open_fence()
        self._connections = _Connections()
        self._retired = False
        """No session outlives its last call."""
        self._opening = asyncio.Lock()
        """Held while a session is opened."""
        self._reading = asyncio.Lock()
        """Held while Secrets and files are read."""
        self._circuit_breaker = CircuitBreaker(clock)

    @property
    def name(self) -> str:
        """The URL prefix without user and password, which identifies an extender."""
        return self.spec.shown_url_prefix

    # --- the verbs ------------------------------------------------------------------------------

    async def filter(self, pod: bytes, nodes: OfferedNodes) -> FilterAnswer:
        """Ask which nodes may take a pod (JSON).

        Raises:
            ExtenderError: the call failed, or names a node that was not offered, or one twice.
        """
        body = b'{"Pod":' + pod + b"," + nodes.fields() + b"}"
        answer = await self._call("filter", self.spec.filter_verb, body)
        whole = nodes.objects is not None
        return ExtenderAnswer(self.name, "filter").filter(answer, nodes.names, whole_nodes=whole)

    async def prioritize(self, pod: bytes, nodes: OfferedNodes) -> list[tuple[str, int]]:
        """Ask for scores from 0 to 10; a node may be missing, and others may be there.

        Raises:
            ExtenderError: the call failed.
        """
        body = b'{"Pod":' + pod + b"," + nodes.fields() + b"}"
        answer = await self._call("prioritize", self.spec.prioritize_verb, body)
        return ExtenderAnswer(self.name, "prioritize").scores(answer)

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None:
        """Have a pod bound.

        Raises:
            ExtenderError: it was not bound, as far as is known.
            NotLeader: it was not sent: the lease is not held.
        """
        self._fence.check(f"bind {namespace}/{name} to {node_name}")
        body = go_json(
            {"PodName": name, "PodNamespace": namespace, "PodUID": uid, "Node": node_name}
        )
        self._fence.begin()
        answered = False
        try:
            answer = await self._call("bind", self.spec.bind_verb, body)
            answered = True
        finally:
            self._fence.end(answered=answered)
        ExtenderAnswer(self.name, "bind").bound(answer)

    async def preempt(
        self, pod: bytes, victims: Mapping[str, OfferedVictims]
    ) -> dict[str, AnsweredVictims]:
        """Ask which of the nodes, with which victims, may be cleared for a pod.

        Raises:
            ExtenderError: the call failed.
        """
        whole, meta = b"null", b"null"
        if self.spec.node_cache_capable:
            meta = _by_node(
                (name, _meta_victims(each.uids, each.pdb_violations))
                for name, each in sorted(victims.items())
            )
        else:
            whole = _by_node(
                (name, _whole_victims(each.objects or (), each.pdb_violations))
                for name, each in sorted(victims.items())
            )
        fields = b'"NodeNameToVictims":' + whole + b',"NodeNameToMetaVictims":' + meta
        body = b'{"Pod":' + pod + b"," + fields + b"}"
        answer = await self._call("preempt", self.spec.preempt_verb, body)
        return ExtenderAnswer(self.name, "preempt").victims(answer)

    async def _call(self, purpose: str, verb: str, body: bytes) -> object:
        url = f"{self.name.rstrip('/')}/{verb}"  # user info goes into a header
        if not self._circuit_breaker.admits():
            raise self._failure(
                purpose,
                f'extender "{self.name}" timed out {TIMEOUTS_IN_A_ROW} times in a row; it is '
                f"called once every {PROBE_SECONDS:g} s until it answers",
            )
        started_seconds = self._clock.monotonic()
        result = "error"
        connections = self._connections
        connections.calls += 1
        limit_seconds = self.spec.timeout_seconds
        if purpose == "bind":
            limit_seconds = self._fence.within_lease(limit_seconds)
        try:
            async with asyncio.timeout(limit_seconds):
                content = await self._post(connections, purpose, verb, url, body)
            answer: object = orjson.loads(content)
            result = "success"
            self.refused_address = ""
        except TimeoutError as error:
            result = "timeout"
            self._circuit_breaker.timed_out()
            raise self._failure(
                purpose,
                f'Post "{url}": context deadline exceeded: no answer within '
                f"{self.spec.timeout_seconds:g}s",
            ) from error
        except orjson.JSONDecodeError as error:
            raise self._failure(purpose, f"{url} did not answer with JSON: {error}") from error
        finally:
            if result != "timeout":
                self._circuit_breaker.ended()
            seconds = self._clock.monotonic() - started_seconds
            self._metrics.extender_duration.labels(self.name, purpose, result).observe(seconds)
            connections.calls -= 1
            await self._close_unused(connections)
        return answer

    async def _post(
        self, connections: _Connections, purpose: str, verb: str, url: str, body: bytes
    ) -> bytes:
        # An idle connection may be closed by the other side just as it is used again. Asking twice
        # is harmless, binding twice is not.
        repeatable = purpose != "bind"
        tls = self.spec.tls_config
        server_name = tls.server_name or None if tls else None
        while True:
            try:
                session = await self._session(connections)
                async with session.post(
                    url,
                    data=body,
                    allow_redirects=False,
                    proxy=connections.proxy,
                    proxy_headers=connections.proxy_headers,
                    server_hostname=server_name,
                    trace_request_ctx=None if repeatable else f"post a binding to {url}",
                ) as response:
                    if response.status != HTTPStatus.OK:
                        raise self._failure(
                            purpose,
                            f"failed {verb} with extender at URL {url}, code {response.status}",
                        )
                    try:
                        return await ExtenderAnswer(self.name, purpose).body(response, len(body))
                    except ExtenderError:
                        response.close()  # with its connection: the rest is not to be read
                        raise
            except aiohttp.ServerDisconnectedError as error:
                if not repeatable:
                    # From Python 3.12 on, a refused client certificate shows as nothing else.
                    self._replace(connections)
                    raise self._unreachable(purpose, url, error) from error
                repeatable = False
            except (aiohttp.ClientError, OSError, ValueError) as error:
                if isinstance(error, TimeoutError):
                    raise
                # Certificates may have been renewed: the next session reads them again.
                self._replace(connections)
                raise self._unreachable(purpose, url, error) from error
            except SchedulerError as error:
                if isinstance(error, ExtenderError):
                    raise
                raise self._unreachable(purpose, url, error) from error

    # --- connections ----------------------------------------------------------------------------

    async def _session(self, connections: _Connections) -> aiohttp.ClientSession:
        async with self._opening:
            if connections.session is None:
                credentials = await self._credentials()
                context = await extender_context(self.spec, credentials.tls)
                proxy, proxy_headers = self._proxy()
                # Of an encrypted connection the proxy sees no header but those of its own.
                shown_to_proxy = {} if self.name.startswith("https") else proxy_headers
                connections.session = aiohttp.ClientSession(
                    headers={**self._headers, **credentials.authorization, **shown_to_proxy},
                    connector=connector_to(
                        self.name,
                        self._destinations,
                        context=context,
                        limit=0,
                        keepalive_seconds=_KEEP_ALIVE_SECONDS,
                        refused=self._refuse,
                    ),
                    # The whole call has a deadline; of its parts none has one of its own.
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                    auto_decompress=False,
                    trace_configs=fence_traces(self._fence),
                )
                connections.credentials = credentials
                connections.proxy, connections.proxy_headers = proxy, proxy_headers
            return connections.session

    async def _credentials(self) -> _Credentials:
        """Read the Secrets and files that the extender names.

        Raises:
            OSError, ValueError: files cannot be read, or may not be used for this extender.
            SecretRefusedError: a Secret may not be used for this extender.
            ApiError: a Secret cannot be read.
        """
        reference, authorization = self.spec.secret_ref, dict[str, str]()
        async with self._reading:
            try:
                if reference is not None:
                    content = await read_secret(
                        self._get_object, reference.namespace, reference.name, self.spec.called_urls
                    )
                    authorization = _basic_header(
                        content.get("username", b""), content.get("password", b"")
                    )
                tls = await tls_material(self.spec, self._get_object, self._files)
            except UnusableFileError as error:
                self.unusable_files = str(error)
                raise
            except (SecretRefusedError, NotFound, Forbidden) as error:
                self.unusable_secret = str(error)
                raise
        self.unusable_files = self.unusable_secret = ""
        return _Credentials(authorization, tls)

    def _proxy(self) -> tuple[URL | None, dict[str, str]]:
        """The proxy of the environment for this extender, and its user and password."""
        found = environment_proxy(self.name) if self._destinations.by_proxy(self.name) else None
        if found is None or found.user is None:
            return found, {}
        header = _basic_header(found.user.encode(), (found.password or "").encode())
        return found.with_user(None), {"Proxy-Authorization": header["Authorization"]}

    def _refuse(self, reason: str) -> None:
        self.refused_address = reason

    @property
    def has_credentials(self) -> bool:
        """Whether Secrets or files are read for this extender."""
        tls = self.spec.tls_config
        is_tls = tls is not None and self.name.startswith("https")
        return self.spec.secret_ref is not None or (
            tls is not None and is_tls and (tls.secret_ref is not None or any(tls.named_files))
        )

    @property
    def is_to_be_checked(self) -> bool:
        """Whether something can be known before the first call: of credentials, or the address."""
        return self.has_credentials or self._destinations.restricted

    async def check(self) -> None:
        """Find out, without a call, what is to be said of Secrets, files and address.

        Connections that were opened with other credentials than are there now are used no more.
        """
        try:
            await self._check_credentials()
            await self._check_address()
        finally:
            self.is_checked = True

    async def _check_credentials(self) -> None:
        if self.has_credentials:
            connections = self._connections
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    found = await self._credentials()
            except (
                UnusableFileError,
                SecretRefusedError,
                NotFound,
                Forbidden,
                ValueError,
            ) as error:
                logger.debug("connections to extender %s are closed: %s", self.name, error)
                self._replace(connections)
            except (SchedulerError, TimeoutError) as error:
                # The API server is away. What it said last holds until it answers again.
                logger.debug("cannot compare credentials of extender %s: %s", self.name, error)
            else:
                if connections.credentials not in (None, found):
                    self._replace(connections)
            await self._close_unused(connections)

    async def _check_address(self) -> None:
        if not self._destinations.restricted:
            return
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                self.refused_address = await refused_address(self.name, self._destinations)
        except (OSError, ValueError):
            # It may be there later; the calls will tell. A name that may be another's than a
            # Service's is worth a word.
            self.refused_address = self._destinations.unknown(self.name)

    async def close(self) -> None:
        """Close the connections as soon as no call needs them, for good."""
        self._retired = True
        await self._close_unused(self._connections)

    def _replace(self, connections: _Connections) -> None:
        """Have the next call open a session of its own, with what Secrets and files have then."""
        if connections is self._connections and connections.session is not None:
            self._connections = _Connections()

    async def _close_unused(self, connections: _Connections) -> None:
        if (self._retired or connections is not self._connections) and not connections.calls:
            session, connections.session = connections.session, None
            connections.credentials = None
            if session is not None:
                await session.close()

    # --- answers --------------------------------------------------------------------------------

    def _failure(self, purpose: str, message: str) -> ExtenderError:
        return ExtenderAnswer(self.name, purpose).failure(message)

    def _unreachable(self, purpose: str, url: str, error: Exception) -> ExtenderError:
        cause = " ".join(str(error).split()) or type(error).__name__
        return self._failure(purpose, f'Post "{url}": {cause}')


class CircuitBreaker:
    """The pause of an extender that does not answer.

    Invariant: after three time-outs in a row at most one call in ten seconds goes out, until one is
    answered in time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._timeouts = 0
        self._probe_at_seconds = 0.0

    def admits(self) -> bool:
        """Whether the next call may go out; a call that may is the probe while others may not."""
        if self._timeouts < TIMEOUTS_IN_A_ROW:
            return True
        now_seconds = self._clock.monotonic()
        if now_seconds < self._probe_at_seconds:
            return False
        self._probe_at_seconds = now_seconds + PROBE_SECONDS
        return True

    def timed_out(self) -> None:
        """A call was not answered in time."""
        self._timeouts += 1
        if self._timeouts == TIMEOUTS_IN_A_ROW:
            self._probe_at_seconds = self._clock.monotonic() + PROBE_SECONDS

    def ended(self) -> None:
        """A call ended in time, however."""
        self._timeouts = 0


def _authorization(user_info: str) -> dict[str, str]:
    """The header that stands for the user info of a URL, as Go's client sends it."""
    if not user_info:
        return {}
    user, _, password = user_info.partition(":")
    return _basic_header(unquote(user).encode(), unquote(password).encode())


def _basic_header(user: bytes, password: bytes) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(user + b':' + password).decode('ascii')}"}


def _by_node(victims: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(go_json(name) + b":" + each for name, each in victims) + b"}"


def _meta_victims(uids: Sequence[str], pdb_violations: int) -> bytes:
    return go_json({"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": pdb_violations})


def _whole_victims(objects: Sequence[bytes], pdb_violations: int) -> bytes:
    number = str(pdb_violations).encode()
    return b'{"Pods":[' + b",".join(objects) + b'],"NumPDBViolations":' + number + b"}"
