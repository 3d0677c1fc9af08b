"""The way from a user's machine to the operator's port, with the user's own credentials.

`stellwerk explain`, `what-if` and `page` ask through it, the page through `LeaderPort`, which finds
the replica that leads anew when it is lost. The API server's proxy strips credentials, so that a
port is forwarded to the pod that holds the lease, by kubectl, which knows every kind of kubeconfig.
Invariant: a token is never sent over plain HTTP, nor to an address whose certificate was to be
verified and could not be, nor to a forwarded port that does not show the key that the lease names,
unless the user says so.
"""

import asyncio
import contextlib
import random  # noqa: TID251 spreads retries of one command
import re
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, Self

import aiohttp

from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import Lease, local_url, public_key
from stellwerk.client.operator_port import NoAnswer, OperatorPort, PortRefusal
from stellwerk.client.renewable_context import RenewableContext
from stellwerk.clock import SystemClock
from stellwerk.commands.port_arguments import PortAddress
from stellwerk.errors import ConfigurationError, SchedulerError, UnreachableError
from stellwerk.metrics import Metrics
from stellwerk.models.answers.answer import Kind

_PORT: Final = 10259
_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_FORWARD_SECONDS: Final = 15.0
_ANSWER_SECONDS: Final = 60.0


@asynccontextmanager
async def open_port(address: PortAddress) -> AsyncIterator[OperatorPort]:
    """Yield the port, reachable inside.

    Raises:
        ConfigurationError: it cannot be reached as asked for.
        UnreachableError: no pod holds the lease, or no port can be forwarded to it.
    """
    if address.url:
        async with _port_at(address, address.url, verify=address.verify) as port:
            yield port
        return
    credentials = await load_credentials(address.kubeconfig, address.context)
    lease = await _lease(credentials, address)
    url = local_url(lease, credentials.server)
    if url is not None:
        # Plain HTTP within this machine: no token is sent.
        async with _port_at(address, url, verify=True) as port:
            yield port
        return
    pod = lease.record.holder_identity
    pod = pod.rpartition("_")[0] or pod
    expected = public_key(lease) if address.verify else ""
    if address.verify and not expected:
        raise UnreachableError(
            f"the lease {address.lease_namespace}/{address.lease_name} does not say by which key "
            f"to know the port of {pod}, as that of an older operator: no token is sent there "
            "without --insecure-skip-tls-verify"
        )
    # Anything may answer on the forwarded port, with any certificate: only the holder of the lease
    # has the key whose fingerprint stands there, and the API server vouches for that.
    async with (
        _forwarded(address, pod) as number,
        _port_at(address, f"https://127.0.0.1:{number}", verify=False, expected=expected) as port,
    ):
        yield port


@asynccontextmanager
async def _port_at(
    address: PortAddress, url: str, *, verify: bool, expected: str = ""
) -> AsyncIterator[OperatorPort]:
    """Yield the port at a URL; over TLS with the user's token, renewed when it expires.

    `expected` is the fingerprint of the key that it has to show; empty: any.
    """
    authorization, connector = None, None
    if url.startswith("https"):
        credentials = await load_credentials(address.kubeconfig, address.context)
        authorization = credentials.authorization
        access = replace(credentials.access, server=url, verify=verify, public_key=expected)
        context = RenewableContext.of(access)
        connector = aiohttp.TCPConnector(ssl=context) if context is not None else None
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield OperatorPort(session, url, authorization)


async def _lease(credentials: Credentials, address: PortAddress) -> Lease:
    """The lease with its holder, whose identity is a pod's host name, an underscore and more."""
    key = f"{address.lease_namespace}/{address.lease_name}"
    async with KubernetesClient(
        credentials, clock=SystemClock(), metrics=Metrics(), jitter=random.random
    ) as client:
        lease = await client.lease(address.lease_namespace, address.lease_name).get()
    if lease is None or not lease.record.holder_identity:
        raise UnreachableError(f"no replica holds the lease {key}: try --lease or --url")
    return lease


@asynccontextmanager
async def _forwarded(address: PortAddress, pod: str) -> AsyncIterator[int]:
    """Forward a free port to the pod while inside."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigurationError("kubectl is not on the PATH: forward a port and name it by --url")
    arguments = [f"--namespace={address.lease_namespace}", "port-forward", f"pod/{pod}"]
    if address.kubeconfig:
        arguments.insert(0, f"--kubeconfig={address.kubeconfig}")
    if address.context:
        arguments.insert(0, f"--context={address.context}")
    forwarding = await asyncio.create_subprocess_exec(
        kubectl,
        *arguments,
        f":{_PORT}",
        "--address=127.0.0.1",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        yield await _forwarded_port(forwarding, pod)
    finally:
        with contextlib.suppress(ProcessLookupError):
            forwarding.terminate()
        await forwarding.communicate()


async def _forwarded_port(forwarding: asyncio.subprocess.Process, pod: str) -> int:
    if forwarding.stdout is None or forwarding.stderr is None:
        raise SchedulerError(f"cannot forward a port to pod {pod}: kubectl has no output")
    try:
        line = await asyncio.wait_for(forwarding.stdout.readline(), _FORWARD_SECONDS)
    except TimeoutError as error:
        raise UnreachableError(f"kubectl forwarded no port to pod {pod} in time") from error
    found = _FORWARDING.match(line)
    if found is None:
        if line:  # it forwards, or waits, and would never end its complaints
            with contextlib.suppress(ProcessLookupError):
                forwarding.terminate()
        message = (await forwarding.stderr.read()).decode(errors="replace").strip()
        raise UnreachableError(f"cannot forward a port to pod {pod}: {message}")
    return int(found[1])


_PAUSE_SECONDS: Final = 3.0
"""After a failure, before the leader is looked for again."""


class LeaderPort:
    """Questions to whichever replica leads; open it with `async with`."""

    def __init__(self, address: PortAddress) -> None:
        self._address = address
        self._port: OperatorPort | None = None
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._failure: SchedulerError | None = None
        self._failed_at_seconds = 0.0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close(self._port)

    async def get(self, path: str, kind: type[Kind]) -> Kind:
        """The answer to a path; raises as `OperatorPort.get`."""
        return await self._ask(lambda port: port.get(path, kind))

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body; raises as `OperatorPort.get`."""
        return await self._ask(lambda port: port.post(path, body, kind))

    async def _ask(self, question: Callable[[OperatorPort], Awaitable[Kind]]) -> Kind:
        """Ask; where the port is lost or leads no more, ask once more through a new one."""
        port = await self._opened()
        try:
            return await question(port)
        except (NoAnswer, PortRefusal) as lost:
            if isinstance(lost, PortRefusal) and not lost.leader:
                raise
            await self._close(port)
        return await question(await self._opened())

    async def _opened(self) -> OperatorPort:
        async with self._opening:
            if self._port is not None:
                return self._port
            paused = time.monotonic() - self._failed_at_seconds < _PAUSE_SECONDS
            if self._failure is not None and paused:
                raise self._failure
            try:
                self._port = await self._stack.enter_async_context(open_port(self._address))
            except SchedulerError as failure:
                self._failure, self._failed_at_seconds = failure, time.monotonic()
                raise
            self._failure = None
            return self._port

    async def _close(self, port: OperatorPort | None) -> None:
        async with self._opening:
            if port is not None and port is self._port:
                self._port = None
                await self._stack.aclose()
