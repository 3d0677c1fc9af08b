"""Rounds of a list and a watch against a server in memory, whose history may be restored."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from copy import copy
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.handlers import reflector as reflector_module
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.reflector import (
    LargeEvent,
    ListWithoutEnd,
    Reflector,
    StreamRefused,
    WatchError,
)
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.memory import MemoryUse
from stellwerk.metrics import Metrics
from stellwerk_kube.errors import ApiError, NotAList, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.memory_client import MemoryClient

PODS = WATCHED[0]


class Events(WatchHandlers):
    """Remembers which pods there are, and at which version."""

    def __init__(self) -> None:
        self.pods: dict[str, str] = {}
        self.unlisted: list[str] = []
        """What was said of a first list that was not complete."""
        self.prepared: list[tuple[str, str, list[str]]] = []
        """(kind, name, pods known by then) of each object that was parsed ahead."""

    @override
    def prepare(self, kind: str, obj: JsonObject) -> object:
        self.prepared.append((kind, obj["metadata"]["name"], list(self.pods)))
        return None

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        metadata = obj["metadata"]
        if event_type == "DELETED":
            del self.pods[metadata["name"]]
        else:
            self.pods[metadata["name"]] = metadata["resourceVersion"]

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((event_type, obj))

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((kind, event_type, obj))

    @override
    def on_synced(self, kind: str) -> None:
        assert kind == "Pod"

    @override
    def on_unlisted(self, kind: str, state: str) -> None:
        assert kind == "Pod"
        self.unlisted.append(state)


class Server(MemoryClient):
    """Pods with one history, which `restore` exchanges for an older one."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 100
        self.history: list[tuple[int, JsonObject]] = []
        self.asked: list[str] = []
        self.answer: Any = None
        """In place of each list, unless it is None."""
        self.error: ApiError | None = None
        self.noise: list[Any] = []
        """Sent once, before what a stream sends last."""
        self.streams_lists = True
        """Whether a watch may begin with a list."""
        self.before_the_end: list[Any] = []
        """Sent by a stream after what is listed, before the bookmark that ends the list."""
        self.silence: Callable[[], None] | None = None
        """Called before a stream ends, to let time pass."""
        self.opened = 0
        """Streams so far."""
        self.pages = 0
        """Lists that were read by pages so far."""

    def change(self, event_type: str, name: str) -> None:
        self.version += 1
        version = str(self.version)
        metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": version}
        obj = {"metadata": metadata}
        self.history.append((self.version, {"type": event_type, "object": obj}))

    def restore(self, changes: int) -> None:
        del self.history[-changes:]
        self.version -= changes

    def pods(self) -> dict[str, JsonObject]:
        live: dict[str, JsonObject] = {}
        for _, event in self.history:
            obj = event["object"]
            if event["type"] == "DELETED":
                del live[obj["metadata"]["name"]]
            elif event["type"] in {"ADDED", "MODIFIED"}:
                live[obj["metadata"]["name"]] = obj
        return live

    @override
    async def get(self, path: str) -> JsonObject:
        self.asked.append("version" if path.endswith("?limit=1") else "list")
        if self.error is not None:
            raise self.error
        metadata = {"resourceVersion": str(self.version)}
        self.pages += self.asked[-1] == "list"
        page = {"kind": "PodList", "metadata": metadata, "items": list(self.pods().values())}
        return page if self.answer is None else self.answer

    def watch(self, since: str | None) -> AbstractAsyncContextManager[AsyncIterator[Any]]:
        return aclosing(self._events(since))

    async def _events(self, since: str | None) -> AsyncGenerator[Any, None]:
        """A list, if it is asked for, what has happened since, and the end of the stream."""
        if self.error is not None:
            raise ConnectionError(str(self.error))
        if since is None and not self.streams_lists:
            raise StreamRefused("sendInitialEvents is forbidden for watch")
        self.opened += 1
        if since is None:
            self.asked.append("list")
            if self.answer is not None:
                yield self.answer
            since = str(self.version)
            for obj in self.pods().values():
                yield {"type": "ADDED", "object": obj}
            for event in self.before_the_end:
                yield event
            yield list_end(since)
        self.asked.append("watch")
        events = [copy(event) for version, event in self.history if version > int(since)]
        noise, self.noise = self.noise, []
        for event in [*events[:-1], *noise, *events[-1:]]:
            yield event
        if self.silence is not None:
            self.silence()


def list_end(version: str) -> JsonObject:
    annotations = {"k8s.io/initial-events-end": "true"}
    metadata = {"resourceVersion": version, "annotations": annotations}
    return {"type": "BOOKMARK", "object": {"metadata": metadata}}


