"""An extender on the wire: kube-scheduler's HTTP calls, with its bodies byte for byte.

`scheduler.extenders` decides when to call; what is sent and understood is written here. Bodies
have Go's field names, unused fields are null, and answers are read without regard to case, as Go
does. Invariant: a call ends within the extender's timeout, opening a connection included, with an
answer of the promised type or an ExtenderError.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from stellwerk import __version__
from stellwerk.client.extender_tls import extender_context
from stellwerk.client.fence import open_fence
from stellwerk.errors import ExtenderError, SchedulerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
    from types import SimpleNamespace

    from stellwerk.client.fence import Fence
    from stellwerk.clock import Clock
    from stellwerk.metrics import Metrics
    from stellwerk.models.extender_spec import Extender

_HEADERS: Final = {"Content-Type": "application/json", "User-Agent": f"stellwerk/{__version__}"}
_IDLE_SECONDS: Final = 90.0
_GO_ESCAPES: Final = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""What Go's encoder escapes so that JSON can stand in HTML; these occur inside strings only."""


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
    """None: the extender keeps nodes itself (`nodeCacheCapable`) and gets names only."""

    def fields(self) -> bytes:
        """Return the part of ExtenderArgs that lists the nodes."""
        if self.objects is None:
            return b'"Nodes":null,"NodeNames":' + go_json(list(self.names))
        return (
            b'"Nodes":{"metadata":{},"items":[' + b",".join(self.objects) + b']},"NodeNames":null'
        )


@dataclass(frozen=True, slots=True)
class FilterAnswer:
    """An extender's answer to Filter: the nodes that fit, and reasons for the others."""

    node_names: tuple[str, ...]
    """Those that remain, in the extender's order."""
    failed: Mapping[str, str]
    """Reason by node: taking pods away may help."""
    unresolvable: Mapping[str, str]
    """Reason by node: taking pods away does not help."""


@dataclass(frozen=True, slots=True)
class OfferedVictims:
    """The victims on one node."""

    uids: Sequence[str]
    pdb_violations: int
    objects: Sequence[bytes] | None = None
    """The pods as JSON, for an extender that does not keep nodes itself."""


@dataclass(frozen=True, slots=True)
class AnsweredVictims:
    """The victims on one node that an extender agrees with."""

    uids: tuple[str, ...]
    pdb_violations: int


@dataclass(slots=True)
class _Connections:
    """The session of an extender, and how many calls use it."""

    session: aiohttp.ClientSession | None = None
    calls: int = 0
    outdated: bool = False
    """The session is to be replaced as soon as no call uses it."""
    retired: bool = False
    """No session outlives the last call."""
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


