"""What a recording operator puts into its journal: events, decisions, and what comes of them.

`app` builds the operator with these parts where it is to record. Invariant: replaying the entries
in their order brings a World through the same states, and no entry makes anything wait.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from typing_extensions import override

from stellwerk import __version__
from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.clock import Clock
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.explain.queue_facts import rfc3339
from stellwerk.framework.services import Recorder
from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    Forgotten,
    Head,
    Held,
    Layout,
    LetGo,
    Nominated,
    Snapshot,
    WatchEvent,
)
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.models.extender_spec import Extender
from stellwerk.models.json_values import JsonObject
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.extenders.pool import ExtenderPool
from stellwerk.scheduler.observers.group_recording import GroupRecording
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.snapshot.snapshot import Snapshot as Columns
from stellwerk.world.decide import Decision
from stellwerk.world.effects import Effects, apply
from stellwerk.world.extender_answers import Answer, AnswerSink, RecordedExtenders
from stellwerk.world.extenders import Extenders
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


class Recording:
    """Puts entries into a journal; knows which changes follow from entries already there."""

    def __init__(self, writer: JournalWriter, clock: Clock) -> None:
        self._writer = writer
        self.put: Callable[[Entry], None] = writer.put
        self.seconds = clock.monotonic
        """Of an entry."""
        self.is_followed = False
        """Whether changes follow from an event or a decision that is in the journal."""
        self.in_group = False
        """Whether a group is being decided: no part may end there."""
        self._world: World | None = None

    def observe(self, world: World, schedule_one: ScheduleOne, extenders: ExtenderPool) -> None:
        """Take down what is decided, and what extenders answer."""
        self._world = world
        schedule_one.apply = self.apply
        schedule_one.groups.decide_group = GroupRecording(self).decide_group
        if isinstance(extenders, RecordedExtenderPool):
            extenders.sink = self

    @property
    def counts(self) -> Mapping[str, int]:
        """Events that were written so far, by kind."""
        return self._writer.events

    def event(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        """An event, before it is handled."""
        self.put(WatchEvent(self.seconds(), kind, event_type, obj))

    def asked(self, pod: PodInfo) -> None:
        """A decision begins to wait for extenders."""
        if self._world is not None and not self.in_group:
            self.begin_part_where_full(self._world)
        self.put(Asked(self.seconds(), pod.uid))

    def answered(self, answer: Answer) -> None:
        """The extenders' answer has come."""
        self.put(Answered(answer))

    def apply(self, world: World, queued: QueuedPod, decision: Decision) -> Effects:
        """Take a decision down, and apply it."""
        if decision.search.profile.extenders is None:
            self.begin_part_where_full(world)
        self.decided(queued, decision)
        self.is_followed = True
        try:
            return apply(world, queued, decision)
        finally:
            self.is_followed = False

    def begin_part_where_full(self, world: World) -> None:
        """Begin another part where the newest is full; between two events."""
        if self._writer.wants_layout:
            self._writer.wants_layout = False
            self.put(layout(world))

    def raise_where_ended(self) -> None:
        """Say why the recording has ended early.

        Raises:
            SchedulerError: it has.
        """
        if self._writer.failure:
            raise SchedulerError(f"the recording ended: {self._writer.failure}")

    def decided(self, queued: QueuedPod, decision: Decision) -> None:
        """A decision, before it is applied."""
        search, failure, candidate = decision.search, decision.failure, decision.candidate
        pod = queued.pod
        self.put(
            Decided(
                self.seconds(),
                pod.uid,
                pod.key,
                search.profile.scheduler_name,
                queued.attempts,
                decision.node_name,
                failure.nomination.node_name if failure is not None else "",
                () if candidate is None else [victim.uid for victim in candidate.victims],
                failure.message if failure is not None else "",
                # What Reserve draws is no part of the decision.
                decision.draws[:],
            )
        )


def layout(world: World) -> Layout:
    """The state of a World beside its objects."""
    nominator, snapshot = world.nominator, world.cache.update_snapshot()
    return Layout(
        nodes=sorted(snapshot.row_of, key=snapshot.row_of.__getitem__),
        assumed=[(uid, pod.node_name) for uid, pod in world.cache.assumed_pods.items()],
        nominated=[(uid, name) for name, pods in nominator.by_node.items() for uid in pods],
        held=list(world.objects.held()) if isinstance(world.objects, RecordedObjects) else (),
    )