class Bench:
    def __init__(self) -> None:
        self.server = Server()
        self.events = Events()
        self.metrics = Metrics()
        self.seconds = 0.0
        self.delivery = Delivery(
            PODS, self.events, self.metrics, lambda *_: None, lambda: self.seconds
        )
        self.memory = MemoryUse(100 << 20, 1000 << 20)
        self.refusals: list[str] = []
        """What was told of lists that were not streamed."""
        self.stream = Reflector(
            self.delivery,
            self.server,
            self.metrics,
            lambda _, why: self.refusals.append(why),
            lambda: self.memory,
        )

    def round(self) -> list[str]:
        """One round; what the server was asked for."""
        self.server.asked.clear()
        asyncio.run(self.stream.run(self.server.watch))
        return list(self.server.asked)

    def is_true(self) -> bool:
        """Whether the pods known are those that the server has, at their versions."""
        pods = self.server.pods()
        return self.events.pods == {
            name: obj["metadata"]["resourceVersion"] for name, obj in pods.items()
        }


@pytest.fixture(params=[True, False], ids=["a stream lists", "pages list"])
def bench(request: pytest.FixtureRequest) -> Bench:
    bench = Bench()
    bench.server.streams_lists = request.param
    bench.server.change("ADDED", "a")
    bench.round()
    bench.server.change("ADDED", "b")
    bench.server.change("MODIFIED", "b")
    bench.round()
    assert bench.is_true()
    return bench


def test_a_stream_that_ended_goes_on_without_a_list(bench: Bench) -> None:
    bench.server.change("DELETED", "a")
    assert bench.round() == ["version", "watch"]
    assert bench.is_true()
    assert bench.stream.gave_news


def test_a_round_that_repeats_the_last_event_gave_no_news(bench: Bench) -> None:
    assert bench.round() == ["version", "watch"]
    assert not bench.stream.gave_news


def test_a_server_that_is_behind_is_listed_anew(bench: Bench) -> None:
    bench.server.restore(1)
    assert bench.round() == ["version", "list", "watch"]
    assert bench.is_true()
    assert bench.metrics.watch_restores.labels("Pod").value == 1


@pytest.mark.parametrize("changes", [1, 2, 3])
def test_a_server_that_was_restored_and_has_gone_on_is_listed_anew(
    bench: Bench, changes: int
) -> None:
    """Its version says nothing: it has caught up, by other changes."""
    bench.server.restore(2)
    for number in range(1 + changes):
        bench.server.change("ADDED", f"new-{number}")
    bench.round()
    assert bench.stream.must_list
    bench.round()
    assert bench.is_true()
    assert bench.metrics.watch_restores.labels("Pod").value == 1


def test_a_server_that_was_restored_and_is_silent_is_listed_anew(bench: Bench) -> None:
    """It has caught up by changes of other kinds: no pod's event shows that it was restored."""
    bench.server.restore(2)
    bench.server.version += 10
    bench.server.silence = lambda: setattr(bench, "seconds", bench.seconds + 25.0)
    bench.round()
    assert bench.stream.must_list
    bench.server.silence = None
    assert bench.round() == ["list", "watch"]
    assert bench.is_true()
    assert bench.metrics.watch_restores.labels("Pod").value == 1


def test_a_stream_that_ends_at_once_costs_no_list(bench: Bench) -> None:
    restored = bench.server.history[-2:]
    bench.server.restore(2)
    bench.server.version += 10
    bench.round()
    bench.server.history += restored
    assert bench.round() == ["version", "watch"]
    assert bench.metrics.watch_restores.labels("Pod").value == 0


def test_a_silent_stream_that_has_repeated_the_last_event_goes_on(bench: Bench) -> None:
    bench.server.silence = lambda: setattr(bench, "seconds", bench.seconds + 25.0)
    bench.round()
    assert bench.round() == ["version", "watch"]


