"""The leader is found anew when it is lost, and not with each question while there is none."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from stellwerk.client.operator_port import PortRefusal
from stellwerk.commands import leader_port
from stellwerk.commands.leader_port import LeaderPort
from stellwerk.commands.operator_port import open_port
from stellwerk.commands.port_arguments import PortAddress
from stellwerk.errors import SchedulerError
from stellwerk.models.answers.profile_history import ProfileHistory


class Replica:
    """An operator's port that leads or stands by."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.leads = True
        self.url = ""

    async def handle(self, request: web.Request) -> web.Response:
        if request.path == "/missing":
            return web.json_response({"error": "nothing here"}, status=404)
        if not self.leads:
            return web.json_response({"error": "standby", "leader": "other"}, status=503)
        return web.json_response({"profile": self.name, "revisions": []})


def of(name: str) -> ProfileHistory:
    """The answer of a replica; any kind will do."""
    return ProfileHistory(profile=name, revisions=[])


@asynccontextmanager
async def replica(name: str) -> AsyncIterator[Replica]:
    made = Replica(name)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield made
    finally:
        await runner.cleanup()


class Ways:
    """Leads to the replica that is said to lead, and counts."""

    def __init__(self, *urls: str) -> None:
        self.urls = list(urls)
        self.opened = 0

    @asynccontextmanager
    async def open(self, _: PortAddress) -> AsyncIterator[object]:
        self.opened += 1
        if not self.urls:
            raise SchedulerError("no replica holds the lease")
        url = self.urls.pop(0)
        async with open_port(PortAddress(url=url)) as port:
            yield port


async def test_when_the_leader_changes_the_new_one_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with replica("a") as first, replica("b") as second:
        ways = Ways(first.url, second.url)
        monkeypatch.setattr(leader_port, "open_port", ways.open)
        async with LeaderPort(PortAddress()) as leader:
            assert await leader.get("/queue", ProfileHistory) == of("a")
            assert await leader.post("/what-if", {}, ProfileHistory) == of("a")
            with pytest.raises(PortRefusal, match="nothing here"):
                await leader.get("/missing", ProfileHistory)
            assert ways.opened == 1
            first.leads = False
            assert await leader.get("/queue", ProfileHistory) == of("b")


async def test_when_the_leader_dies_the_new_one_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async with replica("b") as second:
        async with replica("a") as first:
            ways = Ways(first.url, second.url)
            monkeypatch.setattr(leader_port, "open_port", ways.open)
            leader = LeaderPort(PortAddress())
            assert await leader.get("/queue", ProfileHistory) == of("a")
        async with leader:
            assert await leader.get("/queue", ProfileHistory) == of("b")


async def test_without_a_leader_it_is_not_looked_for_with_each_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ways = Ways()
    monkeypatch.setattr(leader_port, "open_port", ways.open)
    async with LeaderPort(PortAddress()) as leader:
        for _ in range(5):
            with pytest.raises(SchedulerError, match="no replica holds"):
                await leader.get("/queue", ProfileHistory)
    assert ways.opened == 1
