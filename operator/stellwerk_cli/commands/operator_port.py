"""The way from a user's machine to the operator's port, with the user's own credentials.

`stellwerk explain`, `what-if` and `page` ask through it, the page through `LeaderPort`, which finds
the replica that leads anew when it is lost. The API server's proxy strips credentials, so that a
port is forwarded to the pod that holds the lease, by kubectl, which knows every kind of kubeconfig.
The operator holds a lease of its own, or kube-scheduler's where it is in its place; it writes into
it where its pod is. Invariant: a token is never sent over plain HTTP, nor to an address whose
certificate was to be verified and could not be, nor to a forwarded port that does not show the key
that the lease names, unless the user says so; nor to a pod outside of the namespaces in which
Stellwerk is expected.
"""

import asyncio
import contextlib
import random  # noqa: TID251 spreads retries of one command
import re
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import IO, Any, Final, Self

import aiohttp

from stellwerk.answers.answer import Kind
from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.lease import (
    Lease,
    is_of_stellwerk,
    leases_path,
    local_url,
    pod_of,
    public_key,
)
from stellwerk.client.operator_port import NoAnswer, OperatorPort, PortRefusal
from stellwerk.client.renewable_context import RenewableContext
from stellwerk.metrics import Metrics
from stellwerk_cli.commands.port_arguments import IN_PLACE, PortAddress, operator_namespace
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.errors import (
    ApiError,
    ConfigurationError,
    Forbidden,
    SchedulerError,
    UnreachableError,
)
from stellwerk_kube.untrusted_text import printable

_PORT: Final = 10259
_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_FORWARD_SECONDS: Final = 15.0
_ANSWER_SECONDS: Final = 60.0
_MAX_LEASES: Final = 100
"""Leases that are read to name those of other operators; a namespace of operators has a few."""


class NoOperatorError(UnreachableError):
    """No operator holds a lease that may be read."""

    def __init__(self, message: str, others: Sequence[str]) -> None:
        """`others`: leases that other operators hold, and why a lease could not be read."""
        super().__init__(message)
        self.others = others


class LeasesUnreadableError(SchedulerError):
    """The caller may read no lease that says whether there is an operator."""


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
    leader = await _leader(credentials, address)
    url = local_url(leader.lease, credentials.server)
    if url is not None:
        # Plain HTTP within this machine: no token is sent.
        async with _port_at(address, url, verify=True) as port:
            yield port
        return
    leader.check_namespace(address)
    expected = public_key(leader.lease) if address.verify else ""
    if address.verify and not expected:
        raise UnreachableError(
            f"the lease {leader.key} does not name the key of the port of {leader.pod}: it "
            "belongs to an older operator or to another scheduler. No token is sent there "
            "without --insecure-skip-tls-verify"
        )
    # Anything may answer on the forwarded port, with any certificate: only the holder of the lease
    # has the key whose fingerprint stands there, and the API server vouches for that.
    async with (
        _forwarded(address, leader) as number,
        _port_at(address, f"https://127.0.0.1:{number}", verify=False, expected=expected) as port,
    ):
        if leader.key != f"{address.lease_namespace}/{address.lease_name}":
            said = f"stellwerk: pod {leader.pod} is the leader, by the lease {leader.key}"
            sys.stderr.write(f"{printable(said)}\n")
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


@dataclass(frozen=True, slots=True)
class _Leader:
    """The lease of the operator that leads, and where its pod is."""

    key: str
    """Namespace and name of the lease."""
    lease: Lease
    namespace: str
    name: str
    """The pod's name."""
    doubt: str
    """The doubt about the pod, in brackets behind a failure; empty: the lease names it."""

    @classmethod
    def of(cls, key: str, lease: Lease, unread: str) -> Self:
        """The holder of a lease; `unread`: why the other lease is not known."""
        pod = pod_of(lease)
        if pod is not None:
            return cls(key, lease, *pod, doubt=unread)
        # An older operator writes no pod: it runs where its lease is, and its host name is the pod.
        identity = lease.record.holder_identity
        guess = (key.partition("/")[0], identity.rpartition("_")[0] or identity)
        doubt = (
            f"the lease {key} names no pod of its holder {identity}: if it runs outside the "
            "cluster, name its port with --url"
        )
        return cls(key, lease, *guess, "; ".join(filter(None, (doubt, unread))))

    @property
    def pod(self) -> str:
        """Namespace and name of the pod."""
        return f"{self.namespace}/{self.name}"

    def check_namespace(self, address: PortAddress) -> None:
        """Refuse a pod where Stellwerk is not expected.

        Many programs may write the leases of kube-system. Without this check each of them could
        name a pod of its own, with its key, and would be sent the tokens of those who ask.

        Raises:
            UnreachableError: it lies elsewhere.
        """
        expected = sorted({address.lease_namespace, operator_namespace(), IN_PLACE[0]})
        if self.namespace not in expected:
            raise UnreachableError(
                f"the lease {self.key} names the pod {self.pod}, but Stellwerk is expected only "
                f"in {' or '.join(expected)}. If it runs there, set "
                f"STELLWERK_NAMESPACE={self.namespace}"
            )