def test_after_a_bookmark_the_stream_goes_on_from_there(bench: Bench) -> None:
    bench.server.version += 50
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "153"}}}
    bench.server.history.append((bench.server.version, bookmark))
    bench.round()
    bench.server.change("MODIFIED", "a")
    assert bench.round() == ["version", "watch"]
    assert bench.is_true()
    assert bench.metrics.watch_restores.labels("Pod").value == 0


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"kind": "Status", "status": "Success"}, id="a Status"),
        pytest.param([], id="a JSON list"),
        pytest.param({"kind": "PodList", "metadata": {}, "items": []}, id="no version"),
        pytest.param({"kind": "PodList", "metadata": {"resourceVersion": "9"}}, id="no items"),
        pytest.param(
            {"kind": "NodeList", "metadata": {"resourceVersion": "9"}, "items": []},
            id="of another kind",
        ),
        pytest.param(
            {
                "kind": "PodList",
                "metadata": {"resourceVersion": "9"},
                "items": [{"kind": "Node", "metadata": {}}],
            },
            id="items of another kind",
        ),
    ],
)
def test_what_is_no_list_is_refused_and_what_was_known_stays(bench: Bench, answer: Any) -> None:
    bench.server.history.append((999, {"type": "ERROR", "object": {"code": 410}}))
    bench.round()
    assert bench.stream.must_list
    bench.server.history.pop()
    bench.server.answer = answer
    with pytest.raises(NotAList):
        bench.round()
    assert bench.is_true()
    bench.server.answer = None
    assert bench.round() == ["list", "watch"]


def test_gos_empty_list_is_a_list(bench: Bench) -> None:
    bench.server.history.append((999, {"type": "ERROR", "object": {"code": 410}}))
    bench.round()
    bench.server.history.clear()
    bench.server.streams_lists = False
    metadata = {"resourceVersion": "9"}
    bench.server.answer = {"kind": "PodList", "metadata": metadata, "items": None}
    bench.round()
    assert bench.events.pods == {}


def test_an_error_in_the_stream_is_raised_and_followed_by_a_list(bench: Bench) -> None:
    error = {"type": "ERROR", "object": {"code": 500, "message": "internal"}}
    bench.server.history.append((999, error))
    with pytest.raises(WatchError, match="internal"):
        bench.round()
    assert bench.stream.must_list


def test_a_server_that_is_away_costs_no_list(bench: Bench) -> None:
    bench.server.error = Unavailable("list pods", 503, "Unavailable", "away")
    with pytest.raises(Unavailable):
        bench.round()
    bench.server.error = None
    assert bench.round() == ["version", "watch"]


@pytest.mark.parametrize(
    "event",
    [
        pytest.param("text", id="a text"),
        pytest.param({}, id="nothing"),
        pytest.param({"type": "ODD", "object": {"metadata": {}}}, id="an unknown type"),
        pytest.param({"type": "ADDED", "object": None}, id="no object"),
        pytest.param({"type": "ADDED", "object": {"metadata": None}}, id="no metadata"),
        pytest.param({"type": "BOOKMARK", "object": {}}, id="a bookmark of nothing"),
        pytest.param({"type": ["ADDED"], "object": 5}, id="a type that is a list"),
    ],
)
def test_an_odd_event_costs_itself_only(bench: Bench, event: Any) -> None:
    bench.server.change("MODIFIED", "a")
    bench.server.change("ADDED", "after")
    bench.server.noise = [event]
    assert bench.round() == ["version", "watch"]
    assert bench.is_true()
    assert not bench.stream.must_list


def test_a_large_object_is_parsed_ahead_and_delivered_in_its_turn(bench: Bench) -> None:
    bench.round()
    bench.server.change("ADDED", "large")
    version, event = bench.server.history[-1]
    bench.server.history[-1] = (version, LargeEvent(event))
    bench.server.change("MODIFIED", "large")
    bench.round()
    assert bench.is_true()
    assert bench.events.prepared == [("Pod", "large", ["a", "b"])], "before it was delivered"


def test_the_silence_is_counted_from_the_last_sign_of_life(bench: Bench) -> None:
    silence = bench.metrics.watch_silence.labels("Pod")
    bench.seconds = 30.0
    assert silence.current() == 30.0
    bench.round()
    assert silence.current() == 0.0
    bench.server.error = Unavailable("list pods", 503, "Unavailable", "away")
    bench.seconds = 40.0
    with pytest.raises(Unavailable):
        bench.round()
    assert silence.current() == 10.0


def listed(*names: str) -> Bench:
    """A bench whose server streams lists, and has listed these pods."""
    bench = Bench()
    for name in names:
        bench.server.change("ADDED", name)
    bench.round()
    assert bench.is_true()
    return bench


def expire(bench: Bench) -> None:
    """Have the next round begin with a list."""
    bench.server.history.append((999, {"type": "ERROR", "object": {"code": 410}}))
    bench.round()
    assert bench.stream.must_list
    bench.server.history.pop()


