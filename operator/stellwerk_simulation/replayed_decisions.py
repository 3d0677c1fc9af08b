"""Decisions made again from what was recorded of them: random numbers, and extenders' answers.

Replays drive it with what came between the members of a group, and between an extender's question
and its answer. Invariants: a decision that waited for extenders goes on exactly where their answers
came, so that it sees what had changed by then; as long as the same comes out, a member of a group
is decided exactly where it was in the recording, between the same events.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from typing_extensions import override

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.handle import RandomNumbers, milliseconds
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.journal.entries import (
    Answered,
    Asked,
    Decided,
    Entry,
    GroupBegun,
    GroupDecided,
    InitialState,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.world.decide import Decision, Failure, requeue
from stellwerk.world.extenders import (
    Answer,
    AnswersMissing,
    Extenders,
    KeptExtenders,
    ReplayedExtenders,
    is_failure,
)
from stellwerk.world.gangs.group_attempt import (
    GroupContext,
    GroupRequest,
    MemberRequest,
    MemberResult,
    decided_at_once,
    undo_attempt,
)
from stellwerk.world.gangs.group_decision import GroupDecision, decide_group
from stellwerk.world.pod_status import LEAVE_NOMINATION
from stellwerk.world.profiles import MOMENT, ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.errors import SchedulerError

_MAX_HELD_ENTRIES: Final = 200_000
"""Entries of a recording that are held until the decision ends to which they belong. No decision
takes longer."""


@dataclass(frozen=True, slots=True)
class PodDecision:
    """A decision that waited for extenders."""

    begun: Asked
    between: Sequence[Entry]
    """Their answers, and what happened meanwhile."""
    end: Decided | None
    """None: there was none, as an extender failed or the journal ends."""


@dataclass(frozen=True, slots=True)
class GroupsDecision:
    """A decision on a group."""

    begun: GroupBegun
    between: Sequence[Entry]
    end: GroupDecided | None


Part: TypeAlias = Entry | PodDecision | GroupsDecision


class DecisionParts:
    """Entries as they come, with all that was recorded of one decision put together.

    Nothing is left out or reordered; only where a decision waited in between is it held back to its
    end, which says what was drawn.
    """

    def __init__(self) -> None:
        self._begun: Asked | GroupBegun | None = None
        self._between: list[Entry] = []

    def take(self, entry: Entry) -> Iterator[Part]:
        """Take an entry, and do what can happen now that it is known."""
        if self._begun is not None:
            if not _ends(self._begun, entry) and len(self._between) < _MAX_HELD_ENTRIES:
                self._between.append(entry)
                return
            whole = self._whole(self._begun, entry)
            self._begun, self._between = None, []
            yield whole
            if isinstance(entry, Answered) or whole.end is entry:
                return
        if isinstance(entry, Asked | GroupBegun):
            self._begun = entry
        else:
            yield entry

    def rest(self) -> Iterator[Part]:
        """The entries left at the end of the journal."""
        if self._begun is not None:
            begun, self._begun = self._begun, None
            yield self._whole(begun, None)

    def _whole(self, begun: Asked | GroupBegun, end: Entry | None) -> PodDecision | GroupsDecision:
        between = self._between
        if isinstance(begun, GroupBegun):
            uids = [row[0] for row in end.members] if isinstance(end, GroupDecided) else None
            decided = end if uids == list(begun.members) else None
            return GroupsDecision(
                begun, between, decided if isinstance(decided, GroupDecided) else None
            )
        if isinstance(end, Answered):
            between = [*between, end]
        is_its = isinstance(end, Decided) and end.uid == begun.uid
        return PodDecision(begun, between, end if is_its and isinstance(end, Decided) else None)


def _ends(begun: Asked | GroupBegun, entry: Entry) -> bool:
    """Whether nothing of a decision that has begun comes after this entry."""
    if isinstance(entry, Decided | GroupBegun | GroupDecided | InitialState):
        return True
    if isinstance(begun, GroupBegun):
        return False
    return isinstance(entry, Asked) or (isinstance(entry, Answered) and is_failure(entry.answer))


class ScriptedNumbers(RandomNumbers):
    """Gives the numbers that were drawn when the decision was recorded."""

    def __init__(self) -> None:
        self.draws: deque[tuple[int, int]] = deque()

    @override
    def randrange(self, stop: int, /) -> int:
        if not self.draws or self.draws[0][1] != stop:
            # By Reserve, which is no part of a decision; or the decision differs, and is compared.
            return 0
        return min(self.draws.popleft()[0], stop - 1)

    def moment(self, now: Callable[[], datetime]) -> int:
        """The time that the decision read when it was recorded, in milliseconds.

        By the clock where none was recorded: it stands at the moment of the entry.
        """
        if not self.draws or self.draws[0][1] != MOMENT:
            return milliseconds(now)
        return self.draws.popleft()[0]


class Asking:
    """A decision of a profile with extenders; goes on with each answer."""

    def __init__(
        self,
        world: World,
        pod: PodInfo,
        profile: ServedProfile,
        state: CycleState,
        extenders: Extenders | None = None,
    ) -> None:
        """Decide up to the first question, if there is any."""
        self._deciding = decide_with_extenders(
            world, pod, profile, extenders or ReplayedExtenders(), state
        )
        self.decision: Decision | None = None
        self.failure = ""
        """The reason for having no decision; empty as long as there may be one."""
        self._step(None)

    @property
    def is_over(self) -> bool:
        """Whether it asks no more."""
        return self.decision is not None or bool(self.failure)

    def answer(self, answer: Answer) -> None:
        """Go on with an answer; nothing happens where none is waited for."""
        if not self.is_over:
            self._step(answer)

    def end(self) -> Decision | None:
        """The decision; None: it asks more than was recorded, or failed, as `failure` says."""
        if not self.is_over:
            self._deciding.close()
            self.failure = "the recorded decision asked its extenders less"
        return self.decision

    def _step(self, answer: Answer) -> None:
        try:
            self._deciding.send(answer)
        except StopIteration as ended:
            self.decision = ended.value
        except (SchedulerError, AnswersMissing) as failure:
            self.failure = str(failure) or type(failure).__name__


_ALL: Final = 1 << 60
_NO_LIMIT_SECONDS: Final = 1e9
"""The time limit of other orders: the recording says where the time was over."""


def request_of(
    world: World, begun: GroupBegun, members: Sequence[QueuedPod], overs: Sequence[bool]
) -> GroupRequest | None:
    """The recorded request of a group; None: the journal does not hold the group."""
    known = world.pod_groups.groups.get(PodGroupKey(*begun.group))
    if known is None or known.group is None:
        return None
    scheduled = [pod for uid in begun.scheduled if (pod := world.cache.pod(uid)) is not None]
    said = deque(overs)
    return GroupRequest(
        known.group,
        [each.pod for each in members],
        scheduled,
        begun.finished,
        begun.finished_by_role,
        _NO_LIMIT_SECONDS,
        begun.keeps_room,
        None if begun.ending is None else frozenset(begun.ending),
        lambda in_time: not said.popleft() if said else in_time,
        None if begun.known_to_end is None else frozenset(begun.known_to_end),
        begun.keeps_part,
        begun.moment_milliseconds / 1000 if begun.moment_milliseconds else None,
    )


class ReplayedGroup:
    """One group that is being decided again."""

    def __init__(
        self,
        world: World,
        profile: ServedProfile,
        request: GroupRequest,
        show: Callable[[Decision], None],
    ) -> None:
        """Go on to the first step; `show` is given the decisions on members that are no trials."""
        self._show = show
        self._world, self._deciding = world, decide_group(world, profile, request)
        self._ask: MemberRequest | None = None
        """The member to be decided; None: a moment that was left to others."""
        self._steps = 0
        self._extenders = KeptExtenders(ReplayedExtenders())
        self._asking: Asking | None = None
        """The decision of the member that waits for extenders."""
        self.decision: GroupDecision | None = None
        self.failure = ""
        """The error that was raised in place of a decision."""
        self._go_on(None)

    @property
    def _is_over(self) -> bool:
        return self.decision is not None or bool(self.failure)

    def until(self, steps: int) -> None:
        """Go on until there were so many steps."""
        while not self._is_over and self._steps < steps:
            ask = self._ask
            if ask is None:
                self._step(None)
            elif self._asks_extenders(ask):
                asking = self._asking or self._begin_asking(ask)
                asking.end()
                self._take_answer(asking)
            else:
                self._decide(ask)

    def asked(self) -> None:
        """The next member begins to wait for extenders."""
        if self._ask is not None and self._asks_extenders(self._ask):
            self._begin_asking(self._ask)

    def answered(self, answer: Answer) -> None:
        """The answer that the member waits for has come."""
        if self._asking is not None:
            self._asking.answer(answer)
            if self._asking.is_over:
                self._take_answer(self._asking)

    def end(self) -> GroupDecision | None:
        """The decision; None: something was raised, as `failure` says."""
        self.until(_ALL)
        self._deciding.close()
        return self.decision

    def _asks_extenders(self, ask: MemberRequest) -> bool:
        return ask.profile.extenders is not None and ask.world is self._world

    def _begin_asking(self, ask: MemberRequest) -> Asking:
        ask.prepare()
        self._asking = Asking(ask.world, ask.pod, ask.profile, ask.state, self._extenders)
        return self._asking

    def _decide(self, ask: MemberRequest) -> None:
        try:
            decision = decided_at_once(ask)
        except SchedulerError as failure:
            self._fail(str(failure))
        else:
            self._step(decision)

    def _take_answer(self, asking: Asking) -> None:
        self._asking = None
        if asking.decision is None:
            self._fail(asking.failure)
        else:
            self._step(asking.decision)

    def _step(self, decision: Decision | None) -> None:
        self._steps += 1
        if decision is not None and self._ask is not None and self._ask.world is self._world:
            self._show(decision)
        self._go_on(decision)

    def _go_on(self, decision: Decision | None) -> None:
        """Hand in a member's decision, where one was asked for, and go on to the next step."""
        try:
            self._ask = next(self._deciding) if decision is None else self._deciding.send(decision)
        except StopIteration as ended:
            self.decision = ended.value
        except SchedulerError as failure:
            self._fail(str(failure))

    def _fail(self, failure: str) -> None:
        self.failure = failure or "no decision"
        self._deciding.close()


