"""HTTP to addresses that profiles name: extenders connect by it, sources of plugins' numbers ask.

`scheduler.plugin_sources` hands `WebClient` to sources of numbers. Invariant: a request ends within
its time with an answer of at most so many bytes, or a WebError; no text shows a password or a
token; no redirect is followed, and the address that was checked is the one connected to.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from concurrent.futures import BrokenExecutor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from stellwerk import __version__
from stellwerk.framework.services import Web
from stellwerk_kube.destinations import EVERYWHERE, Destinations, without_user
from stellwerk_kube.errors import SchedulerError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable, Mapping

MAX_PAGE_SECONDS: Final = 10.0
"""Longest time of a reading, unless its caller says otherwise."""
MAX_PAGE_BYTES: Final = 16 << 20
"""Bytes of an answer: five times what a load-watcher says about 5,000 nodes."""
_LONG_BYTES: Final = 512 << 10
"""Bytes from which on an answer is parsed elsewhere, because that takes more than 10 ms."""


class WebError(SchedulerError):
    """Something outside of the cluster could not be read; says why."""


class _ServiceResolver(AbstractResolver):
    """Resolves names of Services as these alone, and others as the system does."""

    def __init__(self, destinations: Destinations) -> None:
        self._destinations = destinations

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        whole = self._destinations.service(host) or host
        infos = await asyncio.get_running_loop().getaddrinfo(
            whole, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=found,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found, _, protocol, _, address in infos
        ]

    @override
    async def close(self) -> None:
        """Nothing is kept."""


def connector_to(
    url: str,
    destinations: Destinations,
    *,
    context: ssl.SSLContext | None = None,
    limit: int = 100,
    keepalive_seconds: float = 15.0,
    refused: Callable[[str], None] = lambda _: None,
) -> aiohttp.TCPConnector:
    """Connections for a URL that is allowed, to addresses at which it may be.

    An address that is not allowed is an OSError of the request, and `refused` gets the reason.
    """
    if not destinations.restricted:
        return aiohttp.TCPConnector(
            limit=limit, ssl=context or True, keepalive_timeout=keepalive_seconds
        )

    def checked(info: tuple[object, ...]) -> socket.socket:
        # The last moment: it is this address that the socket is connected to, by no name any more.
        family, kind, protocol, _, address = info
        if not isinstance(address, tuple) or not isinstance(family, int):
            raise PermissionError("not an address")
        if reason := destinations.address_refusal(url, str(address[0]), int(address[1])):
            refused(reason)
            raise PermissionError(errno.EACCES, reason)
        return socket.socket(family, kind, protocol)  # type: ignore[arg-type]

    return aiohttp.TCPConnector(
        limit=limit,
        ssl=context or True,
        keepalive_timeout=keepalive_seconds,
        resolver=_ServiceResolver(destinations),
        socket_factory=checked,
    )


async def refused_address(url: str, destinations: Destinations) -> str:
    """The reason why the addresses that a URL has now may not be called; empty: they may.

    By `--extender-allow` alone: the owner of a Secret or file is asked where it is read
    (`hosts_refusal`).

    Raises:
        OSError: its name leads to none.
    """
    parsed = URL(url)
    port = parsed.port or 0
    for found in await _ServiceResolver(destinations).resolve(
        parsed.host or "", port, socket.AF_UNSPEC
    ):
        if reason := destinations.address_refusal(url, found["host"], port):
            return reason
    return ""


class WebClient(Web):
    """A connection for each request: they are seconds apart."""

    def __init__(
        self,
        limit_seconds: float = MAX_PAGE_SECONDS,
        limit_bytes: int = MAX_PAGE_BYTES,
        destinations: Destinations = EVERYWHERE,
        elsewhere: Callable[[Callable[[], object]], Awaitable[object]] | None = None,
    ) -> None:
        """`elsewhere` computes in another process; None: long answers are read here, too."""
        self._elsewhere = elsewhere
        self._limit_seconds = limit_seconds
        self._limit_bytes = limit_bytes
        self._destinations = destinations

    @override
    async def get(
        self,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        token: str = "",
        verify: bool = True,
        take: Callable[[object], object] | None = None,
    ) -> object:
        shown = without_user(url)
        if reason := self._destinations.refusal(url):
            raise WebError(f"cannot read {shown}: {reason}")
        try:
            async with asyncio.timeout(self._limit_seconds):
                content = await self._content(url, shown, query, token, verify=verify)
                read = partial(_read, content, take)
                if take is None or self._elsewhere is None or len(content) < _LONG_BYTES:
                    return read()
                return await self._elsewhere(read)
        except TimeoutError as error:
            limit = f"{self._limit_seconds:g} s"
            raise WebError(f"cannot read {shown}: no answer within {limit}") from error
        except orjson.JSONDecodeError as error:
            raise WebError(f"cannot read {shown}: the answer is not JSON: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError, BrokenExecutor) as error:
            reason = str(error).replace(url, shown) or type(error).__name__
            raise WebError(f"cannot read {shown}: {reason}") from error

    @override
    async def pause(self) -> None:
        await asyncio.sleep(0)

    async def _content(
        self,
        url: str,
        shown: str,
        query: Mapping[str, str] | None,
        token: str,
        *,
        verify: bool,
    ) -> bytes:
        headers = {
            "User-Agent": f"stellwerk/{__version__}",
            # What is compressed has no length that one could limit before it is unpacked.
            "Accept-Encoding": "identity",
        }
        if token:
            headers["Authorization"] = f"Bearer {token}"
        async with (
            aiohttp.ClientSession(connector=connector_to(url, self._destinations)) as session,
            session.get(
                url,
                params=query,
                headers=headers,
                allow_redirects=False,
                ssl=True if verify else False,  # noqa: SIM210 aiohttp tells True from other values
            ) as response,
        ):
            if response.status != HTTPStatus.OK:
                raise WebError(f"cannot read {shown}: status {response.status}")
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > self._limit_bytes:
                    response.close()  # with its connection: the rest is not to be read
                    raise WebError(f"cannot read {shown}: more than {self._limit_bytes} bytes")
            return bytes(content)


def _read(content: bytes, take: Callable[[object], object] | None) -> object:
    """The answer, or what is kept of it."""
    answer: object = orjson.loads(content)
    return answer if take is None else take(answer)
