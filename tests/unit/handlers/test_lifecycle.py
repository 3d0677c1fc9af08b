"""kopf and our watchers against a small API server."""

import asyncio
import gc
import logging
import os
import re
import signal
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from typing_extensions import override

from stellwerk.framework.watch_handlers import Lack, WatchHandlers
from stellwerk.handlers import lifecycle
from stellwerk.handlers.availability import Availability
from stellwerk.handlers.lifecycle import OperatorOptions, _Seldom, run_operator
from stellwerk.handlers.watched_kinds import WATCHED, WatchedKind
from stellwerk.metrics import Metrics
from stellwerk_kube.errors import SchedulerError
from tests.support.fake_api import client_of, credentials_for
from tests.support.fake_watch import FakeKind, FakeWatchApi, fake_watch_api

pytestmark = pytest.mark.skips_time

PODS, NODES, PROFILES, GROUPS, CLASSES = (
    next(watched for watched in WATCHED if watched.kind == kind)
    for kind in ("Pod", "Node", "SchedulerProfile", "PodGroup", "PriorityClass")
)

Seen = tuple[str, str | None, str]


class Recorded(WatchHandlers):
    """Remembers what the handlers pass on, as (kind, event type, name)."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.synced: list[str] = []
        self.lacks: dict[str, Lack | None] = {}
        self.in_use: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        """By name, the apiVersion that objects said last."""
        self.fail_on: Callable[[Seen], Exception | None] = lambda _: None

    @override
    def on_pod(self, event_type: str | None, obj: dict[str, Any]) -> None:
        self.on_object("Pod", event_type, obj)

    @override
    def on_node(self, event_type: str | None, obj: dict[str, Any]) -> None:
        self.on_object("Node", event_type, obj)

    @override
    def on_object(self, kind: str, event_type: str | None, obj: dict[str, Any]) -> None:
        seen = (kind, event_type, obj["metadata"]["name"])
        if error := self.fail_on(seen):
            raise error
        self.seen.append(seen)
        self.versions[seen[2]] = obj.get("apiVersion", "")

    @override
    def on_lack(self, kind: str, lack: Lack | None) -> None:
        self.lacks[kind] = lack

    @override
    def on_version(self, kind: str, version: str) -> None:
        self.in_use[kind] = version

    @override
    def on_synced(self, kind: str) -> None:
        self.synced.append(kind)

    def live(self, kind: str = "Pod") -> set[str]:
        """Return the names that exist according to what was passed on."""
        names: set[str] = set()
        for seen_kind, event_type, name in self.seen:
            if seen_kind == kind:
                (names.discard if event_type == "DELETED" else names.add)(name)
        return names


async def eventually(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - any condition, and no event to wait for
            await asyncio.sleep(0.01)


@asynccontextmanager
async def operator(
    api: FakeWatchApi,
    directory: Path,
    *watched: WatchedKind,
    metrics: Metrics | None = None,
    on_signal: Callable[[], None] = lambda: None,
    check_seconds: float = 0.2,
) -> AsyncIterator[Recorded]:
    """Run the operator until the block ends."""
    events = Recorded()
    metrics = metrics or Metrics()
    options = OperatorOptions(watched=watched, check_seconds=check_seconds)
    async with client_of(api, directory, metrics=metrics) as client:
        task = asyncio.create_task(
            run_operator(
                events=events,
                client=client,
                credentials=await credentials_for(api, directory),
                metrics=metrics,
                jitter=lambda: 0.0,
                on_signal=on_signal,
                options=options,
            )
        )
        try:
            yield events
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def api() -> AsyncIterator[FakeWatchApi]:
    async with fake_watch_api(PODS, NODES, PROFILES) as api:
        yield api


@pytest.fixture
def pods(api: FakeWatchApi) -> FakeKind:
    return api.kinds["Pod"]


async def test_lists_come_first_and_then_each_change(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    pods.put("a")
    api.kinds["Node"].put("n1")
    async with operator(api, tmp_path, PODS, NODES) as events:
        await eventually(lambda: set(events.synced) == {"Pod", "Node"} and pods.watchers)
        pods.put("b")
        await eventually(lambda: ("Pod", "ADDED", "b") in events.seen)
        pods.put("b")
        pods.delete("a")
        await eventually(lambda: ("Pod", "DELETED", "a") in events.seen)
        await eventually(lambda: ("Pod", "MODIFIED", "b") in events.seen)
    assert events.seen.count(("Pod", None, "a")) == 1
    assert ("Node", None, "n1") in events.seen
    assert sorted(events.synced) == ["Node", "Pod"]


async def test_a_deletion_that_no_watch_reported_is_found(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    metrics = Metrics()
    pods.put("stays")
    pods.put("goes")
    async with operator(api, tmp_path, PODS, metrics=metrics) as events:
        await eventually(lambda: events.live() == {"stays", "goes"} and pods.watchers)
        pods.delete("goes", quiet=True)
        pods.put("comes", quiet=True)
        pods.break_watches(code=410)
        await eventually(lambda: events.live() == {"stays", "comes"})
    assert events.seen.count(("Pod", None, "stays")) == 1
    assert metrics.missed_deletions.labels("Pod").value == 1


async def test_the_sync_comes_after_the_whole_list(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    for number in range(1200):
        pods.put(f"pod-{number}")
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.synced)
        assert len(events.live()) == 1200
        await eventually(lambda: pods.watchers)
    assert (pods.lists, pods.watches) == (1, 1), "one stream is both"


async def test_an_absent_kind_counts_as_synced_and_is_watched_once_it_appears(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    profiles = api.kinds["SchedulerProfile"]
    profiles.exists = False
    async with operator(api, tmp_path, PODS, PROFILES) as events:
        await eventually(lambda: set(events.synced) == {"Pod", "SchedulerProfile"})
        profiles.exists = True
        profiles.put("default")
        await eventually(lambda: events.live("SchedulerProfile") == {"default"})


async def test_a_forbidden_kind_counts_as_synced_and_is_watched_once_it_is_allowed(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    profiles = api.kinds["SchedulerProfile"]
    profiles.forbidden = True
    profiles.put("default")
    async with operator(api, tmp_path, PODS, PROFILES) as events:
        await eventually(lambda: set(events.synced) == {"Pod", "SchedulerProfile"})
        assert events.live("SchedulerProfile") == set()
        profiles.forbidden = False
        await eventually(lambda: events.live("SchedulerProfile") == {"default"})


async def test_an_object_whose_handling_failed_is_read_again(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    metrics = Metrics()
    failures = [RuntimeError("once")]
    async with operator(api, tmp_path, PODS, metrics=metrics) as events:
        await eventually(lambda: pods.watchers and events.synced)
        events.fail_on = lambda _: failures.pop() if failures else None
        pods.put("a")
        await eventually(lambda: "a" in events.live())
    assert metrics.handler_failures.labels("Pod").value == 1


async def test_a_malformed_object_is_counted_and_the_next_one_handled(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    metrics = Metrics()
    pods.put("bad", spec="what")
    pods.put("good")
    async with operator(api, tmp_path, PODS, metrics=metrics) as events:
        events.fail_on = lambda seen: ValueError("spec is a text") if seen[2] == "bad" else None
        await eventually(lambda: events.synced)
        assert events.live() == {"good"}
    assert metrics.malformed_objects.labels("Pod").value >= 1


async def test_only_unfinished_pods_are_asked_for(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.synced and pods.watchers)
    assert api.selectors == {"status.phase!=Succeeded,status.phase!=Failed"}


async def test_a_list_that_breaks_half_way_deletes_nothing_and_syncs_nothing(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    for number in range(1200):
        pods.put(f"pod-{number}")
    pods.fail_pages_from = 1
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: len(events.live()) == 250)
        pods.delete("pod-0", quiet=True)
        lists = pods.lists
        await eventually(lambda: pods.lists > lists)
        assert events.synced == []
        assert "pod-0" in events.live()
        pods.fail_pages_from = None
        await eventually(lambda: events.synced)
        assert len(events.live()) == 1199
    assert ("Pod", "DELETED", "pod-0") in events.seen
    assert events.seen.count(("Pod", None, "pod-1")) == 1


@pytest.mark.parametrize(
    "refusal", [pytest.param(None, marks=pytest.mark.long), 400, 404, 422, 500, 504]
)
async def test_a_server_that_streams_no_lists_is_asked_for_pages(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path, refusal: int | None
) -> None:
    """It refuses to, or ignores what it is asked and never says that the list has ended."""
    ignores = refusal is None
    pods.stream_refusal, pods.ignores_lists = refusal, ignores
    for number in range(600):
        pods.put(f"pod-{number}")
    metrics = Metrics()
    async with operator(api, tmp_path, PODS, metrics=metrics) as events:
        await eventually(lambda: events.synced and pods.watchers)
        assert len(events.live()) == 600
        pods.put("after")
        await eventually(lambda: "after" in events.live())
    assert pods.lists == (2 if ignores else 1), "one of them by pages"
    assert metrics.lists.labels("Pod").value == 1
    assert metrics.watch_failures.labels("Pod").value == (1 if ignores else 0)


@pytest.mark.parametrize(
    "break_it",
    [
        pytest.param(lambda pods: pods.break_watches(), id="the stream ends"),
        pytest.param(lambda pods: pods.break_watches(code=410), id="410 in the stream"),
        pytest.param(lambda pods: pods.break_watches(code=500), id="an error in the stream"),
        pytest.param(lambda pods: pods.send("MODIFIED", {"metadata": None}), id="broken metadata"),
        pytest.param(lambda pods: pods.send("MODIFIED", {}), id="an empty object"),
        pytest.param(lambda pods: pods.send("ODD", {"metadata": {}}), id="an unknown type"),
        pytest.param(lambda pods: pods.send("BOOKMARK", {"metadata": {}}), id="a bookmark"),
    ],
)
async def test_watching_goes_on_after(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path, break_it: Callable[[FakeKind], None]
) -> None:
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: pods.watchers and events.synced)
        break_it(pods)
        await eventually(lambda: pods.watchers)
        pods.put("after")
        await eventually(lambda: events.live() == {"after"})


@pytest.mark.parametrize("code", [400, pytest.param(401, marks=pytest.mark.long), 403, 410, 418])
async def test_a_watch_that_fails_before_its_stream_begins_ends_nothing(
    api: FakeWatchApi,
    pods: FakeKind,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
) -> None:
    monkeypatch.setattr("stellwerk.handlers.lifecycle._LOGIN_PAUSE_SECONDS", 0.1)
    pods.watch_refusal = code
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.synced and pods.watches)
        pods.watch_refusal = None
        await eventually(lambda: pods.watchers)
        pods.put("after")
        await eventually(lambda: events.live() == {"after"})


async def test_a_list_that_is_none_is_refused_until_it_is_one(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    pods.put("a")
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: pods.watchers and events.synced)
        pods.listed_as, lists = "Status", pods.lists
        pods.break_watches(code=410)
        await eventually(lambda: pods.lists > lists + 1)
        assert events.live() == {"a"}
        pods.listed_as = "PodList"
        pods.put("b", quiet=True)
        pods.break_watches(code=410)
        await eventually(lambda: events.live() == {"a", "b"})


async def test_a_core_kind_that_seems_absent_for_a_moment_keeps_what_was_known(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    pods.put("a")
    async with operator(api, tmp_path, PODS, NODES) as events:
        await eventually(lambda: pods.watchers and events.synced)
        pods.exists = False
        pods.break_watches(code=410)
        await asyncio.sleep(1.0)
        assert events.live() == {"a"}
        pods.exists = True
        pods.put("b", quiet=True)
        await eventually(lambda: events.live() == {"a", "b"})
    assert ("Pod", "DELETED", "a") not in events.seen


async def test_a_kind_is_absent_when_discovery_has_said_so_twice(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    profiles = api.kinds["SchedulerProfile"]
    async with client_of(api, tmp_path) as client:
        availability = Availability(client, check_seconds=0.01)
        profiles.misses = 1
        assert await availability.obstacle(PROFILES) is None
        await asyncio.sleep(0.02)  # what was read last is used again for a moment
        profiles.misses = 2
        obstacle = await availability.obstacle(PROFILES)
    assert obstacle is not None
    assert obstacle.absent


async def test_a_kind_that_vanishes_is_empty_and_comes_back(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    profiles = api.kinds["SchedulerProfile"]
    profiles.put("default")
    async with operator(api, tmp_path, PROFILES) as events:
        await eventually(lambda: events.live("SchedulerProfile") == {"default"})
        profiles.exists = False
        profiles.break_watches(code=410)
        await eventually(lambda: events.live("SchedulerProfile") == set())
        profiles.exists = True
        await eventually(lambda: events.live("SchedulerProfile") == {"default"})


async def test_a_kind_that_kopf_overlooked_at_first_is_found(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    """It may appear just between kopf's look and ours."""
    api.hidden_scans = 1
    api.kinds["SchedulerProfile"].put("default")
    async with operator(api, tmp_path, PODS, PROFILES) as events:
        await eventually(lambda: events.live("SchedulerProfile") == {"default"})
        await eventually(lambda: set(events.synced) == {"Pod", "SchedulerProfile"})