class GroupEffects:
    """Carries out a recorded decision on a group, whatever came out again."""

    def __init__(self, world: World, profile: ServedProfile, decided: GroupDecided) -> None:
        self._world, self._profile = world, profile
        self._rows = {row[0]: row for row in decided.members}
        self._message = decided.message

    def apply(
        self, members: Sequence[QueuedPod], made: GroupDecision | None
    ) -> Iterator[tuple[MemberResult, Framework]]:
        """Assume members where they were recorded, requeue the others; yields those with a node."""
        verdicts = self._kept(made)
        for queued in members:
            uid, _, _, node_name, message = self._rows[queued.pod.uid]
            if node_name:
                verdict = verdicts.get(uid) or self._assumed(queued.pod, node_name)
                if verdict is not None:
                    yield verdict, self._profile.framework
                continue
            failure = Failure(message or self._message, nomination=LEAVE_NOMINATION, rejected=True)
            requeue(self._world, queued, failure)

    def _kept(self, made: GroupDecision | None) -> dict[str, MemberResult]:
        """The verdicts whose node is the recorded one; what else is assumed is taken back."""
        if made is None or not made.placed:
            return {}
        placed = {each.pod.uid: each for each in made.attempt.results if each.assumed is not None}
        recorded = {uid: row[3] for uid, row in self._rows.items() if row[3]}
        nodes = {uid: each.assumed.node_name for uid, each in placed.items() if each.assumed}
        if nodes == recorded:
            return placed
        undo_attempt(GroupContext(self._world, self._profile), made.attempt)
        return {}

    def _assumed(self, pod: PodInfo, node_name: str) -> MemberResult | None:
        assumed = pod.with_node(node_name)
        try:
            self._world.cache.assume_pod(assumed)
        except ValueError:
            return None  # an event has shown it bound meanwhile
        self._world.nominator.remove(pod.uid)
        return MemberResult(pod, CycleState(), assumed=assumed)
