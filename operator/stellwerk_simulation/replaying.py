"""A journal decided again: the operator's own parts, driven by entries instead of a cluster.

`stellwerk simulate --replay` runs it. Invariant: whatever was recorded has its effects, also where
this version decides otherwise, so that one difference does not make the next.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from typing_extensions import override

from stellwerk.backend.queued_pod import POPPED, ActiveItem, QueuedPod
from stellwerk.explain.queue_facts import rfc3339
from stellwerk.explain.steps import finished
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.runtime import Framework
from stellwerk.journal.entries import (
    Decided,
    Entry,
    Forgotten,
    Head,
    Layout,
    Nominated,
    Snapshot,
    WatchEvent,
)
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.scheduler.extenders.decide import decide_with_extenders
from stellwerk.world.decide import Decision, decide
from stellwerk.world.effects import apply, release, requeue
from stellwerk.world.extender_answers import AnswersMissing, ReplayedExtenders
from stellwerk.world.failure import Failure
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk_simulation.offline_operator import deliver, offline_operator
from stellwerk_simulation.rerunning import at_once

MOST_DIFFERENCES: Final = 1000
"""So many are kept; all are counted."""
_STALE_AFTER: Final = 1000
"""Decisions; the items that were not taken out of activeQ are dropped then."""


class ScriptedNumbers(RandomNumbers):
    """Gives the numbers that were drawn when the decision was recorded."""

    def __init__(self) -> None:
        self.draws: deque[tuple[int, int]] = deque()

    @override
    def randrange(self, stop: int, /) -> int:
        if not self.draws:
            return 0  # a draw more than was recorded: the decision differs, and is compared
        number, _ = self.draws.popleft()
        return min(number, stop - 1)


@dataclass(frozen=True, slots=True)
class Difference:
    """A decision that comes out otherwise now."""

    seconds: float
    key: str
    attempts: int
    recorded: str
    replayed: str


@dataclass(slots=True)
class ReplayResult:
    """What came of a replay."""

    decisions: int = 0
    equal: int = 0
    unknown: int = 0
    """Decisions for pods that the journal does not hold."""
    differences: list[Difference] = field(default_factory=list)
    bound_by_others: int = 0
    """Bindings that another scheduler made, of pods whose arrival the journal holds."""
    among_best: int = 0
    """Those of them whose node is one of the best by the profile."""
    feasible: int = 0
    """Those of them whose node takes the pod at all."""


@dataclass(slots=True)
class _Assumption:
    """What Unreserve needs."""

    framework: Framework
    state: CycleState
    pod: PodInfo


class Replay:
    """An operator without a cluster, to which entries happen one after the other."""

    def __init__(self, head: Head) -> None:
        """Prepare for the entries after the head; needs a running event loop."""
        self._numbers, self._hashed = ScriptedNumbers(), head.hashed
        self.operator, self._clock = offline_operator(head, lambda _: self._numbers)
        self._origin_seconds: float | None = None
        self.world = self.operator.world
        self._assumed: dict[str, _Assumption] = {}
        self.result = ReplayResult()
        self.last: Decision | None = None
        """The newest decision, made on the World as it is."""

    def feed(self, entry: Entry) -> None:
        """Let one entry happen."""
        match entry:
            case WatchEvent():
                self._pass(entry.seconds)
                self._event(entry)
            case Snapshot():
                self.world.cache.update_snapshot()
            case Decided():
                self._pass(entry.seconds)
                self._decided(entry)
            case Forgotten(seconds, uid):
                self._pass(seconds)
                self._forgotten(uid)
            case Nominated(seconds, uid, node_name):
                self._pass(seconds)
                self._nominate(uid, node_name)
            case Layout():
                self._lay_out(entry)
            case Head():
                pass

    def _pass(self, seconds: float) -> None:
        if self._origin_seconds is None:
            self._origin_seconds = seconds
        elapsed = seconds - self._origin_seconds - self._clock.monotonic()
        if elapsed > 0:
            self._clock.advance(elapsed)

    # --- what happened in the cluster -----------------------------------------------------------

    def _event(self, event: WatchEvent) -> None:
        if event.kind == "Pod" and event.event_type != "DELETED":
            self._compare_binding(event)
        deliver(self.operator.handlers, event)
        while self.world.queue.backlog.work_off():
            pass

    def _forgotten(self, uid: str) -> None:
        made = self._assumed.pop(uid, None)
        if made is None:
            self.world.cache.forget_pod(uid)
        else:
            release(self.world, made.framework, made.state, made.pod)
        entry = self.world.queue.entries.get(uid)
        if entry is not None and entry.place in POPPED:
            requeue(self.world, entry, Failure.error("not bound"))

    def _nominate(self, uid: str, node_name: str) -> None:
        entry = self.world.queue.entries.get(uid)
        if entry is not None:
            self.world.queue.nominate(entry.newest, node_name)

    def _lay_out(self, state: Layout) -> None:
        """Assume and nominate what was assumed and nominated where the journal begins."""
        world = self.world
        world.cache.update_snapshot()
        for uid, node_name in state.assumed:
            entry = world.queue.entries.get(uid)
            if entry is not None and world.cache.pod(uid) is None:
                world.cache.assume_pod(entry.newest.with_node(node_name))
        for uid, node_name in state.nominated:
            self._nominate(uid, node_name)

    # --- what was decided -----------------------------------------------------------------------

    def _decided(self, entry: Decided) -> None:
        world, result = self.world, self.result
        result.decisions += 1
        self._assumed.pop(entry.uid, None)
        queued = self._popped(entry.uid)
        profile = None if queued is None else world.profiles.of(queued.pod)
        if queued is None or profile is None:
            result.unknown += 1
            return
        try:
            decision = self._decide(queued.pod, profile, entry.draws, entry.answers)
        except AnswersMissing as missing:
            self._differs(entry, str(missing))
            decision = self._decide(queued.pod, profile, entry.draws)
            self._apply(queued, profile, decision, entry)
            return
        recorded, replayed = _recorded(entry), outcome(decision, hashed=self._hashed)
        if recorded == replayed:
            result.equal += 1
        else:
            self._differs(entry, replayed)
        self._apply(queued, profile, decision, entry)

    def _differs(self, entry: Decided, replayed: str) -> None:
        if len(self.result.differences) < MOST_DIFFERENCES:
            seconds = self._clock.monotonic()
            difference = Difference(seconds, entry.key, entry.attempts, _recorded(entry), replayed)
            self.result.differences.append(difference)

    def _decide(
        self,
        pod: PodInfo,
        profile: ServedProfile,
        draws: Sequence[tuple[int, int]] = (),
        answers: Sequence[Any] | None = None,
    ) -> Decision:
        world = self.world
        world.cache.update_snapshot()
        self._numbers.draws = deque(draws)
        state = CycleState()
        if profile.extenders is None or answers is None:
            self.last = decide(world, pod, profile, state)
        else:
            replayed = ReplayedExtenders(answers)
            asking = decide_with_extenders(world, pod, profile, replayed, state)
            self.last = at_once(asking)
        return self.last

    def _apply(
        self, queued: QueuedPod, profile: ServedProfile, decision: Decision, entry: Decided
    ) -> None:
        """Let the recorded decision have its effects."""
        world = self.world
        if entry.node_name:
            decision.failure, decision.node_name = None, entry.node_name
        elif decision.failure is None:
            decision.node_name, decision.failure = "", Failure.error(entry.message)
        if decision.failure is not None and entry.nominated:
            decision.failure.nomination = NominatingInfo(entry.nominated)
        effects = apply(world, queued, decision)
        bound = effects.bind
        world.preempting.discard(entry.uid)
        explanations, now = self.operator.explanations, self._clock
        if bound is not None:
            state = decision.search.found.state
            self._assumed[entry.uid] = _Assumption(profile.framework, state, bound)
            explanations.records.keep(decision, entry.attempts, now.monotonic())
        elif effects.evict is not None:
            explanations.evictions.keep(decision, rfc3339(now.now()), now.monotonic())

    def _popped(self, uid: str) -> QueuedPod | None:
        """The pod of a decision, wherever the queue has it, in flight."""
        world = self.world
        entry = world.queue.entries.get(uid)
        if entry is None:
            return None
        world.activate([entry.newest])
        if self.result.decisions % _STALE_AFTER == 0:
            self.operator.active.discard_stale()
        return world.queue.pop(ActiveItem((), entry.sequence, entry))

    def explain(self, namespace: str, name: str) -> JsonObject:
        """Why a pod is where it is, or waits, at this moment of the journal.

        Raises:
            LookupError: there is no such pod at this moment.
        """
        made = next(
            (each for each in self._assumed.values() if each.pod.key == f"{namespace}/{name}"), None
        )
        if made is not None:
            # As if its binding had been confirmed.
            self.world.queue.delete(made.pod.uid)
            self.world.cache.set_pod(made.pod)
        steps = self.operator.explanations.pod(namespace, name)
        if steps is None:
            raise LookupError(f"no pod {namespace}/{name} at this moment of the journal")
        return finished(steps)

    # --- what others decided --------------------------------------------------------------------

    def _compare_binding(self, event: WatchEvent) -> None:
        """Where a pod is shown bound that waited here, ask whether its node is one of the best."""
        node_name = event.obj["spec"].get("nodeName")
        uid = event.obj["metadata"].get("uid")
        entry = self.world.queue.entries.get(uid)
        if not node_name or entry is None or uid in self.world.cache.assumed_pods:
            return
        profile = self.world.profiles.of(entry.newest)
        if profile is None:
            return
        self.result.bound_by_others += 1
        decision = self._decide(entry.newest, profile)
        row = self.world.cache.snapshot.row_of.get(node_name)
        if row is None or not decision.search.found.fits[row]:
            return
        self.result.feasible += 1
        if decision.node_name == node_name or row in _best_rows(decision):
            self.result.among_best += 1


def _best_rows(decision: Decision) -> list[int]:
    total, scores = decision.total, decision.scores
    if total is None or scores is None:
        return []
    best = np.flatnonzero(total == total.max())
    rows: list[int] = scores.nodes.row_numbers()[best].tolist()
    return rows


def _recorded(entry: Decided) -> str:
    return _said(entry.node_name, entry.nominated, entry.victims, entry.message)


def outcome(decision: Decision, *, hashed: bool = False) -> str:
    """A decision as text: equal texts are equal decisions; a hashed journal holds no messages."""
    failure, candidate = decision.failure, decision.candidate
    return _said(
        decision.node_name,
        failure.nomination.node_name if failure is not None else "",
        () if candidate is None else [victim.uid for victim in candidate.victims],
        failure.message if failure is not None and not hashed else "",
    )


def _said(node_name: str, nominated: str, victims: Sequence[str], message: str) -> str:
    if node_name:
        return f"on {node_name}"
    text = f"nominated to {nominated}, " if nominated else ""
    text += f"evicting {', '.join(victims)}: " if victims else ""
    return f"{text}{message}" or "no node"
