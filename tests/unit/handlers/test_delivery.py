"""One kind's delivery, driven by hand; a property holds it equal to a plain model of a store."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.handlers.delivery import MAX_NAMED_PER_MINUTE, Delivery, KnownObject, KnownObjects
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Callable

    from stellwerk.handlers.watched_kinds import WatchedKind
    from stellwerk_kube.json_values import JsonObject

PODS = WATCHED[0]


class Events(WatchHandlers):
    def __init__(self) -> None:
        self.seen: list[tuple[str | None, JsonObject]] = []
        self.synced: list[str] = []
        self.applying: list[tuple[int, bool]] = []
        """How many events there had been when a list began to be applied, and when it was."""
        self.error: Callable[[], Exception | None] = lambda: None

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        if error := self.error():
            raise error
        self.seen.append((event_type, obj))

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((event_type, obj))

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((kind, event_type, obj))

    @override
    def on_synced(self, kind: str) -> None:
        self.synced.append(kind)

    @override
    def on_relist(self, kind: str, *, applying: bool) -> None:
        self.applying.append((len(self.seen), applying))


class AnyKind(Events):
    """Takes events of other kinds, too."""

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        self.seen.append((event_type, obj))


class Bench:
    def __init__(self, watched: WatchedKind = PODS) -> None:
        self.events = Events()
        self.metrics = Metrics()
        self.marked: list[tuple[str, KnownObject]] = []
        self.delivery = Delivery(
            watched, self.events, self.metrics, lambda _, uid, obj: self.marked.append((uid, obj))
        )

    def listing(self, *objects: JsonObject) -> None:
        self.delivery.begin_listing()
        for obj in objects:
            self.delivery.listed(obj)
        asyncio.run(self.delivery.end_listing())

    def seen(self) -> list[tuple[str | None, str]]:
        return [(event_type, obj["metadata"]["uid"]) for event_type, obj in self.events.seen]


def pod(uid: str, version: int = 1) -> JsonObject:
    return {
        "metadata": {
            "uid": uid,
            "name": f"pod-{uid}",
            "namespace": "default",
            "resourceVersion": str(version),
        }
    }


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_an_echo_is_told_once(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.deliver(None, pod("a", 1))
    bench.delivery.deliver("MODIFIED", pod("a", 1))
    assert bench.seen() == [("ADDED", "a")]


def test_a_deletion_is_told_once(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.deliver("DELETED", pod("a", 2))
    bench.delivery.deliver("DELETED", pod("a", 2))
    assert bench.seen() == [("ADDED", "a"), ("DELETED", "a")]


def test_what_a_list_does_not_show_is_gone_with_metadata_alone(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.begin_listing()
    asyncio.run(bench.delivery.end_listing())
    event_type, obj = bench.events.seen[-1]
    assert event_type == "DELETED"
    assert obj == pod("a", 1)
    assert bench.delivery.known == 0


def test_a_listing_begun_again_forgets_what_the_broken_one_had_met(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.begin_listing()
    bench.delivery.deliver(None, pod("a", 1))
    bench.delivery.begin_listing()
    asyncio.run(bench.delivery.end_listing())
    assert bench.seen()[-1] == ("DELETED", "a")


def test_an_item_of_a_slow_list_does_not_undo_what_the_watch_said(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("changed", 1))
    bench.delivery.deliver("ADDED", pod("deleted", 1))
    bench.delivery.begin_listing()
    bench.delivery.deliver("MODIFIED", pod("changed", 5))
    bench.delivery.deliver("DELETED", pod("deleted", 6))
    bench.delivery.deliver("ADDED", pod("new", 7))
    bench.delivery.listed(pod("changed", 1))
    bench.delivery.listed(pod("deleted", 1))
    asyncio.run(bench.delivery.end_listing())
    assert bench.seen()[2:] == [("MODIFIED", "changed"), ("DELETED", "deleted"), ("ADDED", "new")]
    assert bench.delivery.known == 2


def test_synced_once(bench: Bench) -> None:
    for _ in range(3):
        bench.delivery.begin_listing()
        asyncio.run(bench.delivery.end_listing())
    assert bench.events.synced == ["Pod"]
    assert bench.metrics.kind_synced.labels("Pod").value == 1


def test_an_absent_kind_is_empty_and_told_once_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.delivery.deliver("ADDED", pod("a"))
    for _ in range(3):
        bench.delivery.unavailable("the API serves no pods", absent=True)
    assert bench.seen() == [("ADDED", "a"), ("DELETED", "a")]
    assert caplog.messages == ["Pod is not watched: the API serves no pods"]


def test_a_right_that_is_withdrawn_makes_nothing_vanish(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a"))
    bench.delivery.unavailable("the role lacks the right to list pods", absent=False)
    assert bench.seen() == [("ADDED", "a")]


def test_a_kind_that_is_not_watched_grows_old_only_if_something_of_it_is_known() -> None:
    now_seconds = [0.0]
    deliveries = {
        watched.kind: Delivery(
            watched, AnyKind(), Metrics(), lambda *_: None, now_seconds=lambda: now_seconds[0]
        )
        for watched in WATCHED
        if watched.kind in {"Pod", "Service", "PodGroup"}
    }
    deliveries["Service"].deliver("ADDED", pod("known"))
    for delivery in deliveries.values():
        delivery.unavailable("the role lacks the right to list them", absent=False)
    now_seconds[0] = 100.0
    silences = {kind: delivery.silence_seconds() for kind, delivery in deliveries.items()}
    assert silences == {"Pod": 100.0, "Service": 100.0, "PodGroup": 0.0}


def test_pods_that_cannot_be_listed_are_never_taken_for_synced_others_are() -> None:
    """Without pods every node would look empty."""
    for watched in WATCHED:
        bench = Bench(watched)
        bench.delivery.unavailable("the role lacks the right to list them", absent=False)
        expected = [] if watched.kind in {"Pod", "Node"} else [watched.kind]
        assert bench.events.synced == expected


def test_what_was_known_serves_until_a_later_list_is_complete(bench: Bench) -> None:
    bench.listing(pod("a", 1), pod("b", 1))
    bench.delivery.begin_listing()
    bench.delivery.listed(pod("a", 2))
    bench.delivery.listed(pod("c", 3))
    assert bench.seen() == [(None, "a"), (None, "b")]
    asyncio.run(bench.delivery.end_listing())
    assert sorted(bench.seen()[2:], key=str) == [("DELETED", "b"), (None, "a"), (None, "c")]


def test_nothing_is_decided_between_the_first_change_of_a_later_list_and_the_last(
    bench: Bench,
) -> None:
    first = [pod(f"{number}", 1) for number in range(200)]
    bench.listing(*first)
    assert bench.events.applying == []
    bench.listing(*[pod(f"{number}", 2) for number in range(100, 300)])
    assert bench.events.applying == [(200, True), (500, False)]
    bench.listing(*[pod(f"{number}", 2) for number in range(100, 300)])
    assert len(bench.events.applying) == 2  # nothing changed


async def test_an_event_overtakes_a_list_that_is_being_applied(bench: Bench) -> None:
    delivery = bench.delivery
    names = [f"{number}" for number in range(100)]
    for name in names:
        delivery.deliver("ADDED", pod(name, 1))
    delivery.begin_listing()
    for name in names:
        delivery.listed(pod(name, 1))
    await delivery.end_listing()
    delivery.begin_listing()
    for name in names[:90]:
        delivery.listed(pod(name, 5))
    applying = asyncio.create_task(delivery.end_listing())
    await asyncio.sleep(0)
    delivery.deliver("MODIFIED", pod("89", 9))
    delivery.deliver("MODIFIED", pod("99", 9))
    await applying
    versions = {
        obj["metadata"]["uid"]: obj["metadata"]["resourceVersion"]
        for event_type, obj in bench.events.seen
    }
    assert versions["89"] == "9"
    assert ("DELETED", "99") not in bench.seen()
    assert ("DELETED", "98") in bench.seen()


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param({}, id="empty"),
        pytest.param({"metadata": None}, id="no metadata"),
        pytest.param({"metadata": {"name": "a"}}, id="no uid"),
        pytest.param({"metadata": "text"}, id="metadata is a text"),
        pytest.param([], id="a list"),
        pytest.param("text", id="a text"),
        pytest.param({"metadata": pod("a")["metadata"] | {"uid": ["a"]}}, id="uid"),
        pytest.param({"metadata": pod("a")["metadata"] | {"name": {}}}, id="odd name"),
        pytest.param({"metadata": pod("a")["metadata"] | {"resourceVersion": 1}}, id="odd version"),
    ],
)
def test_an_object_without_identity_is_counted_named_once_and_skipped(
    bench: Bench, caplog: pytest.LogCaptureFixture, obj: Any
) -> None:
    bench.delivery.deliver("ADDED", obj)
    bench.listing(obj, pod("good"))
    assert bench.seen() == [(None, "good")]
    assert bench.metrics.malformed_objects.labels("Pod").value == 2
    assert len(caplog.messages) == 1


def test_an_object_that_cannot_be_read_is_named_counted_and_not_read_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.events.error = lambda: ValueError('quantities\nmust match "1"')
    bench.delivery.deliver("ADDED", pod("a"))
    assert caplog.messages == [
        'Pod default/pod-a is malformed and skipped: quantities must match "1"'
    ]
    assert bench.metrics.malformed_objects.labels("Pod").value == 1
    assert bench.marked == []


def test_the_log_names_few_of_very_many_malformed_objects(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.events.error = lambda: ValueError("no spec")
    for number in range(1000):
        bench.delivery.deliver("ADDED", pod(f"{number}"))
    assert len(caplog.messages) == MAX_NAMED_PER_MINUTE + 1
    assert "counted, and not named for a minute" in caplog.messages[-1]
    assert bench.metrics.malformed_objects.labels("Pod").value == 1000


def test_a_failed_event_is_logged_counted_and_marked(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.events.error = lambda: RuntimeError("a bug")
    bench.delivery.deliver("ADDED", pod("a"))
    assert "Pod default/pod-a: handling an event failed" in caplog.text
    assert "RuntimeError: a bug" in caplog.text
    assert bench.metrics.handler_failures.labels("Pod").value == 1
    assert bench.marked == [("a", KnownObject("default", "pod-a", "1"))]


def test_the_same_version_is_told_again_after_a_failure(bench: Bench) -> None:
    errors: list[Exception] = [RuntimeError("once")]
    bench.events.error = lambda: errors.pop() if errors else None
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.deliver("MODIFIED", pod("a", 1))
    bench.delivery.deliver("MODIFIED", pod("a", 1))
    assert bench.seen() == [("MODIFIED", "a")]


def test_what_fails_twice_at_the_same_version_is_given_up_until_it_changes(bench: Bench) -> None:
    bench.events.error = lambda: RuntimeError("always")
    bench.delivery.deliver("ADDED", pod("a", 1))
    bench.delivery.deliver("MODIFIED", pod("a", 1))
    assert len(bench.marked) == 1
    assert bench.metrics.malformed_objects.labels("Pod").value == 1
    bench.delivery.deliver("MODIFIED", pod("a", 2))
    assert len(bench.marked) == 2


def test_a_deletion_whose_handling_failed_is_told_again(bench: Bench) -> None:
    bench.delivery.deliver("ADDED", pod("a", 1))
    errors: list[Exception] = [RuntimeError("once")]
    bench.events.error = lambda: errors.pop() if errors else None
    bench.delivery.deliver("DELETED", pod("a", 2))
    assert [uid for uid, _ in bench.marked] == ["a"]
    bench.delivery.deliver_tombstone("a")
    assert bench.seen() == [("ADDED", "a"), ("DELETED", "a")]


class Store:
    """What the API server holds, and a delivery that hears of it, or does not."""

    def __init__(self, delivery: Delivery) -> None:
        self.versions: dict[str, int] = {}
        self._delivery = delivery
        self._version = 0

    def put(self, uid: str, *, heard: bool) -> None:
        self._version += 1
        event = "MODIFIED" if uid in self.versions else "ADDED"
        self.versions[uid] = self._version
        if heard:
            self._delivery.deliver(event, pod(uid, self._version))

    def delete(self, uid: str, *, heard: bool) -> None:
        self._version += 1
        if self.versions.pop(uid, None) is not None and heard:
            self._delivery.deliver("DELETED", pod(uid, self._version))

    def list(self, _: str = "", *, heard: bool) -> None:
        """Listed whole if heard, else broken after the first item."""
        self._delivery.begin_listing()
        for uid, version in list(self.versions.items())[: None if heard else 1]:
            self._delivery.listed(pod(uid, version))
        if heard:
            asyncio.run(self._delivery.end_listing())


def settled(given: list[tuple[str | None, JsonObject]]) -> dict[str, str]:
    """Return what a cache would hold after all that; nothing may come twice."""
    seen: dict[str, str] = {}
    for event_type, obj in given:
        uid, version = obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]
        if event_type == "DELETED":
            del seen[uid]
        else:
            assert seen.get(uid) != version
            seen[uid] = version
    return seen


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Store.put, Store.delete, Store.list]),
            st.sampled_from("abcd"),
            st.booleans(),
        ),
        max_size=40,
    )
)
def test_after_a_complete_list_the_sink_holds_what_the_store_holds(
    steps: list[tuple[Callable[..., None], str, bool]],
) -> None:
    bench = Bench()
    store = Store(bench.delivery)
    for step, uid, heard in steps:
        step(store, uid, heard=heard)
    store.list(heard=True)
    expected = {uid: str(version) for uid, version in store.versions.items()}
    assert settled(bench.events.seen) == expected
    assert bench.delivery.known == len(expected)


def test_that_few_clusters_have_a_definition_is_nothing_to_warn_of() -> None:
    assert [watched.kind for watched in WATCHED if watched.optional] == ["CoschedulingPodGroup"]


class Keeping(AnyKind):
    """A sink that keeps a record of each pod."""

    def __init__(self) -> None:
        super().__init__()
        self.record = KnownObject("default", "pod-a", "1")

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> KnownObject:  # type: ignore[override]
        super().on_pod(event_type, obj)
        return self.record


def test_the_record_that_a_sink_keeps_of_a_pod_stands_for_its_identity() -> None:
    events = Keeping()
    delivery = Delivery(PODS, events, Metrics(), lambda *_: None)
    delivery.deliver("ADDED", pod("a"))
    assert delivery._known["a"] is events.record  # noqa: SLF001  (no copy of it)
    delivery.deliver("MODIFIED", pod("a"))
    assert [event_type for event_type, _ in events.seen] == ["ADDED"]
    delivery.begin_listing()
    asyncio.run(delivery.end_listing())
    event_type, gone = events.seen[-1]
    assert (event_type, gone["metadata"]["name"]) == ("DELETED", "pod-a")
    assert not delivery.known


def test_what_is_known_is_kept_in_parts_none_of_which_is_large() -> None:
    known = KnownObjects()
    objects = {f"uid-{number}": KnownObject("ns", f"pod-{number}", "1") for number in range(4000)}
    known.update(objects)
    assert (dict(known), len(known)) == (objects, 4000)
    sizes = [len(part) for part in known._parts]  # noqa: SLF001
    assert max(sizes) < 500, "all of a dict is moved at once when it grows"
    del known["uid-0"]
    assert (known.get("uid-0"), "uid-0" in known, len(set(known))) == (None, False, 3999)
    copied = known.copy()
    copied.forget("uid-1")
    copied.forget("uid-1")
    taken = dict(copied.popitem() for _ in range(3998))
    assert (taken, bool(copied)) == ({uid: objects[uid] for uid in taken}, False)
    assert ("uid-1" in taken, len(known)) == (False, 3999)