async def test_a_silent_watch_is_opened_again_within_half_a_minute(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert lifecycle._INACTIVITY_SECONDS <= 30  # noqa: SLF001 shortened for the test
    monkeypatch.setattr(lifecycle, "_INACTIVITY_SECONDS", 0.5)
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.synced and pods.watchers)
        pods.watchers.clear()  # half-open: no line comes, and no end
        await eventually(lambda: pods.put("seen") and "seen" in events.live())


async def test_watching_goes_on_after_an_outage(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path
) -> None:
    pods.put("before")
    pods.put("gone")
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.live() == {"before", "gone"} and pods.watchers)
        await api.stop()
        await asyncio.sleep(0.5)
        pods.delete("gone")
        await api.start()
        await eventually(lambda: pods.watchers)
        pods.break_watches(code=410)  # the restarted server does not remember the version
        await eventually(lambda: events.live() == {"before"})
        await eventually(lambda: pods.watchers)
        pods.put("after")
        await eventually(lambda: events.live() == {"before", "after"})


async def test_signals_are_ours_also_the_second_one(api: FakeWatchApi, tmp_path: Path) -> None:
    signals: list[str] = []
    async with operator(api, tmp_path, PODS, on_signal=lambda: signals.append("signal")) as events:
        await eventually(lambda: events.synced)
        for count in (1, 2):
            os.kill(os.getpid(), signal.SIGTERM)
            await eventually(lambda: len(signals) == count)  # noqa: B023 - called in this turn


