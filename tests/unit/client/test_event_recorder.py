"""What the recorder writes, judged by what arrives at a sink, under a virtual clock."""

import asyncio
import time
import timeit
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.client.event_recorder import EventRecorder, EventSink
from stellwerk.metrics import Metrics
from stellwerk.models.object_reference import ObjectReference
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, api_error
from tests.support.machine_speed import addition_seconds
from tests.support.recordings import scenario

pytestmark = pytest.mark.skips_time

WEB = ObjectReference("Pod", "v1", "default", "web", "uid-web", "17")


class Sink(EventSink):
    """Keeps what was written; fails where a test says so."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.patched: list[tuple[str, dict[str, Any]]] = []
        self.failures: list[ApiError] = []
        self.open = asyncio.Event()
        self.open.set()

    @override
    async def write_event(self, namespace: str, event: Mapping[str, Any]) -> None:
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        assert event["metadata"]["namespace"] == namespace
        self.created.append(dict(event))

    @override
    async def patch_event(self, namespace: str, name: str, patch: Mapping[str, Any]) -> None:
        await self.open.wait()
        if self.failures:
            raise self.failures.pop(0)
        assert namespace == "default"
        self.patched.append((name, dict(patch)))


class Bench:
    """A recorder, and everything around it."""

    def __init__(self, **options: Any) -> None:
        self.sink = Sink()
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.recorder = EventRecorder(
            self.sink,
            clock=self.clock,
            metrics=self.metrics,
            jitter=lambda: 0.0,
            host="vm",
            **options,
        )

    def failed(self, regarding: ObjectReference = WEB, note: str = "0/1 nodes") -> None:
        self.recorder.event(
            regarding,
            "Warning",
            "FailedScheduling",
            "Scheduling",
            note,
            reporting_controller="default-scheduler",
        )

    async def written(self) -> None:
        assert await self.recorder.flush(5)

    def dropped(self, reason: str) -> float:
        return self.metrics.events_dropped.labels(reason).value


@asynccontextmanager
async def bench(**options: Any) -> AsyncIterator[Bench]:
    made = Bench(**options)
    made.recorder.start()
    try:
        yield made
    finally:
        made.sink.open.set()
        await made.recorder.close()


async def test_event_is_written_as_kube_scheduler_writes_it() -> None:
    async with bench() as made:
        made.failed()
        await made.written()
    (event,) = made.sink.created
    name = event["metadata"].pop("name")
    assert name.startswith("web.")
    assert int(name.removeprefix("web."), 16) > 0
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-vm",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "default",
            "name": "web",
            "uid": "uid-web",
            "resourceVersion": "17",
        },
        "note": "0/1 nodes",
        "type": "Warning",
    }


async def test_written_fields_are_those_of_the_recorded_events() -> None:
    recorded = scenario("event-series")["schedulerRequests"][0]
    theirs = {field for field in recorded["requestObject"] if not field.startswith("deprecated")}
    async with bench() as made:
        made.failed()
        await made.written()
    assert set(made.sink.created[0]) == theirs
    assert set(made.sink.created[0]["regarding"]) == set(recorded["requestObject"]["regarding"])


async def test_second_occurrence_makes_a_series_and_further_ones_are_only_counted() -> None:
    async with bench() as made:
        made.failed()
        await made.written()
        made.clock.advance(2.5)
        made.failed(note="another note")
        await made.written()
        for _ in range(10):
            made.failed()
        await made.written()
    (event,) = made.sink.created
    assert made.sink.patched == [
        (
            event["metadata"]["name"],
            {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:02.500000Z"}},
        )
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"resource_version": "18"}, id="the object changed"),
        pytest.param({"uid": "uid-2"}, id="it is another object"),
    ],
)
async def test_another_identity_is_another_event(change: dict[str, str]) -> None:
    fields = {"resource_version": "17", "uid": "uid-web"} | change
    other = ObjectReference("Pod", "v1", "default", "web", **fields)
    async with bench() as made:
        made.failed()
        made.failed(other)
        await made.written()
    assert len(made.sink.created) == 2
    assert made.sink.patched == []


async def test_a_repeat_after_six_minutes_is_a_new_event() -> None:
    async with bench() as made:
        made.failed()
        made.clock.advance(361)
        made.failed()
        await made.written()
    assert len(made.sink.created) == 2


async def test_a_repeat_while_the_event_is_being_created_becomes_its_series() -> None:
    async with bench() as made:
        made.sink.open.clear()
        made.failed()
        await asyncio.sleep(0)
        made.failed()
        made.sink.open.set()
        await made.written()
    assert len(made.sink.created) == 1
    assert [patch["series"]["count"] for _, patch in made.sink.patched] == [2]


async def test_the_final_count_is_written_when_a_series_ends() -> None:
    async with bench() as made:
        for _ in range(5):
            made.failed()
            await made.written()
        made.clock.advance(361)
        made.recorder.maintain()
        await made.written()
        made.recorder.maintain()
        await made.written()
    assert [patch["series"]["count"] for _, patch in made.sink.patched] == [2, 5]


async def test_the_count_of_a_long_series_is_refreshed_after_half_an_hour() -> None:
    async with bench() as made:
        for _ in range(32):
            made.failed()
            await made.written()
            made.clock.advance(60)
            made.recorder.maintain()
        await made.written()
    assert [patch["series"]["count"] for _, patch in made.sink.patched] == [2, 32]


async def test_a_series_whose_event_has_expired_is_created_anew() -> None:
    async with bench() as made:
        made.failed()
        await made.written()
        made.sink.failures = [api_error("patch", 404, "NotFound", "gone")]
        made.failed()
        await made.written()
    assert made.sink.created[1]["series"]["count"] == 2
    assert made.sink.created[1]["metadata"] == made.sink.created[0]["metadata"]


async def test_a_refused_event_is_dropped_and_counted() -> None:
    async with bench() as made:
        made.sink.failures = [api_error("create", 403, "Forbidden", "no right")]
        made.failed()
        await made.written()
    assert made.sink.created == []
    assert made.dropped("rejected") == 1


async def test_an_unreachable_api_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stellwerk.client.event_recorder._TRY_AGAIN_SECONDS", 0.001)
    async with bench() as made:
        made.sink.failures = [api_error("create", None, "ClientOSError", "refused")] * 3
        made.failed()
        await made.written()
    assert len(made.sink.created) == 1


async def test_a_lost_answer_of_a_creation_that_got_through_is_no_failure() -> None:
    conflict = api_error("create", 409, "AlreadyExists", "exists")
    conflict.earlier = api_error("create", None, "TimeoutError", "")
    async with bench() as made:
        made.sink.failures = [conflict]
        made.failed()
        await made.written()
    assert made.dropped("rejected") == 0
    assert made.metrics.events_recorded.labels("event").value == 1


async def test_a_full_queue_drops_and_counts() -> None:
    async with bench(queued_events=3, writers=1) as made:
        made.sink.open.clear()
        made.failed(ObjectReference("Pod", "v1", "default", "first", "first"))
        await asyncio.sleep(0)  # the only writer holds it now
        for number in range(10):
            made.failed(ObjectReference("Pod", "v1", "default", "p", f"uid-{number}"))
        assert made.dropped("queue_full") == 7
        made.sink.open.set()
        await made.written()
    assert len(made.sink.created) == 4


async def test_while_no_writer_is_free_the_newest_event_about_a_pod_is_written() -> None:
    async with bench(writers=1) as made:
        made.sink.open.clear()
        made.failed(ObjectReference("Pod", "v1", "default", "other", "uid-other", "1"))
        await asyncio.sleep(0)  # the only writer holds it now
        for version in range(3):
            web = ObjectReference("Pod", "v1", "default", "web", "uid-web", str(version))
            made.failed(web, f"attempt {version}")
        assert made.dropped("superseded") == 2
        made.sink.open.set()
        await made.written()
        await asyncio.sleep(0)  # it is free again
        made.failed(ObjectReference("Pod", "v1", "default", "web", "uid-web", "3"), "attempt 3")
        made.failed(ObjectReference("Pod", "v1", "default", "web", "uid-web", "0"), "attempt 0")
        await made.written()
    notes = [event["note"] for event in made.sink.created]
    assert notes == ["0/1 nodes", "attempt 2", "attempt 3", "attempt 0"]
    assert made.sink.patched == [], "what was never written goes on in no series"


async def test_a_series_that_waits_is_not_superseded() -> None:
    async with bench(writers=1) as made:
        made.failed()
        await made.written()
        made.sink.open.clear()
        made.failed(ObjectReference("Pod", "v1", "default", "other", "uid-other", "1"))
        await asyncio.sleep(0)
        made.failed()
        made.failed(ObjectReference("Pod", "v1", "default", "web", "uid-web", "18"))
        made.sink.open.set()
        await made.written()
    assert len(made.sink.created) == 3
    assert [patch["series"]["count"] for _, patch in made.sink.patched] == [2]


async def test_one_object_cannot_flood() -> None:
    async with bench() as made:
        for version in range(40):
            made.failed(ObjectReference("Pod", "v1", "default", "web", "uid", str(version)))
        made.clock.advance(300)
        made.failed(ObjectReference("Pod", "v1", "default", "web", "uid", "later"))
        made.failed(ObjectReference("Pod", "v1", "default", "web", "uid", "still later"))
        await made.written()
    assert len(made.sink.created) == 26
    assert made.dropped("spam") == 16


async def test_names_differ_within_one_instant() -> None:
    async with bench() as made:
        for number in range(100):
            made.failed(ObjectReference("Pod", "v1", "default", "web", f"uid-{number}"))
        await made.written()
    assert len({event["metadata"]["name"] for event in made.sink.created}) == 100


async def test_names_of_long_objects_stay_legal() -> None:
    async with bench() as made:
        made.failed(ObjectReference("Pod", "v1", "default", "x" * 253, "uid"))
        await made.written()
    assert len(made.sink.created[0]["metadata"]["name"]) == 253


async def test_a_note_is_cut_and_has_no_control_characters() -> None:
    async with bench() as made:
        made.recorder.event(
            ObjectReference("Pod", "v1", "default", "web", "uid"),
            "Warning",
            "FailedScheduling",
            "Scheduling",
            "a\nb\x1b[2J" + "ü" * 1_000,
            reporting_controller="stellwerk",
        )
        await made.written()
    note = made.sink.created[0]["note"]
    assert note.startswith("a b [2Jü")
    assert note.endswith("ü ...")
    assert len(note.encode()) in {1023, 1024}


async def test_close_writes_what_is_left() -> None:
    made = Bench()
    made.recorder.start()
    for number in range(200):
        made.failed(ObjectReference("Pod", "v1", "default", "web", f"uid-{number}"))
    await made.recorder.close()
    assert len(made.sink.created) == 200


async def test_close_does_not_wait_for_ever() -> None:
    made = Bench()
    made.recorder.start()
    made.sink.open.clear()
    made.failed()
    await asyncio.wait_for(made.recorder.close(timeout_seconds=0.05), timeout=60)
    assert made.sink.created == []


async def test_events_that_cannot_be_written_hold_up_the_end_for_a_second_and_are_counted() -> None:
    made = Bench()
    made.recorder.start()
    made.sink.open.clear()
    for number in range(50):
        made.failed(ObjectReference("Pod", "v1", "default", "web", f"uid-{number}"))
    began = asyncio.get_running_loop().time()
    await made.recorder.close()
    assert 0.9 < asyncio.get_running_loop().time() - began < 3
    assert made.dropped("shutdown") == 50


async def test_recording_costs_the_scheduler_a_few_microseconds() -> None:
    made = Bench()
    references = iter(
        [ObjectReference("Pod", "v1", "default", "web", f"uid-{number}") for number in range(9000)]
    )
    rounds = timeit.repeat(
        lambda: made.failed(next(references)), timer=time.thread_time, number=1000, repeat=9
    )
    assert min(rounds) / 1000 < 625 * addition_seconds(), "25 µs where one takes 40 ns"