def _looks_at(fence: Fence) -> list[aiohttp.TraceConfig]:
    """Look at the fence once more when a binding has its connection, right before it is sent."""
    if not fence.guarding:
        return []

    async def look(_: aiohttp.ClientSession, request: SimpleNamespace, __: object) -> None:
        if request.trace_request_ctx is not None:
            fence.check(f"post a binding to {request.trace_request_ctx}")

    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(look)
    trace.on_connection_reuseconn.append(look)
    return [trace]


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
    ) -> None:
        """Open no connection yet.

        Args:
            spec: where the extender is, and what it is asked.
            get_object: reads a Secret by its API path.
            clock: for durations.
            metrics: measures calls.
            fence: holds bindings back while the lease is not held; open by default.
        """
        self.spec = spec
        self._get_object = get_object
        self._clock = clock
        self._metrics = metrics
        self._fence = fence or open_fence()
        self._connections = _Connections()

    @property
    def name(self) -> str:
        """The URL prefix, which identifies an extender."""
        return self.spec.url_prefix

    # --- the verbs ------------------------------------------------------------------------------

    async def filter(self, pod: bytes, nodes: OfferedNodes) -> FilterAnswer:
        """Ask which nodes may take a pod (JSON).

        Raises:
            ExtenderError: the call failed, or names a node that was not offered.
        """
        body = b'{"Pod":' + pod + b"," + nodes.fields() + b"}"
        answer = self._object(await self._call("filter", self.spec.filter_verb, body), "filter")
        if message := answer.get("error"):
            raise self._failure("filter", str(message))
        names = answer.get("nodenames") if nodes.objects is None else None
        if names is None:
            names = [
                self._object(self._object(item, "filter").get("metadata"), "filter").get("name")
                for item in self._list(
                    self._object(answer.get("nodes"), "filter").get("items"), "filter"
                )
            ]
        offered = set(nodes.names)
        remaining = dict.fromkeys(map(str, self._list(names, "filter")))
        for name in remaining:
            if name not in offered:
                raise self._failure(
                    "filter",
                    f'extender "{self.name}" claims a filtered node "{name}" which is not found in '
                    "the input node list",
                )
        return FilterAnswer(
            tuple(remaining),
            self._texts(answer.get("failednodes"), "filter"),
            self._texts(answer.get("failedandunresolvablenodes"), "filter"),
        )

    async def prioritize(self, pod: bytes, nodes: OfferedNodes) -> list[tuple[str, int]]:
        """Ask for scores from 0 to 10; a node may be missing, or be there twice (they add up).

        Raises:
            ExtenderError: the call failed.
        """
        body = b'{"Pod":' + pod + b"," + nodes.fields() + b"}"
        answer = await self._call("prioritize", self.spec.prioritize_verb, body)
        scores = []
        for item in self._list(answer, "prioritize"):
            score = self._object(item, "prioritize")
            scores.append(
                (str(score.get("host", "")), self._number(score.get("score"), "prioritize"))
            )
        return scores

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
            answer = self._object(await self._call("bind", self.spec.bind_verb, body), "bind")
            answered = True
        finally:
            self._fence.end(answered=answered)
        if message := answer.get("error"):
            raise self._failure("bind", str(message))

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
        answer = self._object(await self._call("preempt", self.spec.preempt_verb, body), "preempt")
        by_node = answer.get("nodenametometavictims")
        if by_node is not None and not isinstance(by_node, dict):
            raise self._nonsense("preempt", by_node)
        return {str(name): self._victims(each) for name, each in (by_node or {}).items()}

    def _victims(self, answer: object) -> AnsweredVictims:
        victims = self._object(answer, "preempt")
        pods = self._list(victims.get("pods"), "preempt")
        return AnsweredVictims(
            tuple(str(self._object(pod, "preempt").get("uid", "")) for pod in pods),
            self._number(victims.get("numpdbviolations"), "preempt"),
        )

    # --- one call -------------------------------------------------------------------------------

    async def _call(self, purpose: str, verb: str, body: bytes) -> object:
        url = f"{self.name.rstrip('/')}/{verb}"
        started_seconds = self._clock.monotonic()
        result = "error"
        self._connections.calls += 1
        limit_seconds = self.spec.timeout_seconds
        if purpose == "bind":
            limit_seconds = self._fence.within_lease(limit_seconds)
        try:
            async with asyncio.timeout(limit_seconds):
                content = await self._post(purpose, verb, url, body)
            answer: object = orjson.loads(content)
            result = "success"
        except TimeoutError as error:
            result = "timeout"
            raise self._failure(
                purpose,
                f'Post "{url}": context deadline exceeded: no answer within '
                f"{self.spec.timeout_seconds:g}s",
            ) from error
        except orjson.JSONDecodeError as error:
            raise self._failure(purpose, f"{url} answered no JSON: {error}") from error
        finally:
            seconds = self._clock.monotonic() - started_seconds
            self._metrics.extender_duration.labels(self.name, purpose, result).observe(seconds)
            self._connections.calls -= 1
            await self._close_outdated()
        return answer

    async def _post(self, purpose: str, verb: str, url: str, body: bytes) -> bytes:
        # An idle connection may be closed by the other side just as it is used again. Asking twice
        # is harmless, binding twice is not.
        repeatable = purpose != "bind"
        while True:
            try:
                session = await self._session()
                async with session.post(
                    url,
                    data=body,
                    headers=_HEADERS,
                    server_hostname=self._server_name(),
                    trace_request_ctx=None if repeatable else url,
                ) as response:
                    if response.status != HTTPStatus.OK:
                        raise self._failure(
                            purpose,
                            f"failed {verb} with extender at URL {url}, code {response.status}",
                        )
                    return await response.read()
            except aiohttp.ServerDisconnectedError as error:
                if not repeatable:
                    raise self._unreachable(purpose, url, error) from error
                repeatable = False
            except (aiohttp.ClientError, OSError, ValueError) as error:
                if isinstance(error, TimeoutError):
                    raise
                # Certificates may have been renewed: the next session reads them again.
                self._connections.outdated = self._connections.session is not None
                raise self._unreachable(purpose, url, error) from error
            except SchedulerError as error:
                if isinstance(error, ExtenderError):
                    raise
                raise self._unreachable(purpose, url, error) from error

    def _server_name(self) -> str | None:
        config = self.spec.tls_config
        return config.server_name or None if config else None

    # --- connections ----------------------------------------------------------------------------

    async def _session(self) -> aiohttp.ClientSession:
        connections = self._connections
        async with connections.opening:
            if connections.session is None:
                context = await extender_context(self.spec, self._get_object)
                connections.session = aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(
                        limit=0, ssl=context or True, keepalive_timeout=_IDLE_SECONDS
                    ),
                    # The whole call has a deadline; of its parts none has one of its own.
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
                    trust_env=True,
                    trace_configs=_looks_at(self._fence),
                )
            return connections.session

    async def close(self) -> None:
        """Close the connections as soon as no call needs them, for good."""
        self._connections.retired = True
        await self._close_outdated()

    async def _close_outdated(self) -> None:
        connections = self._connections
        if (connections.outdated or connections.retired) and not connections.calls:
            connections.outdated = False
            session, connections.session = connections.session, None
            if session is not None:
                await session.close()

    # --- answers --------------------------------------------------------------------------------

    def _failure(self, purpose: str, message: str) -> ExtenderError:
        return ExtenderError(self.name, purpose, message)

    def _unreachable(self, purpose: str, url: str, error: Exception) -> ExtenderError:
        cause = " ".join(str(error).split()) or type(error).__name__
        return self._failure(purpose, f'Post "{url}": {cause}')

    def _nonsense(self, purpose: str, value: object) -> ExtenderError:
        shown = orjson.dumps(value)[:100].decode(errors="replace")
        return self._failure(
            purpose, f'extender "{self.name}" answered {purpose} with something else: {shown}'
        )

    def _object(self, value: object, purpose: str) -> dict[str, Any]:
        """An object with its keys in lower case; null is empty."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._nonsense(purpose, value)
        return {str(key).lower(): item for key, item in value.items()}

    def _list(self, value: object, purpose: str) -> list[Any]:
        if value is None:
            return []
        if not isinstance(value, list):
            raise self._nonsense(purpose, value)
        return value

    def _number(self, value: object, purpose: str) -> int:
        if value is None:
            return 0
        if not isinstance(value, int):
            raise self._nonsense(purpose, value)
        return value

    def _texts(self, value: object, purpose: str) -> dict[str, str]:
        """A map of texts, its keys as they are."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self._nonsense(purpose, value)
        return {str(key): str(text) for key, text in value.items()}


def _by_node(victims: Iterable[tuple[str, bytes]]) -> bytes:
    return b"{" + b",".join(go_json(name) + b":" + each for name, each in victims) + b"}"


def _meta_victims(uids: Sequence[str], pdb_violations: int) -> bytes:
    return go_json({"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": pdb_violations})


def _whole_victims(objects: Sequence[bytes], pdb_violations: int) -> bytes:
    number = str(pdb_violations).encode()
    return b'{"Pods":[' + b",".join(objects) + b'],"NumPDBViolations":' + number + b"}"