async def test_kopfs_first_session_shares_the_clients_connections_and_the_next_does_not(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    credentials = await credentials_for(api, tmp_path)
    sessions = lifecycle.Sessions(credentials)
    async with credentials.new_session() as client:
        opened = [sessions.open().aiohttp_session.connector for _ in range(2)]
        await sessions.close()
        assert client.connector is not None
        assert not client.connector.closed
        assert [opened[0] is client.connector, opened[1] is client.connector] == [True, False]


async def test_kopf_ending_by_itself_is_an_error(
    api: FakeWatchApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ends(**_: Any) -> list[asyncio.Task[None]]:
        return [asyncio.create_task(asyncio.sleep(0), name="the watches")]

    monkeypatch.setattr("kopf.spawn_tasks", ends)
    async with client_of(api, tmp_path) as client:
        with pytest.raises(SchedulerError, match='"the watches" ended'):
            await run_operator(
                events=Recorded(),
                client=client,
                credentials=await credentials_for(api, tmp_path),
                metrics=Metrics(),
                jitter=lambda: 0.0,
                on_signal=lambda: None,
                options=OperatorOptions(watched=(PODS,)),
            )


async def test_a_start_that_fails_leaves_no_coroutine_unawaited(
    api: FakeWatchApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(**_: Any) -> list[asyncio.Task[None]]:
        raise KeyError("uid not found")

    monkeypatch.setattr("kopf.spawn_tasks", fails)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        async with client_of(api, tmp_path) as client:
            with pytest.raises((KeyError, SchedulerError)):
                await run_operator(
                    events=Recorded(),
                    client=client,
                    credentials=await credentials_for(api, tmp_path),
                    metrics=Metrics(),
                    jitter=lambda: 0.0,
                    on_signal=lambda: None,
                    options=OperatorOptions(watched=(PODS,)),
                )
        gc.collect()
    assert [str(each.message) for each in warned if "never awaited" in str(each.message)] == []


async def test_kopf_is_given_a_name_and_asks_for_no_users(
    api: FakeWatchApi, pods: FakeKind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_: Any) -> NoReturn:
        raise KeyError("getpwuid(): uid not found: 65532")

    monkeypatch.setattr("getpass.getuser", unknown)
    pods.put("a")
    async with operator(api, tmp_path, PODS) as events:
        await eventually(lambda: events.synced and events.live() == {"a"})


@pytest.mark.parametrize(
    ("break_it", "words"),
    [
        pytest.param(
            lambda patch: patch.setattr("stellwerk.handlers.watching.version", lambda _: "1.46.0"),
            "kopf 1.45.* is needed, and kopf 1.46.0 is installed",
            id="version",
        ),
        pytest.param(
            lambda patch: patch.delattr("kopf._cogs.structs.references.Insights"),
            "has no kopf._cogs.structs.references.Insights",
            id="part",
        ),
    ],
)
async def test_an_unknown_kopf_is_an_error_with_one_line(
    api: FakeWatchApi,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    words: str,
) -> None:
    break_it(monkeypatch)
    async with client_of(api, tmp_path) as client:
        with pytest.raises(SchedulerError, match=re.escape(words)) as refused:
            await run_operator(
                events=Recorded(),
                client=client,
                credentials=await credentials_for(api, tmp_path),
                metrics=Metrics(),
                jitter=lambda: 0.0,
                on_signal=lambda: None,
                options=OperatorOptions(watched=(PODS,)),
            )
    assert "\n" not in str(refused.value)


def test_a_time_of_day_that_goes_back_does_not_silence_the_log() -> None:
    times = iter((0.0, 5.0, 11.0))
    seldom = _Seldom(lambda: next(times))
    assert seldom.filter(logging.makeLogRecord({"created": 10_000.0}))
    assert not seldom.filter(logging.makeLogRecord({"created": 20_000.0}))
    assert seldom.filter(logging.makeLogRecord({"created": 6_400.0}))


def serve_groups(api: FakeWatchApi, version: str) -> FakeKind:
    """Have the API serve PodGroups in a version."""
    kind = FakeKind(replace(GROUPS, version=version))
    api.kinds[f"PodGroup/{version}"] = kind
    return kind


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (("v1alpha2",), "v1alpha2"),
        (("v1alpha3", "v1beta1"), "v1beta1"),
        (("v1beta1", "v9"), "v1beta1"),
    ],
)
async def test_a_kind_is_watched_in_the_newest_version_that_can_be_read(
    api: FakeWatchApi, tmp_path: Path, served: tuple[str, ...], chosen: str
) -> None:
    kinds = {version: serve_groups(api, version) for version in served}
    for kind in kinds.values():
        kind.put("g")
    async with operator(api, tmp_path, PODS, GROUPS) as events:
        await eventually(lambda: "PodGroup" in events.synced and events.live("PodGroup"))
        await eventually(lambda: kinds[chosen].watchers)
        assert events.in_use == {"PodGroup": f"scheduling.k8s.io/{chosen}"}
        kinds[chosen].put("h")
        await eventually(lambda: events.live("PodGroup") == {"g", "h"})
    assert events.seen.count(("PodGroup", None, "g")) == 1
    assert events.versions == dict.fromkeys(("g", "h"), f"scheduling.k8s.io/{chosen}")


async def test_a_kind_moves_to_another_version_and_loses_nothing(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    old = serve_groups(api, "v1alpha2")
    for name in ("stays", "goes"):
        old.put(name)
    api.kinds["Pod"].put("p")
    async with operator(api, tmp_path, PODS, GROUPS) as events:
        await eventually(lambda: events.live("PodGroup") == {"stays", "goes"} and old.watchers)
        new = serve_groups(api, "v1beta1")
        new.version = old.version
        new.objects = {
            "stays": {"metadata": dict(old.objects["stays"]["metadata"])},
        }
        new.put("comes", quiet=True)
        old.exists = False
        old.break_watches(code=410)
        await eventually(lambda: events.live("PodGroup") == {"stays", "comes"})
        await eventually(lambda: new.watchers)
        new.put("later")
        await eventually(lambda: "later" in events.live("PodGroup"))
    assert events.versions["stays"] == "scheduling.k8s.io/v1beta1"
    assert ("PodGroup", "DELETED", "stays") not in events.seen
    assert events.seen.count(("PodGroup", "DELETED", "goes")) == 1
    assert api.kinds["Pod"].lists == 1


@pytest.mark.long
async def test_a_kind_moves_though_nobody_ends_its_stream(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    """A version that goes while its watch stays open is left at a reading of discovery."""
    old = serve_groups(api, "v1alpha2")
    old.put("g")
    api.kinds["PriorityClass"] = FakeKind(CLASSES)
    metrics = Metrics()
    watched = (PODS, GROUPS, CLASSES)
    async with operator(api, tmp_path, *watched, metrics=metrics) as events:
        await eventually(lambda: events.live("PodGroup") == {"g"} and old.watchers)
        new = serve_groups(api, "v1beta1")
        new.version, new.objects = old.version, dict(old.objects)
        new.put("h", quiet=True)
        old.exists = False
        await eventually(lambda: events.live("PodGroup") == {"g", "h"})
        old.send("DELETED", old.objects["g"])  # of a server that is left behind
        await eventually(lambda: new.watchers)
        new.put("i")
        await eventually(lambda: "i" in events.live("PodGroup"))
    assert ("PodGroup", "DELETED", "g") not in events.seen
    assert events.versions == dict.fromkeys("ghi", "scheduling.k8s.io/v1beta1")
    assert events.in_use == {"PodGroup": "scheduling.k8s.io/v1beta1"}
    for kind in ("Pod", "PriorityClass"):  # of the same group as the one that moves
        assert metrics.lists.labels(kind).value == 1


async def test_a_kind_that_discovery_alone_does_not_name_is_kept(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    groups = serve_groups(api, "v1beta1")
    groups.put("g")
    async with operator(api, tmp_path, PODS, GROUPS) as events:
        await eventually(lambda: events.live("PodGroup") == {"g"} and groups.watchers)
        groups.misses = 4
        await eventually(lambda: not groups.misses)
        groups.put("h")
        await eventually(lambda: events.live("PodGroup") == {"g", "h"})
    assert (groups.watches, events.lacks.get("PodGroup")) == (1, None)


@pytest.mark.parametrize(
    ("group", "plural", "kind"),
    [
        ("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "apiservices", "APIService"),
    ],
)
async def test_a_kind_is_found_at_once_when_it_is_defined(
    api: FakeWatchApi, tmp_path: Path, group: str, plural: str, kind: str
) -> None:
    defining = api.kinds[kind] = FakeKind(WatchedKind(kind, group, "v1", plural))
    defining.put("of-others")
    loop = asyncio.get_running_loop()
    async with operator(api, tmp_path, PODS, GROUPS, check_seconds=600.0) as events:
        await eventually(lambda: defining.watchers and events.lacks.get("PodGroup"))
        await asyncio.sleep(300)  # the pauses have grown
        serve_groups(api, "v1beta1").put("g")
        began = loop.time()
        defining.put("podgroups")
        await eventually(lambda: events.live("PodGroup") == {"g"})
        assert loop.time() - began < 5
    assert {seen[0] for seen in events.seen} == {"PodGroup"}
    assert defining.lists <= 2


async def test_what_defines_kinds_need_not_be_readable(
    api: FakeWatchApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    definitions = WatchedKind(
        "CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions"
    )
    api.kinds["CustomResourceDefinition"] = defining = FakeKind(definitions)
    defining.forbidden = True
    with caplog.at_level(logging.INFO):
        async with operator(api, tmp_path, PODS, GROUPS) as events:
            await eventually(lambda: events.lacks.get("PodGroup"))
            serve_groups(api, "v1beta1").put("g")
            await eventually(lambda: events.live("PodGroup") == {"g"})
            await asyncio.sleep(10)
    assert caplog.text.count("changes of customresourcedefinitions") == 1


async def test_kinds_are_looked_for_after_a_lost_connection(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    api.kinds["Pod"].put("p")
    loop = asyncio.get_running_loop()
    async with operator(api, tmp_path, PODS, GROUPS, check_seconds=600.0) as events:
        await eventually(lambda: api.kinds["Pod"].watchers and events.lacks.get("PodGroup"))
        await asyncio.sleep(300)
        await api.stop()
        serve_groups(api, "v1beta1").put("g")
        await api.start()
        began = loop.time()
        await eventually(lambda: events.live("PodGroup") == {"g"})
        assert loop.time() - began < 40


async def test_a_version_in_use_is_kept_when_a_newer_one_appears(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    old = serve_groups(api, "v1alpha3")
    old.put("g")
    async with operator(api, tmp_path, PODS, GROUPS) as events:
        await eventually(lambda: events.live("PodGroup") == {"g"} and old.watchers)
        new = serve_groups(api, "v1beta1")
        old.break_watches(code=410)
        await eventually(lambda: old.watchers)
        old.put("h")
        await eventually(lambda: "h" in events.live("PodGroup"))
    assert new.lists == 0


async def test_versions_that_cannot_be_read_are_no_empty_list(
    api: FakeWatchApi, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    serve_groups(api, "v7").put("g")
    with caplog.at_level(logging.WARNING):
        async with operator(api, tmp_path, PODS, GROUPS, metrics=metrics) as events:
            await eventually(lambda: events.lacks.get("PodGroup"))
            reason = (
                "the API serves podgroups of scheduling.k8s.io in v7, and this version of "
                "Stellwerk reads v1, v1beta1, v1alpha3, v1alpha2"
            )
            assert events.lacks["PodGroup"] == Lack(reason, unreadable=True)
            assert metrics.kind_unreadable.labels("PodGroup").value == 1
            await asyncio.sleep(0.5)
            serve_groups(api, "v1beta1").put("g")
            await eventually(lambda: events.live("PodGroup") == {"g"})
            await eventually(lambda: events.lacks["PodGroup"] is None)
            assert metrics.kind_unreadable.labels("PodGroup").value == 0
    assert caplog.text.count("PodGroup is not watched") == 1


async def test_an_absent_group_of_the_api_costs_no_seconds(
    api: FakeWatchApi, tmp_path: Path
) -> None:
    claims = next(watched for watched in WATCHED if watched.kind == "ResourceClaim")
    async with client_of(api, tmp_path) as client:
        began = asyncio.get_running_loop().time()
        obstacle = await Availability(client).obstacle(claims)
        assert asyncio.get_running_loop().time() - began < 1
    assert obstacle is not None
    assert obstacle.absent
