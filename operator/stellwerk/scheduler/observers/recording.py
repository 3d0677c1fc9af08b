"""What a recording operator puts into its journal: events, decisions, and what comes of them.

`app` builds the operator with these parts where it is to record. Invariant: replaying the entries
in their order brings a World through the same states, and no entry makes anything wait.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from typing_extensions import override

from stellwerk import __version__
from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.clock import Clock
from stellwerk.errors import ConfigurationError, SchedulerError
from stellwerk.explain.queue_facts import rfc3339
from stellwerk.framework.services import Recorder
from stellwerk.journal.entries import (
    Decided,
    Forgotten,
    Head,
    Layout,
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
from stellwerk.snapshot.snapshot import Snapshot as Columns
from stellwerk.world.decide import Decision
from stellwerk.world.effects import Effects, apply
from stellwerk.world.extender_answers import RecordedExtenders
from stellwerk.world.extenders import Extenders
from stellwerk.world.world import World

logger = logging.getLogger(__name__)


class Recording:
    """Puts entries into a journal; knows which changes follow from entries already there."""

    def __init__(self, writer: JournalWriter, clock: Clock) -> None:
        self._writer = writer
        self.put = writer.put
        self.seconds = clock.monotonic
        """Of an entry."""
        self.within_event = False
        """Whether changes follow from an event that is in the journal."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Events that were written so far, by kind."""
        return self._writer.events

    def event(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        """An event, before it is handled."""
        self.put(WatchEvent(self.seconds(), kind, event_type, obj))

    def apply(self, world: World, queued: QueuedPod, decision: Decision) -> Effects:
        """Take a decision down, and apply it."""
        self.begin_part_where_full(world)
        extenders = decision.search.profile.extenders
        answers = extenders.answers if isinstance(extenders, RecordedExtenders) else ()
        self.decided(queued, decision, answers)
        return apply(world, queued, decision)

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

    def decided(self, queued: QueuedPod, decision: Decision, answers: Sequence[Any]) -> None:
        """A decision, before it is applied, with what extenders answered for it."""
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
                decision.draws,
                answers,
            )
        )


def layout(world: World) -> Layout:
    """The state of a World beside its objects."""
    nominator, snapshot = world.nominator, world.cache.update_snapshot()
    return Layout(
        nodes=sorted(snapshot.row_of, key=snapshot.row_of.__getitem__),
        assumed=[(uid, pod.node_name) for uid, pod in world.cache.assumed_pods.items()],
        nominated=[(uid, name) for name, pods in nominator.by_node.items() for uid in pods],
    )


class RecordedExtenderPool(ExtenderPool):
    """Extenders whose answers are taken down with the decisions that they lead to."""

    @override
    def serve(self, wanted: Mapping[str, Sequence[Extender]]) -> Mapping[str, Extenders]:
        served = super().serve(wanted)
        return {name: RecordedExtenders(extenders) for name, extenders in served.items()}


class RecordedCache(Cache):
    """A cache that says when its snapshot was written, and what was forgotten."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    @override
    def forget_pod(self, uid: str) -> PodInfo | None:
        forgotten = super().forget_pod(uid)
        if forgotten is not None and not self.recording.within_event:
            self.recording.put(Forgotten(self.recording.seconds(), uid))
        return forgotten

    @override
    def update_snapshot(self) -> Columns:
        if self.is_dirty:
            self.recording.put(Snapshot())
        return super().update_snapshot()


class RecordedNominator(Nominator):
    """A nominator that says what neither events nor decisions changed."""

    def __init__(self, recording: Recording) -> None:
        super().__init__()
        self.recording = recording

    @override
    def nominate(self, pod: PodInfo, node_name: str) -> None:
        super().nominate(pod, node_name)
        if not self.recording.within_event:
            self.recording.put(Nominated(self.recording.seconds(), pod.uid, node_name))


@dataclass(slots=True, eq=False)
class RecordedEventHandlers(EventHandlers):
    """Event handlers that put every event into the journal before it has its effects."""

    recording: Recording = field(kw_only=True)

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        recording = self.recording
        recording.event("Pod", event_type, obj)
        recording.within_event = True
        try:
            EventHandlers.on_pod(self, event_type, obj)
        finally:
            recording.within_event = False

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        self.recording.event("Node", event_type, obj)
        EventHandlers.on_node(self, event_type, obj)

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        recording = self.recording
        recording.event(kind, event_type, obj)
        recording.within_event = True
        try:
            EventHandlers.on_object(self, kind, event_type, obj)
        finally:
            recording.within_event = False


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
