"""The way from a user's machine to the operator's port, with the user's own credentials.

`stellwerk explain`, `what-if` and `page` ask through it. The API server's proxy strips
credentials, so that a port is forwarded to the pod that holds the lease, by kubectl, which knows
every kind of kubeconfig. Invariant: a token is never sent over plain HTTP, nor to an address whose
certificate was to be verified and could not be.
"""

import asyncio
import contextlib
import random  # noqa: TID251 spreads retries of one command
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import aiohttp

from stellwerk.client.credentials import Credentials, load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.operator_port import OperatorPort
from stellwerk.client.renewable_context import RenewableContext
from stellwerk.clock import SystemClock
from stellwerk.commands.port_arguments import PortAddress
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.metrics import Metrics

_PORT: Final = 10259
_FORWARDING: Final = re.compile(rb"Forwarding from 127\.0\.0\.1:(\d+)")
_FORWARD_SECONDS: Final = 15.0
_ANSWER_SECONDS: Final = 60.0


@asynccontextmanager
async def open_port(address: PortAddress) -> AsyncIterator[OperatorPort]:
    """Yield the port, reachable inside.

    Raises:
        ConfigurationError: it cannot be reached as asked for.
        SchedulerError: no pod holds the lease.
    """
    if address.url:
        async with _port_at(address, address.url, verify=address.verify) as port:
            yield port
        return
    credentials = await load_credentials(address.kubeconfig, address.context)
    pod = await _leader(credentials, address)
    # The API server has led us to the pod; the certificate is the pod's own.
    async with (
        _forwarded(address, pod) as number,
        _port_at(address, f"https://127.0.0.1:{number}", verify=False) as port,
    ):
        yield port


@asynccontextmanager
async def _port_at(address: PortAddress, url: str, *, verify: bool) -> AsyncIterator[OperatorPort]:
    """Yield the port at a URL; over TLS with the user's token, renewed when it expires."""
    authorization, connector = None, None
    if url.startswith("https"):
        credentials = await load_credentials(address.kubeconfig, address.context)
        authorization = credentials.authorization
        access = replace(credentials.access, server=url, verify=verify)
        context = RenewableContext.of(access)
        connector = aiohttp.TCPConnector(ssl=context) if context is not None else None
    timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        yield OperatorPort(session, url, authorization)


async def _leader(credentials: Credentials, address: PortAddress) -> str:
    """The name of the pod that holds the lease: its host name, before the identity's underscore."""
    key = f"{address.lease_namespace}/{address.lease_name}"
    async with KubernetesClient(
        credentials, clock=SystemClock(), metrics=Metrics(), jitter=random.random
    ) as client:
        lease = await client.lease(address.lease_namespace, address.lease_name).get()
    holder = "" if lease is None else lease.record.holder_identity
    if not holder:
        raise SchedulerError(f"no replica holds the lease {key}: try --lease or --url")
    return holder.rpartition("_")[0] or holder


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
        raise SchedulerError(f"kubectl forwarded no port to pod {pod} in time") from error
    found = _FORWARDING.match(line)
    if found is None:
        message = (await forwarding.stderr.read()).decode(errors="replace").strip()
        raise SchedulerError(f"cannot forward a port to pod {pod}: {message}")
    return int(found[1])
