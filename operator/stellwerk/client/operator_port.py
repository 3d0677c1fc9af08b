"""Questions to the operator's own port.

Commands, the demo and the page ask through it. Invariant: an answer that is none becomes one line
that says why, and no answer is larger than what is read of it.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import aiohttp
import orjson

from stellwerk.answers.answer import Kind, codec
from stellwerk_kube.errors import ConfigurationError, SchedulerError, UnreachableError, in_words
from stellwerk_kube.untrusted_text import cut, printable, shown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from stellwerk_kube.json_values import JsonObject

MAX_PORT_ANSWER_BYTES: Final = 32 << 20
"""Bytes of one answer of the operator's port; a longer one is an error."""
_NOT_FOUND: Final = "there is no "
"""Begins what the port says in plain text of a name that it does not know."""
_MAX_SHOWN_BYTES: Final = 100
"""Bytes that an error shows of an answer that is not the operator's."""


class NoAnswer(UnreachableError):  # noqa: N818 - named as the thing that happened
    """Nothing answers there, or what does is no operator's port."""


class PortRefusal(SchedulerError):  # noqa: N818 - named as the thing that happened
    """The port answered, and not with what was asked for."""

    def __init__(self, status: int, message: str, leader: str = "") -> None:
        """Keep the HTTP status, and the replica to ask instead where this one only stands by."""
        super().__init__(message)
        self.status = status
        self.leader = leader


class OperatorPort:
    """Requests to one address."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        authorization: Callable[[], Awaitable[str | None]] | None = None,
    ) -> None:
        """Prepare requests; `authorization` gives the header that each of them sends."""
        self._session = session
        self._url = url.rstrip("/")
        self._authorization = authorization

    @property
    def url(self) -> str:
        """The address, without a slash at the end."""
        return self._url

    async def text(self, path: str) -> str:
        """The answer to a path whose answers are text, such as /metrics; also of a failed probe.

        Raises:
            NoAnswer: nothing answers.
            PortRefusal: the answer is a refusal.
        """
        status, text, content_type = await self._sent("GET", path, None)
        is_probe = status == HTTPStatus.SERVICE_UNAVAILABLE and content_type == "text/plain"
        if status != HTTPStatus.OK and not is_probe:
            raise _refusal(status, text, content_type)
        return text.decode(errors="replace")

    async def get(self, path: str, kind: type[Kind]) -> Kind:
        """The answer to a path.

        Raises:
            MalformedAnswer: it is another kind of answer.
            NoAnswer: nothing answers, or no JSON.
            PortRefusal: the answer is a refusal.
        """
        return codec(kind).read(await self.ask_json(path))

    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        """The answer to a body; raises as `get`."""
        return codec(kind).read(await self.ask_json(path, body))

    async def ask_json(self, path: str, body: Mapping[str, Any] | None = None) -> JsonObject:
        """Ask for a path, or POST a question as its body; return the answer's JSON for programs.

        Raises:
            NoAnswer: nothing answers, or no JSON.
            PortRefusal: the answer is a refusal.
        """
        if body is None:
            return await self._ask("GET", path, None)
        try:
            sent = orjson.dumps(body)
        except TypeError as error:  # deeper than 254 levels, or a number beyond 64 bits
            raise ConfigurationError(f"the request cannot be encoded as JSON: {error}") from error
        return await self._ask("POST", path, sent)

    async def _ask(self, method: str, path: str, body: bytes | None) -> JsonObject:
        status, text, content_type = await self._sent(method, path, body)
        if status != HTTPStatus.OK:
            raise _refusal(status, text, content_type)
        try:
            answer: JsonObject = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise NoAnswer(f"no answer from {self._url}{path}: {error}") from error
        return answer

    async def _sent(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes, str]:
        """Status, body and content type of an answer."""
        authorization = None if self._authorization is None else await self._authorization()
        headers = {"Authorization": authorization} if authorization else {}
        try:
            async with self._session.request(
                method, self._url + path, data=body, headers=headers, allow_redirects=False
            ) as response:
                return response.status, await _read(response), response.content_type
        except aiohttp.ClientConnectorCertificateError as error:
            # The operator makes its own certificate unless it is given one.
            reason = in_words(error.certificate_error)
            raise NoAnswer(
                f"no answer from {self._url}{path}: its certificate is not trusted ({reason}); "
                "--insecure-skip-tls-verify sends your token to whatever answers there"
            ) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NoAnswer(f"no answer from {self._url}{path}: {error}") from error


async def _read(response: aiohttp.ClientResponse) -> bytes:
    text = bytearray()
    async for piece in response.content.iter_any():
        text += piece
        if len(text) > MAX_PORT_ANSWER_BYTES:
            raise aiohttp.ClientPayloadError(f"it is larger than {MAX_PORT_ANSWER_BYTES >> 20} MiB")
    return bytes(text)


def _refusal(status: int, text: bytes, content_type: str) -> PortRefusal:
    """The refusal in an answer that is no result."""
    try:
        answer = orjson.loads(text)
    except orjson.JSONDecodeError:
        first = text.decode(errors="replace").strip().partition("\n")[0]
        if first.startswith(_NOT_FOUND):
            return PortRefusal(status, shown(first))
        if content_type == "text/plain" and not first.startswith(f"{status}: "):
            return PortRefusal(status, f"{shown(first)} ({status})")
        # Some other server, of whose page the beginning is enough.
        said = cut(printable(first), _MAX_SHOWN_BYTES)
        return PortRefusal(status, f"not an operator's answer: {said or 'nothing'} ({status})")
    leader = answer.get("leader") if isinstance(answer, dict) else None
    if leader:
        return PortRefusal(status, f"this replica is not the leader; ask {leader}", str(leader))
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    return PortRefusal(status, f"{error} ({status})")