async def _leader(credentials: Credentials, address: PortAddress) -> _Leader:
    """Look at the lease of the address, and at kube-scheduler's if the user has named none.

    Raises:
        SchedulerError: neither may be read.
        UnreachableError: no Stellwerk holds one of those that may be read.
    """
    keys = [(address.lease_namespace, address.lease_name)]
    if address.or_in_place and IN_PLACE not in keys:
        keys.append(IN_PLACE)
    leases: dict[tuple[str, str], Lease | None] = {}
    refused: list[str] = []
    async with KubernetesClient(
        credentials, clock=SystemClock(), metrics=Metrics(), jitter=random.random
    ) as client:
        for namespace, name in keys:
            try:
                leases[namespace, name] = await client.lease(namespace, name).get()
            except Forbidden:
                refused.append(_missing_right(namespace, name))
        unread = "; ".join(refused)
        if not leases:
            raise LeasesUnreadableError(unread)
        held = {
            key: lease
            for key, lease in leases.items()
            if lease is not None
            and lease.record.holder_identity
            # kube-scheduler holds its own; one that is named by the user is taken at its word.
            and (key == keys[0] or is_of_stellwerk(lease))
        }
        if not held:
            raise await _nobody(client, address, leases, unread)
    # A holder that died, or left for the other lease, stays named until another one comes. Both
    # times are of operators' clocks, so that the one of this machine does not count.
    key = max(held, key=lambda each: held[each].record.renew_time)
    return _Leader.of("/".join(key), held[key], unread)


def _missing_right(namespace: str, name: str) -> str:
    return (
        f"the lease {namespace}/{name} may not be read: you lack the right to get "
        f"leases.coordination.k8s.io {name} in namespace {namespace}"
    )


async def _nobody(
    client: KubernetesClient,
    address: PortAddress,
    leases: Mapping[tuple[str, str], Lease | None],
    unread: str,
) -> NoOperatorError:
    """The error for finding no operator, with the leases that operators of other names hold."""
    said = [f"no replica holds the lease {' or '.join(map('/'.join, leases))}"]
    other = leases.get(IN_PLACE)
    if other is not None and other.record.holder_identity:
        said.append(
            f"{'/'.join(IN_PLACE)} is held by {other.record.holder_identity}, which is not "
            "Stellwerk, or an older version"
        )
    if unread:
        said.append(unread)
    named: list[str] = []
    try:
        path = f"{leases_path(address.lease_namespace)}?limit={_MAX_LEASES}"
        listed = map(Lease.of, (await client.get(path))["items"])
    except ApiError:
        pass  # readers of explanations may not list them: the others are a help, and no more
    else:
        named = [each.obj["metadata"]["name"] for each in listed if is_of_stellwerk(each)]
        if named:
            said.append(f"in {address.lease_namespace} Stellwerk holds {', '.join(named)}")
    others = [*named, *([unread] if unread else [])]
    return NoOperatorError("; ".join(said) + ": pass --lease or --url", others)


@asynccontextmanager
async def _forwarded(address: PortAddress, leader: _Leader) -> AsyncIterator[int]:
    """Forward a free port to the pod while inside."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        raise ConfigurationError(
            "kubectl is not on the PATH: forward a port yourself and name it with --url"
        )
    arguments = [f"--namespace={leader.namespace}", "port-forward", f"pod/{leader.name}"]
    if address.kubeconfig:
        arguments.insert(0, f"--kubeconfig={address.kubeconfig}")
    if address.context:
        arguments.insert(0, f"--context={address.context}")
    # Not a pipe: what a credential plugin of kubectl leaves in the background may hold it open.
    with tempfile.TemporaryFile() as complaint:
        forwarding = await asyncio.create_subprocess_exec(
            kubectl,
            *arguments,
            f":{_PORT}",
            "--address=127.0.0.1",
            stdout=asyncio.subprocess.PIPE,
            stderr=complaint,
        )
        try:
            yield await _forwarded_port(forwarding, complaint, leader)
        finally:
            await _end(forwarding)


async def _end(forwarding: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        forwarding.terminate()
    await forwarding.communicate()


async def _forwarded_port(
    forwarding: asyncio.subprocess.Process, complaint: IO[bytes], leader: _Leader
) -> int:
    if forwarding.stdout is None:
        raise SchedulerError(f"cannot forward a port to pod {leader.pod}: kubectl has no output")
    try:
        line = await asyncio.wait_for(forwarding.stdout.readline(), _FORWARD_SECONDS)
    except TimeoutError as error:
        raise UnreachableError(f"kubectl forwarded no port to pod {leader.pod} in time") from error
    found = _FORWARDING.match(line)
    if found is None:
        if line:  # it forwards, or waits, and would not end
            await _end(forwarding)
        await forwarding.wait()
        complaint.seek(0)
        message = complaint.read().decode(errors="replace").strip()
        doubt = f" ({leader.doubt})" if leader.doubt else ""
        raise UnreachableError(f"cannot forward a port to pod {leader.pod}: {message}{doubt}")
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
