"""Journal entries of a recording operator about decisions on groups.

It stands in for `decide_group` in the group cycle. Invariant: what a replay cannot work out again
is in the journal: what was asked for, what came between two steps, random numbers, and
whether there was time.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from stellwerk.journal.entries import Entry, GroupBegun, GroupDecided, SnapshotWritten, Yielded
from stellwerk.world.decide import Decision
from stellwerk.world.gangs.group_decision import Deciding, GroupDecision, decide_group
from stellwerk.world.gangs.group_request import GroupRequest
from stellwerk.world.profiles import Draw, ServedProfile
from stellwerk.world.world import World


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
        """Whether anything came since the last step."""
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
    """Takes the decisions on groups down."""

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
