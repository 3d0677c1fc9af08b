"""The operator's port: probes without credentials, metrics with a right to them.

`app` starts it with the checks and texts of the parts it has built. Invariant: a probe says what is
wrong by the name of the check, and answering one never waits for anything.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from argparse import ArgumentTypeError
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aiohttp import web

from stellwerk.client.reviews import ANONYMOUS
from stellwerk.metrics import HealthcheckMetrics
from stellwerk.models.number_options import PortNumber, shortened
from stellwerk.serving.exposition import CONTENT_TYPE, exposition_of
from stellwerk_kube.errors import ConfigurationError, in_words
from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.middleware import within_limits
from stellwerk_kube.listening.port_use import PortUse
from stellwerk_kube.listening.site import LimitedSite

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from stellwerk.serving.access_control import AccessControl
    from stellwerk.serving.certificates import ServerCertificate
    from stellwerk_kube.clock import Clock

    Check = Callable[[], str | None]
    Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = logging.getLogger(__name__)

DEFAULT_BIND_ADDRESS: Final = "127.0.0.1:10259"
STUCK_SECONDS: Final = 20.0
"""Time without a beat after which liveness fails, so that the kubelet starts the process anew. A
list of a large cluster may hold the loop up for seconds."""
PROBES: Final = frozenset({"livez", "readyz", "healthz"})
"""First parts of the paths that are always allowed, as kube-scheduler allows them."""
_THIS_MACHINE: Final = "this machine"
"""The user of a port without TLS."""
LOG_LEVEL_PATH: Final = "/debug/flags/v"
"""kube-scheduler's path for its verbosity."""
_MAX_LEVEL_BYTES: Final = 64
"""Bytes of a body that sets the log level."""
MAX_QUESTION_BYTES: Final = 256 << 10
"""Bytes of a body with a supposition and its manifests."""
LIMITS: Final = Limits(
    body_bytes={"/what-if": MAX_QUESTION_BYTES, LOG_LEVEL_PATH: _MAX_LEVEL_BYTES}
)


@dataclass(frozen=True, slots=True)
class Probes:
    """The named checks behind each probe; a check returns what is wrong, or None."""

    live: Mapping[str, Check] = field(default_factory=dict)
    ready: Mapping[str, Check] = field(default_factory=dict)
    """Beside the live ones."""
    healthy: Mapping[str, Check] = field(default_factory=dict)
    """Beside the live ones, for /healthz, which is older than the other two."""


@dataclass(frozen=True, slots=True)
class Guard:
    """The checks before the endpoints; without both, plain HTTP."""

    access: AccessControl | None = None
    certificate: ServerCertificate | None = None


