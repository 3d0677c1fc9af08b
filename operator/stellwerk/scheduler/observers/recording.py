"""A recording: it listens to an operator, and puts events, decisions and changes into a journal.

`app` has it listen where the operator is to record. Invariant: replaying the entries in their order
brings a World through the same states: what a replay cannot work out again is in the journal, of
decisions on groups also what came between two steps. No entry makes anything wait.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from stellwerk import __version__
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.services import Recorder
from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    Forgotten,
    GroupBegun,
    GroupDecided,
    Head,
    InitialState,
    Nominated,
    PluginState,
    PluginStateGone,
    SnapshotWritten,
    WatchEvent,
    Yielded,
)
from stellwerk.journal.hashing import words_of
from stellwerk.journal.writer import JournalOptions, JournalWriter
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.registry import known_plugins
from stellwerk.scheduler.event_handlers import EventHandlers
from stellwerk.scheduler.extenders.pool import ExtenderPool
from stellwerk.scheduler.schedule_one import ScheduleOne
from stellwerk.world.decide import Decision
from stellwerk.world.extenders import Answer
from stellwerk.world.gangs.group_attempt import GroupRequest
from stellwerk.world.gangs.group_decision import Deciding, GroupDecision, decide_group
from stellwerk.world.profiles import Draw, ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.clock import Clock, rfc3339_milliseconds
from stellwerk_kube.compatibility import Compatibility, patches_text
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_kube.json_values import JsonObject

logger = logging.getLogger(__name__)


class Recording:
    """Listens to an operator; knows which changes follow from entries already in the journal."""

    def __init__(self, writer: JournalWriter, clock: Clock) -> None:
        self._writer = writer
        self.put: Callable[[Entry], None] = writer.put
        self.seconds = clock.monotonic
        """Monotonic time, for the entries."""
        self.in_group = False
        """True while a group is being decided: no part of the journal may end there."""
        self._is_followed = False
        """True while changes follow from an event or a decision that is in the journal."""
        self._held: dict[tuple[str, str, str], JsonObject] = {}
        """The objects that plugins hold in the object store, by kind, namespace and name."""
        self._world: World | None = None

    def listen(
        self,
        world: World,
        handlers: EventHandlers,
        schedule_one: ScheduleOne,
        extenders: ExtenderPool,
    ) -> None:
        """Take down what happens in an operator from now on, before anything has."""
        self._world = world
        world.cache.on_write = self._before_write
        world.cache.on_forgotten = self._forgotten
        world.nominator.on_nominated = self._nominated
        world.objects.on_held = self._hold
        world.objects.on_let_go = self._let_go
        handlers.on_event = self._on_event
        schedule_one.on_decided = self._on_decided
        schedule_one.groups.decide_group = GroupRecording(self).decide_group
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

    def begin_part_where_full(self, world: World) -> None:
        """Begin another part where the newest is full; between two events."""
        if self._writer.wants_layout:
            self._writer.wants_layout = False
            held = [(kind, obj) for (kind, _, _), obj in self._held.items()]
            self.put(layout(world, held))

    def raise_where_ended(self) -> None:
        """Say why the recording has ended early.

        Raises:
            SchedulerError: it has.
        """
        if self._writer.failure:
            raise SchedulerError(f"the recording ended: {self._writer.failure}")

    # --- what the parts of the operator tell ----------------------------------------------------

    @contextmanager
    def _on_event(self, kind: str, event_type: str | None, obj: JsonObject) -> Iterator[None]:
        """Take an event down before it has its effects."""
        self.event(kind, event_type, obj)
        with self._following():
            yield

    @contextmanager
    def _on_decided(self, queued: QueuedPod, decision: Decision) -> Iterator[None]:
        """Take a decision down before it is applied."""
        if self._world is not None and decision.search.profile.extenders is None:
            self.begin_part_where_full(self._world)
        self.decided(queued, decision)
        with self._following():
            yield

    @contextmanager
    def _following(self) -> Iterator[None]:
        self._is_followed = True
        try:
            yield
        finally:
            self._is_followed = False

    def _before_write(self, nodes: int) -> None:
        self.put(SnapshotWritten(nodes))

    def _forgotten(self, uid: str) -> None:
        if not self._is_followed:
            self.put(Forgotten(self.seconds(), uid))

    def _nominated(self, pod: PodInfo, node_name: str) -> None:
        if not self._is_followed and self._world is not None:
            kept_seconds = self._world.nominator.left_seconds(pod.uid)
            self.put(Nominated(self.seconds(), pod.uid, node_name, kept_seconds))

    def _hold(self, kind: str, obj: JsonObject) -> None:
        self._held[_identity(kind, obj)] = obj
        if not self._is_followed:
            self.put(PluginState(kind, obj))

    def _let_go(self, kind: str, obj: JsonObject) -> None:
        identity = _identity(kind, obj)
        if self._held.pop(identity, None) is not None and not self._is_followed:
            self.put(PluginStateGone(*identity))

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


def layout(world: World, held: Sequence[tuple[str, JsonObject]]) -> InitialState:
    """The state of a World beside its objects; `held`: what plugins hold, with their kinds."""
    nominator, snapshot = world.nominator, world.cache.update_snapshot()
    return InitialState(
        nodes=sorted(snapshot.row_of, key=snapshot.row_of.__getitem__),
        assumed=[(uid, pod.node_name) for uid, pod in world.cache.assumed_pods.items()],
        nominated=[(uid, name) for name, pods in nominator.by_node.items() for uid in pods],
        held=held,
    )


def _identity(kind: str, obj: JsonObject) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return kind, metadata.get("namespace") or "", metadata["name"]


def _words_of_plugins() -> frozenset[str]:
    """The names of the plugins that are installed, and the words that their arguments may be."""
    words: set[str] = set()
    for name, described in known_plugins().items():
        words |= {name, *(words_of(described.args_model) if described.args_model else ())}
    return frozenset(words)


@contextmanager
def recording_to(
    options: JournalOptions | None,
    max_pod_complexity: int,
    compatibility: Compatibility,
    clock: Clock,
    recorder: Recorder,
) -> Iterator[Recording | None]:
    """Record into a file for as long as the block lasts; nothing without options.

    `compatibility` is the meaning of `auto` in profiles.

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
        rfc3339_milliseconds(clock.now()),
        hashed=options.hashed,
        max_pod_complexity=max_pod_complexity,
        release=str(compatibility.version),
        feature_gates=str(compatibility.gates),
        patches=patches_text(compatibility.patches),
    )

    def ended(reason: str) -> None:
        loop.call_soon_threadsafe(_announce_end, recorder, options, reason)

    try:
        writer = JournalWriter(options, head, ended, _words_of_plugins())
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


