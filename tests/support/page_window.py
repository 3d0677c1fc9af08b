"""The page over HTTP, as a browser asks for it; the operator behind it answers as scripted.

Invariant: the operator's answers are those that a test has set, and what it was asked is kept.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from typing_extensions import override

from stellwerk.answers.answer import Kind, codec
from stellwerk.answers.profile_history import AcceptedSpec, ProfileHistory
from stellwerk.client.operator_port import PortRefusal
from stellwerk_cli.page.answers import ApiReader, PodEvent, Port
from stellwerk_cli.page.server import open_page
from stellwerk_kube.errors import NotFound
from stellwerk_kube.json_values import JsonObject
from tests.support.explaining_port import ExplainingPort

NOW = "2026-11-22T10:00:00.000Z"


def empty_answers() -> dict[str, Any]:
    """What an operator answers that has seen nothing yet."""
    queues = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0}
    return {
        "/queue/history": {
            "everySeconds": 5.0,
            "items": [{"at": NOW, "scheduled": 0, **queues}],
        },
        "/queue": {"counts": queues, "total": 0, "items": [], "groups": [], "groupsTotal": 0},
        "/decisions": {"total": 0, "items": []},
        "/nodes": {"total": 0, "items": []},
        "/profiles": {"items": [], "refused": [], "objects": []},
        "/explain/devices": {"total": 0, "held": 0, "items": []},
    }


class ScriptedPort(Port):
    """Answers by path, whatever the query; others are refused with 404."""

    def __init__(self) -> None:
        self.answers = empty_answers()
        self.asked: list[tuple[str, Mapping[str, Any] | None]] = []

    @override
    async def get(self, path: str, kind: type[Kind]) -> Kind:
        return codec(kind).read(await self.ask_json(path, None))

    @override
    async def post(self, path: str, body: Mapping[str, Any], kind: type[Kind]) -> Kind:
        return codec(kind).read(await self.ask_json(path, body))

    async def ask_json(self, path: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
        """The answer as JSON."""
        self.asked.append((path, body))
        answer = self.answers.get(path.partition("?")[0])
        if answer is None:
            raise PortRefusal(404, f"there is nothing at {path} (404)")
        if isinstance(answer, Exception):
            raise answer
        result: dict[str, Any] = answer
        return result


def expected(path: str, status: int, answer: Any) -> dict[str, Any]:
    """The answer, or the refusal that the client makes of it."""
    if status != 200:
        raise PortRefusal(status, f"{answer} {path}")
    result: dict[str, Any] = answer
    return result


class Through(ScriptedPort):
    """The port of an operator in process."""

    def __init__(self, operator: ExplainingPort) -> None:
        super().__init__()
        self._operator = operator

    @override
    async def ask_json(self, path: str, body: Any) -> dict[str, Any]:
        asked = self._operator.get(path) if body is None else self._operator.post(path, body)
        return expected(path, *await asked)


class AcceptedSpecs(ApiReader):
    """An API server with one accepted spec of each profile, and with some pods."""

    def __init__(self, *pods: JsonObject) -> None:
        self._pods = {
            (each["metadata"]["namespace"], each["metadata"]["name"]): each for each in pods
        }

    @override
    async def history(self, profile: str) -> ProfileHistory:
        spec = {"schedulerName": profile[:63], "weights": {"NodeResourcesFit": 3}}
        revision = AcceptedSpec(
            revision=1, generation=1, accepted_at=NOW, scheduled_pods=4, spec=spec, replaced_at=None
        )
        return ProfileHistory(profile=profile, revisions=[revision])

    @override
    async def pod(self, namespace: str, name: str) -> JsonObject:
        if (namespace, name) not in self._pods:
            raise NotFound(
                f"get pod {namespace}/{name}", 404, "NotFound", f'pods "{name}" not found'
            )
        return self._pods[namespace, name]

    @override
    async def events(self, namespace: str, name: str) -> Sequence[PodEvent]:
        message = f"0/3 nodes are available for {name}"
        return [PodEvent(NOW, "Warning", "FailedScheduling", message, 4)]


class Window:
    """A browser's window that was opened with the address that was printed."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self.url = url
        self.operator_url = ""
        """The port of the operator behind the page, where a test has one."""
        self.origin = f"http://{urlsplit(url).netloc}"

    def plain(self) -> aiohttp.ClientSession:
        """The session itself, for what no page does."""
        return self._session

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        """Status and text of a page."""
        status, text, _ = await self.whole(path, **headers)
        return status, text

    async def whole(self, path: str, **headers: str) -> tuple[int, str, Mapping[str, str]]:
        """The same with the headers; names are written with underscores."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self._session.get(self.origin + path, headers=sent) as answer:
            return answer.status, await answer.text(), answer.headers

    async def post(
        self, path: str, form: Mapping[str, str], origin: str | None = None
    ) -> tuple[int, str]:
        """Send a form, by default as the page's own."""
        headers = {"Origin": self.origin if origin is None else origin}
        headers = {name: value for name, value in headers.items() if value}
        async with self._session.post(self.origin + path, data=form, headers=headers) as answer:
            return answer.status, await answer.text()


@asynccontextmanager
async def opened(
    port: Port | None = None, *, with_key: bool = True, api: ApiReader | None = None
) -> AsyncIterator[Window]:
    """Yield a window; without the key it was opened by a stranger."""
    jar = aiohttp.CookieJar(unsafe=True)  # cookies of an address, too
    async with (
        open_page(port or ScriptedPort(), api=api) as url,
        aiohttp.ClientSession(cookie_jar=jar) as session,
    ):
        window = Window(session, url)
        if with_key:
            async with session.get(url) as answer:
                assert (answer.status, str(answer.url)) == (200, f"{window.origin}/")
        yield window