class Watchdog:
    """Fails a probe when the scheduling coroutine has not been round its loop for long."""

    def __init__(
        self,
        clock: Clock,
        heartbeat: Callable[[], float],
        *,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        """Watch a heartbeat.

        Args:
            clock: for how long ago the last beat was.
            heartbeat: returns the monotonic time of the last beat; beats come also when there is
                nothing to do, or the present is returned while there is no work.
            stuck_seconds: how long without a beat is too long.
        """
        self._clock = clock
        self._heartbeat = heartbeat
        self._stuck_seconds = stuck_seconds

    def __call__(self) -> str | None:
        """Return what is wrong, or None."""
        silent_seconds = self._clock.monotonic() - self._heartbeat()
        if silent_seconds <= self._stuck_seconds:
            return None
        return f"the scheduling loop has not moved for {silent_seconds:.0f} s"


class HttpServer:
    """The endpoints on one address: probes by name of the check, and three pages of metrics."""

    def __init__(
        self,
        probes: Probes,
        metrics: Callable[[], bytes],
        resource_metrics: Callable[[], Iterable[bytes]],
        *,
        routes: Iterable[web.AbstractRouteDef] = (),
        guard: Guard | None = None,
        limits: Limits = LIMITS,
        refused: Callable[[str], None] | None = None,
    ) -> None:
        """Prepare the endpoints.

        Args:
            probes: what the probes ask.
            metrics: the text of /metrics.
            resource_metrics: the text of /metrics/resources, in pieces.
            routes: further endpoints of other modules.
            guard: its certificate, and who may ask for more than probes.
            limits: what peers may send, how long they may take, and how many they may be.
            refused: is called with the reason when something goes beyond them.
        """
        guard = guard or Guard()
        self._certificate = guard.certificate
        self._slis = HealthcheckMetrics()
        if guard.access is None:  # all requests are one user's
            limits = replace(limits, user_requests=limits.requests)
        self._use = PortUse(limits, refused)
        before = within_limits(self._use, _gate_of(guard), PROBES)
        self._app = web.Application(middlewares=[before], client_max_size=MAX_QUESTION_BYTES)
        self._app.add_routes(
            [
                web.get("/metrics", _text_of(metrics)),
                web.get("/metrics/resources", _pieces_of(resource_metrics)),
                web.get("/metrics/slis", _text_of(lambda: exposition_of(self._slis.families))),
            ]
        )
        every_check = {**probes.live, **probes.ready}
        self._add_probe("/livez", probes.live)
        self._add_probe("/readyz", every_check)
        self._add_probe("/healthz", {**probes.live, **probes.healthy})
        self._app.add_routes(routes)
        self._runner = web.AppRunner(self._app, access_log=None, shutdown_timeout=1.0)

    async def start(self, bind_address: str = DEFAULT_BIND_ADDRESS) -> int:
        """Listen; return the port, which differs from the one asked for if that was 0.

        Raises:
            ConfigurationError: the address is not one, is taken, or is open to other machines
                without TLS.
        """
        host, port = parse_address(bind_address)
        if self._certificate is None and not is_loopback(host):
            raise ConfigurationError(
                f"plain HTTP is only for this machine: {bind_address} is not a loopback address"
            )
        certificate = self._certificate
        if certificate is not None:
            certificate.on_new_authority = self._use.end_certified
        await self._runner.setup()
        try:
            tls = None if certificate is None else lambda: certificate.context
            site = LimitedSite(self._runner, host, port, self._use, tls=tls)
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigurationError(
                f"cannot listen on {bind_address}: {error.strerror or error}"
            ) from error
        bound: int = self._runner.addresses[0][1]
        scheme = "http" if certificate is None else "https"
        logger.info("serving probes and metrics on %s://%s:%d", scheme, host, bound)
        return bound

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    def _add_probe(self, path: str, checks: Mapping[str, Check]) -> None:
        async def probe(request: web.Request) -> web.Response:
            return self._answer(path, checks, verbose="verbose" in request.query)

        async def one(request: web.Request) -> web.Response:
            name = request.match_info["check"]
            if name not in checks:
                raise web.HTTPNotFound(text=f'there is no check "{name}"\n')
            return self._answer(path, {name: checks[name]}, verbose=False)

        self._app.add_routes([web.get(path, probe), web.get(f"{path}/{{check}}", one)])

    def _answer(self, path: str, checks: Mapping[str, Check], *, verbose: bool) -> web.Response:
        """Run the checks, count how each ended, and say, as the API server does, which passed."""
        probe, failures = path.removeprefix("/"), dict[str, str]()
        for name, check in checks.items():
            wrong = _run(name, check)
            if wrong:
                failures[name] = wrong
            self._slis.observe(name, probe, passed=not wrong)
        if not failures and not verbose:
            return web.Response(text="ok")
        lines = [
            f"[-]{name} failed: {failures[name]}" if name in failures else f"[+]{name} ok"
            for name in checks
        ]
        lines.append(f"{probe} check {'failed' if failures else 'passed'}")
        return web.Response(status=503 if failures else 200, text="\n".join(lines) + "\n")


def parse_address(address: str) -> tuple[str, int]:
    """Return host and port of "host:port", "[::1]:port" or ":port" (all interfaces).

    Raises:
        ConfigurationError: it is none of these.
    """
    host, colon, port = address.rpartition(":")
    try:
        number = PortNumber()(port)
    except ArgumentTypeError as error:
        raise ConfigurationError(
            f'"{shortened(address)}" is not an address: expected host:port, and {error}'
        ) from error
    if not colon:
        raise ConfigurationError(f'"{shortened(address)}" is not an address: expected host:port')
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigurationError(f'"{address}" is not an address: expected [host]:port')
    return host or "0.0.0.0", number  # noqa: S104 - asked for in so many words


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _gate_of(guard: Guard) -> Callable[[web.Request], Awaitable[str]]:
    """The rule by which a server lets callers ask for more than probes."""

    async def gate(request: web.Request) -> str:
        if guard.certificate is None:
            _check_host(request)
        if guard.access is None:
            return _THIS_MACHINE
        identity = await guard.access.check(request)
        return "" if identity == ANONYMOUS else identity.name

    return gate


def _check_host(request: web.Request) -> None:
    """Without TLS, a page elsewhere whose name leads here (DNS rebinding) gets nothing.

    Raises:
        HTTPForbidden: the request is for another host.
    """
    try:
        host = urlsplit(f"//{request.host}").hostname
    except ValueError:
        host = None
    if not is_loopback(host or ""):
        raise web.HTTPForbidden(text=f"{request.host!r} is not this machine\n")


def _run(name: str, check: Check) -> str | None:
    try:
        return check()
    except Exception as error:
        logger.exception("the check %s raised", name)
        return f"the check raised {in_words(error)}"


def _text_of(text: Callable[[], bytes]) -> Handler:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=text(), headers={"Content-Type": CONTENT_TYPE})

    return metrics


def _pieces_of(text: Callable[[], Iterable[bytes]]) -> Handler:
    """Other work has its turn after each piece."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
        await response.prepare(request)
        for piece in text():
            await response.write(piece)
            await asyncio.sleep(0)
        await response.write_eof()
        return response

    return metrics
