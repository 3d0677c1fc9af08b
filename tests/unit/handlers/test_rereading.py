"""Objects whose handling failed, read again through a scripted client."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typing_extensions import override

from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.rereading import Redelivery, Rereader
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from tests.support.fake_api import Answer, FakeApi, client_of, fake_api, refusal

pytestmark = pytest.mark.skips_time

PODS = WATCHED[0]
METADATA = {"uid": "u", "name": "web", "namespace": "default"}


class Events(WatchHandlers):
    """Fails the first time, then remembers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str | None, str]] = []
        self.failures = 1

    @override
    def on_pod(self, event_type: str | None, obj: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the first time")
        self.seen.append((event_type, obj["metadata"]["resourceVersion"]))

    @override
    def on_node(self, event_type: str | None, obj: dict[str, Any]) -> None:
        raise AssertionError((event_type, obj))

    @override
    def on_object(self, kind: str, event_type: str | None, obj: dict[str, Any]) -> None:
        raise AssertionError((kind, event_type, obj))

    @override
    def on_synced(self, kind: str) -> None:
        raise AssertionError(kind)


@asynccontextmanager
async def reading(directory: Path, *answers: Answer) -> AsyncIterator[tuple[FakeApi, Events]]:
    events = Events()
    async with fake_api() as api, client_of(api, directory) as client:
        api.answers.extend(answers)
        rereader = Rereader(client, delay_seconds=0.01)
        delivery = Delivery(PODS, events, Metrics(), rereader.mark)
        task = asyncio.create_task(rereader.run())
        delivery.deliver("ADDED", {"metadata": METADATA | {"resourceVersion": "5"}})
        yield api, events
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def eventually(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - any condition, and no event to wait for
            await asyncio.sleep(0.005)


async def test_the_object_is_read_and_told(tmp_path: Path) -> None:
    fresh = Answer(body={"metadata": METADATA | {"resourceVersion": "7"}})
    async with reading(tmp_path, fresh) as (api, events):
        await eventually(lambda: events.seen)
    assert events.seen == [("MODIFIED", "7")]
    assert [asked.path for asked in api.asked] == ["/api/v1/namespaces/default/pods/web"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(refusal(404, "gone"), id="it is gone"),
        pytest.param(
            Answer(body={"metadata": METADATA | {"uid": "v", "resourceVersion": "9"}}),
            id="its name belongs to another",
        ),
    ],
)
async def test_an_object_that_is_no_more_is_told_to_be_gone(tmp_path: Path, answer: Answer) -> None:
    async with reading(tmp_path, answer) as (_, events):
        await eventually(lambda: events.seen)
    assert [event_type for event_type, _ in events.seen] == ["DELETED"]


async def test_an_api_that_does_not_answer_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stellwerk.handlers.rereading._RETRY_SECONDS", 0.01)
    fresh = Answer(body={"metadata": METADATA | {"resourceVersion": "7"}})
    async with reading(tmp_path, *[refusal(503, "away")] * 4, fresh) as (_, events):
        await eventually(lambda: events.seen)
    assert events.seen == [("MODIFIED", "7")]


WEB = {"metadata": {"uid": "u1", "namespace": "default", "name": "web", "resourceVersion": "7"}}


class Bench:
    """A delivery of pods, and the way into it."""

    def __init__(self) -> None:
        events = Mock(WatchHandlers)
        self.delivery = Delivery(WATCHED[0], events, Metrics(), lambda *_: None)
        self.redelivery = Redelivery()
        self.redelivery.attach([self.delivery])
        self._events = events

    def seen(self) -> list[tuple[Any, str]]:
        """(event type, uid) of what the handlers were given."""
        calls = self._events.on_pod.mock_calls
        return [(call.args[0], call.args[1]["metadata"]["uid"]) for call in calls]


def test_a_missed_object_is_known_from_then_on() -> None:
    bench = Bench()
    bench.redelivery.put("Pod", WEB)
    bench.delivery.deliver("DELETED", WEB)
    assert bench.seen() == [("ADDED", "u1"), ("DELETED", "u1")]


def test_an_object_is_passed_on_again_in_the_version_that_is_known() -> None:
    bench = Bench()
    bench.delivery.deliver("ADDED", WEB)
    bench.redelivery.put("Pod", WEB)
    bench.delivery.deliver("MODIFIED", WEB)
    assert bench.seen() == [("ADDED", "u1"), ("MODIFIED", "u1")]


def test_a_deletion_is_passed_on_whether_the_object_was_known_or_not() -> None:
    bench = Bench()
    bench.delivery.deliver("ADDED", WEB)
    bench.redelivery.gone("Pod", "u1", "default", "web")
    bench.redelivery.gone("Pod", "u2", "default", "other")
    assert bench.seen() == [("ADDED", "u1"), ("DELETED", "u1"), ("DELETED", "u2")]
    assert bench.delivery.known == 0