class RecordedExtenderPool(ExtenderPool):
    """Extenders whose answers are taken down."""

    sink: AnswerSink

    @override
    def serve(self, wanted: Mapping[str, Sequence[Extender]]) -> Mapping[str, Extenders]:
        served = super().serve(wanted)
        return {name: RecordedExtenders(extenders, self.sink) for name, extenders in served.items()}


class RecordedCache(Cache):
    """A cache that says when its snapshot was written, and what was forgotten."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    @override
    def forget_pod(self, uid: str) -> PodInfo | None:
        forgotten = super().forget_pod(uid)
        if forgotten is not None and not self.recording.is_followed:
            self.recording.put(Forgotten(self.recording.seconds(), uid))
        return forgotten

    @override
    def update_snapshot(self) -> Columns:
        if self.is_dirty:
            self.recording.put(Snapshot())
        return super().update_snapshot()


class RecordedObjects(IndexedObjectStore):
    """An object store that says what plugins hold in it, beside decisions."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording
        self._held: dict[tuple[str, str, str], JsonObject] = {}

    def held(self) -> Iterator[tuple[str, JsonObject]]:
        """(kind, object) of all that plugins hold."""
        return ((kind, obj) for (kind, _, _), obj in self._held.items())

    @override
    def hold(self, kind: str, obj: JsonObject) -> None:
        super().hold(kind, obj)
        self._held[_identity(kind, obj)] = obj
        if not self.recording.is_followed:
            self.recording.put(Held(kind, obj))

    @override
    def let_go(self, kind: str, obj: JsonObject) -> None:
        super().let_go(kind, obj)
        identity = _identity(kind, obj)
        if self._held.pop(identity, None) is not None and not self.recording.is_followed:
            self.recording.put(LetGo(*identity))


def _identity(kind: str, obj: JsonObject) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return kind, metadata.get("namespace") or "", metadata["name"]


class RecordedNominator(Nominator):
    """A nominator that says what neither events nor decisions changed."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    @override
    def nominate(self, pod: PodInfo, node_name: str) -> None:
        super().nominate(pod, node_name)
        if not self.recording.is_followed:
            self.recording.put(Nominated(self.recording.seconds(), pod.uid, node_name))


@dataclass(slots=True, eq=False)
class RecordedEventHandlers(EventHandlers):
    """Event handlers that put every event into the journal before it has its effects."""

    recording: Recording = field(kw_only=True)

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        recording = self.recording
        recording.event("Pod", event_type, obj)
        recording.is_followed = True
        try:
            EventHandlers.on_pod(self, event_type, obj)
        finally:
            recording.is_followed = False

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        self.recording.event("Node", event_type, obj)
        EventHandlers.on_node(self, event_type, obj)

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        recording = self.recording
        recording.event(kind, event_type, obj)
        recording.is_followed = True
        try:
            EventHandlers.on_object(self, kind, event_type, obj)
        finally:
            recording.is_followed = False


@contextmanager
def recording_to(
    options: JournalOptions | None, max_pod_complexity: int, clock: Clock, recorder: Recorder
) -> Iterator[Recording | None]:
    """Record into a file for as long as the block lasts; nothing without options.

    A recording that ends early, as on a full disk, says so in an event of the namespace default.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    if options is None:
        yield None
        return
    loop = asyncio.get_running_loop()
    head = Head(
        __version__,
        rfc3339(clock.now()),
        hashed=options.hashed,
        max_pod_complexity=max_pod_complexity,
    )

    def ended(reason: str) -> None:
        loop.call_soon_threadsafe(_announce_end, recorder, options, reason)

    try:
        writer = JournalWriter(options, head, ended)
    except OSError as error:
        raise ConfigurationError(f"--record {options.file}: {error.strerror}") from error
    logger.info("recording to %s", options.file)
    try:
        yield Recording(writer, clock)
    finally:
        writer.close()


def _announce_end(recorder: Recorder, options: JournalOptions, reason: str) -> None:
    recorder.event(
        ObjectReference("Namespace", "v1", "default", "default", ""),
        "Warning",
        "RecordingEnded",
        "Recording",
        f"recording to {options.file.name} ended: {reason}",
        reporting_controller="stellwerk",
    )