# --- decisions on groups --------------------------------------------------------------------------


class GroupRecorder(Protocol):
    """The journal, as far as groups are concerned."""

    put: Callable[[Entry], None]
    seconds: Callable[[], float]
    in_group: bool

    def begin_part_where_full(self, world: World) -> None:
        """Begin another part where the newest is full."""
        ...


class _Notes:
    """The entries that are put into the journal while one group is decided."""

    def __init__(self, put: Callable[[Entry], None]) -> None:
        self._put = put
        self._steps = self._said = 0
        self._is_changed = False
        """True: something came since the last step."""
        self.draws: list[Draw] = []
        self.overs: list[bool] = []

    def goes_on(self, in_time: bool) -> bool:  # noqa: FBT001 as GroupRequest.goes_on
        self.overs.append(not in_time)
        return in_time

    def step(self, answer: Decision | None) -> None:
        self._steps += 1
        self._is_changed = False
        if answer is not None:
            self.draws += answer.draws

    def put(self, entry: Entry) -> None:
        """Take down what comes between two steps, behind how many there were."""
        if isinstance(entry, SnapshotWritten) and not self._is_changed:
            return  # written for the next member, which a replay decides, too
        self._is_changed = True
        if self._steps != self._said:
            self._said = self._steps
            self._put(Yielded(self._steps))
        self._put(entry)


class GroupRecording:
    """Takes the decisions on groups down: stands in for `decide_group` in the group cycle."""

    def __init__(self, recorder: GroupRecorder) -> None:
        self._recorder = recorder

    def decide_group(self, world: World, profile: ServedProfile, request: GroupRequest) -> Deciding:
        """Decide as the function of that name does; what is decided on the way is not put in."""
        recorder = self._recorder
        recorder.begin_part_where_full(world)
        put, notes = recorder.put, _Notes(recorder.put)
        put(_begun(recorder.seconds(), profile, request))
        deciding = decide_group(world, profile, replace(request, goes_on=notes.goes_on))
        recorder.put, recorder.in_group = _drop, True
        try:
            ask = next(deciding)
            while True:
                recorder.put = notes.put
                answer = yield ask
                recorder.put = _drop
                notes.step(None if ask is None else answer)
                ask = deciding.send(answer)
        except StopIteration as ended:
            decision: GroupDecision = ended.value
        finally:
            recorder.put = _drop
            deciding.close()
            recorder.put, recorder.in_group = put, False
        put(_decided(recorder.seconds(), world, decision, notes))
        return decision


def _drop(_: Entry) -> None:
    """Leave out what follows from the group's own steps."""


def _begun(seconds: float, profile: ServedProfile, request: GroupRequest) -> GroupBegun:
    return GroupBegun(
        seconds,
        profile.scheduler_name,
        list(request.group.key),
        [pod.uid for pod in request.members],
        [pod.uid for pod in request.scheduled],
        request.finished,
        request.reserves_capacity,
        None if request.ending is None else sorted(request.ending),
        dict(request.finished_by_role),
        None if request.known_to_end is None else sorted(request.known_to_end),
        request.keeps_part,
        round((request.moment_seconds or 0.0) * 1000),
    )


def _decided(seconds: float, world: World, decision: GroupDecision, notes: _Notes) -> GroupDecided:
    verdicts = {each.pod.uid: each for each in decision.attempt.results}
    members = []
    for pod in decision.request.members:
        verdict, entry = verdicts.get(pod.uid), world.queue.entries.get(pod.uid)
        assumed = verdict.assumed if verdict is not None and decision.placed else None
        failure = verdict.failure if verdict is not None else None
        node_name = assumed.node_name if assumed is not None else ""
        message = failure.message if failure is not None else ""
        attempts = entry.attempts if entry is not None else 0
        members.append([pod.uid, pod.key, attempts, node_name, message])
    preemption = decision.preemption
    return GroupDecided(
        seconds,
        members,
        decision.placed,
        decision.message,
        [] if preemption is None else [pod.uid for pod in preemption.victims],
        {} if preemption is None else preemption.nodes,
        notes.draws,
        notes.overs,
    )