def test_the_stream_of_the_first_list_goes_on_as_the_watch() -> None:
    bench = Bench()
    bench.server.change("ADDED", "a")
    bench.server.history.append((999, {"type": "MODIFIED", "object": _pod("a", 999)}))
    assert bench.round() == ["list", "watch"]
    assert bench.events.pods == {"a": "999"}
    assert (bench.server.opened, bench.server.pages) == (1, 0)
    assert bench.metrics.lists.labels("Pod").value == 1


def test_a_later_list_is_applied_when_its_stream_is_closed() -> None:
    """To apply it takes time, in which the stream would be quiet, and be closed for that."""
    bench = listed("a", "b", "c")
    expire(bench)
    bench.server.change("DELETED", "a")
    bench.server.change("MODIFIED", "b")
    bench.server.change("ADDED", "d")
    opened = bench.server.opened
    assert bench.round() == ["list", "watch"]
    assert bench.is_true()
    assert (bench.server.opened, bench.server.pages) == (opened + 2, 0)
    assert bench.metrics.missed_deletions.labels("Pod").value == 1


def test_what_happens_before_the_list_has_ended_is_newer_than_it() -> None:
    bench = listed("a", "b", "c")
    expire(bench)
    bench.server.change("MODIFIED", "b")
    bench.server.before_the_end = [
        {"type": "MODIFIED", "object": _pod("b", 500)},
        {"type": "DELETED", "object": _pod("c", 501)},
        {"type": "DELETED", "object": _pod("a", 502)},
        {"type": "ADDED", "object": _pod("a", 503)},
    ]
    assert bench.round() == ["list", "watch"]
    assert bench.events.pods == {"a": "503", "b": "500"}


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"kind": "Status", "status": "Success"}, id="a Status"),
        pytest.param([], id="a JSON list"),
        pytest.param({"kind": "PodList", "metadata": {}, "items": []}, id="a page"),
        pytest.param({"type": "ODD", "object": {"metadata": {}}}, id="an unknown type"),
        pytest.param({"type": "ADDED", "object": {"kind": "Node"}}, id="another kind"),
        pytest.param(
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}},
            id="a bookmark of no list",
        ),
        pytest.param({"type": "BOOKMARK", "object": None}, id="a bookmark of nothing"),
        pytest.param(list_end(""), id="no version"),
    ],
)
def test_a_stream_that_shows_no_list_deletes_nothing_and_is_followed_by_pages(odd: Any) -> None:
    bench = listed("a", "b")
    expire(bench)
    bench.server.change("DELETED", "a")
    bench.server.answer = odd
    with pytest.raises((NotAList, WatchError)):
        bench.round()
    assert set(bench.events.pods) == {"a", "b"}
    bench.server.answer = None
    assert bench.round() == ["list", "watch"]
    assert bench.is_true()
    assert bench.server.pages == 1
    expire(bench)
    assert bench.round() == ["list", "watch"]
    assert bench.server.pages == 1, "the next list is streamed again"


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({"code": 410, "message": "too old"}, id="410"),
        pytest.param({"code": 500, "message": "RequestWatchProgress is disabled"}, id="etcd 3.4"),
        pytest.param(None, id="no Status"),
    ],
)
def test_an_error_in_place_of_a_list_has_it_read_by_pages_at_once(status: Any) -> None:
    bench = listed("a", "b")
    expire(bench)
    bench.server.change("DELETED", "a")

    async def refused(since: str | None) -> AsyncGenerator[Any, None]:
        if since is None:
            yield {"type": "ERROR", "object": status}
            return
        async with bench.server.watch(since) as events:
            async for event in events:
                yield event

    asyncio.run(bench.stream.run(lambda since: aclosing(refused(since))))
    assert bench.is_true()
    assert bench.server.pages == 1
    told = "410 too old" if status == {"code": 410, "message": "too old"} else "disabled"
    assert len(bench.refusals) == 1
    assert status is None or told in bench.refusals[0]


def test_a_refusal_by_a_server_that_is_away_is_not_told() -> None:
    bench = Bench()
    bench.server.streams_lists = False
    bench.server.error = Unavailable("list pods", 503, "Unavailable", "away")
    with pytest.raises((Unavailable, ConnectionError)):
        bench.round()
    assert bench.refusals == []


def test_a_stream_that_ends_before_its_list_deletes_nothing_and_is_followed_by_pages() -> None:
    bench = listed("a", "b")
    expire(bench)

    async def cut() -> AsyncGenerator[Any, None]:
        yield {"type": "ADDED", "object": bench.server.pods()["a"]}

    with pytest.raises(WatchError, match="ended before the list"):
        asyncio.run(bench.stream.run(lambda _: aclosing(cut())))
    assert bench.is_true()
    bench.round()
    assert bench.is_true()
    assert bench.server.pages == 1


