"""HTTP for what plugins read outside of the cluster: bounded, without redirects, JSON only.

`scheduler.plugin_inputs` hands it to sources of numbers. Invariant: a request ends within its time
with an answer of at most so many bytes, or a WebError; no text shows a password or a token.
"""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
import orjson
from typing_extensions import override

from stellwerk import __version__
from stellwerk.errors import SchedulerError
from stellwerk.framework.services import Web

if TYPE_CHECKING:
    from collections.abc import Mapping

LIMIT_SECONDS: Final = 10.0
LIMIT_BYTES: Final = 16 << 20
"""A load-watcher's answer about 5,000 nodes is a fifth of it."""
_USER_INFO: Final = re.compile(r"^(https?://)[^/?#]*@")


class WebError(SchedulerError):
    """Something outside of the cluster could not be read; says why."""


class WebClient(Web):
    """One session for all sources, opened with the first request."""

    def __init__(
        self, limit_seconds: float = LIMIT_SECONDS, limit_bytes: int = LIMIT_BYTES
    ) -> None:
        self._limit_seconds = limit_seconds
        self._limit_bytes = limit_bytes
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    @override
    async def get(
        self,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        token: str = "",
        verify: bool = True,
    ) -> object:
        shown = _USER_INFO.sub(r"\1", url)
        try:
            async with asyncio.timeout(self._limit_seconds):
                content = await self._content(url, shown, query, token, verify=verify)
            answer: object = orjson.loads(content)
        except TimeoutError as error:
            limit = f"{self._limit_seconds:g} s"
            raise WebError(f"cannot read {shown}: no answer within {limit}") from error
        except orjson.JSONDecodeError as error:
            raise WebError(f"cannot read {shown}: the answer is no JSON: {error}") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = str(error).replace(url, shown) or type(error).__name__
            raise WebError(f"cannot read {shown}: {reason}") from error
        return answer

    async def _content(
        self,
        url: str,
        shown: str,
        query: Mapping[str, str] | None,
        token: str,
        *,
        verify: bool,
    ) -> bytes:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._open().get(
            url,
            params=query,
            headers=headers,
            allow_redirects=False,
            ssl=True if verify else False,  # noqa: SIM210 aiohttp tells True from other values
        ) as response:
            if response.status != HTTPStatus.OK:
                raise WebError(f"cannot read {shown}: status {response.status}")
            content = bytearray()
            async for part in response.content.iter_any():
                content += part
                if len(content) > self._limit_bytes:
                    response.close()  # with its connection: the rest is not to be read
                    raise WebError(f"cannot read {shown}: more than {self._limit_bytes} bytes")
            return bytes(content)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={
                    "User-Agent": f"stellwerk/{__version__}",
                    # What is compressed has no length that one could limit before it is unpacked.
                    "Accept-Encoding": "identity",
                }
            )
        return self._session
