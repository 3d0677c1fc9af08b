"""The guard of the operator's port: its certificate, the authority of its clients, who may read.

`app` opens it, and adds the routes that read and set the log level. Invariants: without TLS the
port is for the machine itself alone; a body that names no level changes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aiohttp import web

from stellwerk import logs
from stellwerk.client.reviews import Reviews
from stellwerk.serving.access_control import AccessControl
from stellwerk.serving.certificates import CertificateFiles, ServerCertificate
from stellwerk.serving.http import DEFAULT_BIND_ADDRESS, LIMITS, LOG_LEVEL_PATH, Guard
from stellwerk_kube.errors import ApiError, ConfigurationError, NotFound

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from stellwerk.framework.services import ClusterClient
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.listening.limits import Limits


logger = logging.getLogger(__name__)

_CLIENT_AUTHORITY: Final = (
    "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
)
MAX_FIRST_LOOK_SECONDS: Final = 1.0
"""The port opens after this time though the authority of clients is not known yet: the probes of a
process that waits for its API server must be answered."""


@dataclass(frozen=True, slots=True)
class PortOptions:
    """The options of the command line for the port."""

    bind_address: str = DEFAULT_BIND_ADDRESS
    certificate: CertificateFiles | None = None
    """None: one that is made at the start and signed by itself."""
    client_ca_file: Path | None = None
    """None: the authority that the cluster publishes for its servers, where it does."""
    plain_http: bool = False
    limits: Limits = LIMITS


@asynccontextmanager
async def guarded_port(
    options: PortOptions, client: ClusterClient, clock: Clock
) -> AsyncIterator[Guard]:
    """Yield what guards the port, kept up to date inside.

    The port does not wait for an API server that is away: clients with certificates are then known
    once it has answered.

    Raises:
        ConfigurationError: a file of the options cannot be used.
    """
    if options.plain_http:
        yield Guard()
        return
    certificate = await asyncio.to_thread(ServerCertificate, options.certificate, clock)

    async def authority() -> bytes | None:
        return await client_authority(options.client_ca_file, client)

    known: bytes | None = None
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(MAX_FIRST_LOOK_SECONDS):
                known = await authority()
        await certificate.refresh(known)
    except OSError as error:
        raise ConfigurationError(
            f"no authority for clients in {options.client_ca_file}: {error}"
        ) from error
    keeping = certificate.keep_fresh(authority, is_known=known is not None)
    fresh = asyncio.create_task(keeping, name="certificates")
    try:
        yield Guard(AccessControl(Reviews(client), clock), certificate)
    finally:
        fresh.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await fresh


async def client_authority(file: Path | None, client: ClusterClient) -> bytes | None:
    """The authority of client certificates in PEM, empty where there is none; None: not known.

    Raises:
        OSError: its file cannot be read.
    """
    if file is not None:
        return await asyncio.to_thread(file.read_bytes)
    try:
        published = await client.get(_CLIENT_AUTHORITY)
    except NotFound:
        return b""
    except ApiError as error:
        logger.debug("the authority of client certificates is not known: %s", error)
        return None
    text = (published.get("data") or {}).get("client-ca-file")
    return text.encode() if text else b""


def log_level_routes() -> web.RouteTableDef:
    """Return GET and PUT /debug/flags/v: the log level, while the operator runs."""
    routes = web.RouteTableDef()

    @routes.get(LOG_LEVEL_PATH)
    async def read(_: web.Request) -> web.Response:
        return web.Response(text=f"{logs.level()}\n")

    @routes.put(LOG_LEVEL_PATH)
    async def write(request: web.Request) -> web.Response:
        body = await request.read()
        try:
            name = logs.set_level(body.decode(errors="replace"))
        except ValueError as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from error
        logger.warning("the log level is now %s", name)
        return web.Response(text=f"the log level is now {name}\n")

    return routes