def test_pages_that_fail_are_followed_by_a_stream() -> None:
    bench = listed("a")
    expire(bench)
    bench.server.answer = {"kind": "Status"}
    for _ in range(2):
        with pytest.raises(NotAList):
            bench.round()
    bench.server.answer = None
    bench.round()
    assert bench.is_true()
    assert bench.server.pages == 1


def test_a_server_that_refuses_to_stream_a_list_is_asked_for_pages_at_once() -> None:
    bench = Bench()
    bench.server.streams_lists = False
    bench.server.change("ADDED", "a")
    assert bench.round() == ["list", "watch"]
    assert bench.is_true()
    bench.server.streams_lists = True
    expire(bench)
    bench.round()
    assert bench.server.pages == 1, "it is asked each time: it may be another by now"


def test_a_server_that_is_away_is_asked_for_a_stream_again() -> None:
    bench = listed("a")
    expire(bench)
    bench.server.error = Unavailable("list pods", 503, "Unavailable", "away")
    with pytest.raises(ConnectionError):
        bench.round()
    bench.server.error = None
    assert bench.round() == ["list", "watch"]
    assert bench.server.pages == 0


def test_a_large_object_of_a_list_is_parsed_ahead() -> None:
    bench = listed("a")
    expire(bench)
    bench.server.before_the_end = [LargeEvent({"type": "ADDED", "object": _pod("large", 500)})]
    bench.round()
    assert set(bench.events.pods) == {"a", "large"}
    assert bench.events.prepared == [("Pod", "large", ["a"])]


def _pod(name: str, version: int) -> JsonObject:
    return {"metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version)}}


@pytest.fixture
def three_hundred() -> Bench:
    """A kind that was never listed, with more objects than a page has."""
    bench = Bench()
    for number in range(300):
        bench.server.change("ADDED", f"p{number}")
    return bench


@pytest.mark.parametrize("streams_lists", [True, False])
def test_a_first_list_that_would_fill_the_memory_is_given_up_and_forgotten(
    three_hundred: Bench, *, streams_lists: bool
) -> None:
    bench = three_hundred
    bench.server.streams_lists = streams_lists
    bench.memory = MemoryUse(951 << 20, 1000 << 20)
    with pytest.raises(ListWithoutEnd, match="objects, with 951 of 1000 MiB of memory"):
        bench.round()
    assert (bench.events.pods, bench.delivery.known) == ({}, 0)
    bench.memory = MemoryUse(100 << 20, 1000 << 20)
    bench.round()
    assert bench.is_true()


def test_a_later_list_that_would_fill_the_memory_leaves_what_was_known(
    three_hundred: Bench,
) -> None:
    bench = three_hundred
    bench.round()
    expire(bench)
    bench.server.change("DELETED", "p0")
    bench.memory = MemoryUse(951 << 20, 1000 << 20)
    with pytest.raises(ListWithoutEnd):
        bench.round()
    assert len(bench.events.pods) == 300
    bench.memory = MemoryUse(100 << 20, 1000 << 20)
    bench.round()
    assert bench.is_true()


def test_a_streamed_list_that_takes_too_long_is_read_by_pages(
    monkeypatch: pytest.MonkeyPatch, three_hundred: Bench
) -> None:
    bench = three_hundred
    monkeypatch.setattr(reflector_module, "MAX_STREAM_SECONDS", 0.0)
    with pytest.raises(ListWithoutEnd, match="no end after 1 objects and 0 s"):
        bench.round()
    assert bench.round() == ["list", "watch"]
    assert bench.server.pages == 1
    assert bench.is_true()


def test_how_far_the_first_list_is_and_what_ended_the_one_before_is_told() -> None:
    bench = Bench()
    bench.delivery.not_listed(0, "WatchError: an error")
    bench.delivery.not_listed(250)
    assert bench.events.unlisted == [
        "WatchError: an error",
        "250 objects so far; the one before: WatchError: an error",
    ]
    bench.round()
    bench.delivery.not_listed(500)
    assert len(bench.events.unlisted) == 2, "a later list has nobody wait"


def test_an_event_of_another_kind_ends_the_watch_and_nothing_is_believed(bench: Bench) -> None:
    known = dict(bench.events.pods)
    other = {"type": "MODIFIED", "object": _pod("b", 950) | {"kind": "Node"}}
    bench.server.noise = [other]
    with pytest.raises(WatchError, match="an event of another kind in the stream: 'Node'"):
        bench.round()
    assert bench.events.pods == known
    assert bench.stream.must_list
