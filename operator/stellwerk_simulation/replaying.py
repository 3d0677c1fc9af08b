"""A journal decided again: the operator's own parts, driven by entries instead of a cluster.

`stellwerk simulate --replay` runs it. Invariant: whatever was recorded has its effects, also where
this version decides otherwise, so that one difference does not make the next.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from stellwerk.answers.pod import PodExplanation
from stellwerk.backend.queued_pod import IN_FLIGHT, ActiveItem, QueuedPod
from stellwerk.explain.records import DecisionRecord
from stellwerk.explain.steps import finished
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
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
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.observing.comparison import compare
from stellwerk.world.decide import Decision, Failure, apply, decide, release, requeue
from stellwerk.world.gangs.group_attempt import GroupRequest, nodes_of
from stellwerk.world.gangs.group_decision import DecidedGroup, GroupDecision
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk_kube.clock import rfc3339_milliseconds
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.offline_operator import deliver, offline_operator, skipping_malformed
from stellwerk_simulation.replay_result import (
    ReplayResult,
    group_outcome,
    outcome,
    recorded_group_outcome,
    recorded_outcome,
)
from stellwerk_simulation.replayed_decisions import (
    Asking,
    DecisionParts,
    GroupEffects,
    GroupsDecision,
    Part,
    PodDecision,
    ReplayedGroup,
    ScriptedNumbers,
    request_of,
)

_STALE_AFTER: Final = 1000
"""Decisions, or bindings of others, after which items left in activeQ are dropped."""


@dataclass(slots=True)
class _Assumption:
    """An assumed pod, with what Unreserve needs."""

    framework: Framework
    state: CycleState
    pod: PodInfo


class LookAtGroup(Protocol):
    """Keeps the World before a decision on a group, and compares with it."""

    def look(self, request: GroupRequest, decided: DecidedGroup) -> Iterator[None]:
        """Decide on the group, too, in steps."""
        ...


class Replay:
    """An operator without a cluster, to which entries happen one after the other."""

    def __init__(self, head: Head) -> None:
        """Prepare for the entries after the head; needs a running event loop."""
        self._numbers, self._hashed = ScriptedNumbers(), head.hashed
        self.operator, self._clock = offline_operator(head, lambda _: self._numbers)
        self._origin_seconds: float | None = None
        self.world = self.operator.world
        self._assumed: dict[str, _Assumption] = {}
        self._parts = DecisionParts()
        self.result = ReplayResult()
        self.last: Decision | None = None
        """The newest decision on a pod, made on the World as it is."""
        self.beside: Callable[[PodInfo, Decision], None] = lambda *_: None
        """Looks at each recorded decision on the World that it was made on."""
        self.beside_group: Callable[[str], LookAtGroup | None] = lambda _: None
        """Given the schedulerName of a decision on a group before it is made, keeps its World."""
        self.beside_binding: Callable[[PodInfo, Decision], None] = lambda *_: None
        """Looks at each binding of another scheduler, on the World before it."""

    def feed(self, entry: Entry) -> None:
        """Let one entry happen, unless it belongs to a decision that has not come to its end."""
        for part in self._parts.take(entry):
            self._happen(part)

    def finish(self) -> None:
        """Let happen what was held back for a decision whose end is not in the journal."""
        for part in self._parts.rest():
            self._happen(part)

    def _happen(self, entry: Part) -> None:
        match entry:
            case WatchEvent():
                self._pass(entry.seconds)
                self._event(entry)
            case SnapshotWritten(0):
                self.world.cache.update_snapshot()
            case SnapshotWritten(nodes):
                self.world.cache.write_ahead(nodes)
            case Decided():
                self._pass(entry.seconds)
                self._decided(entry)
            case PodDecision(begun, between, end):
                self._pass(begun.seconds)
                self._asked(begun, between, end)
            case GroupsDecision(begun, between, end):
                self._pass(begun.seconds)
                self._group(begun, between, end)
            case Head() | Answered() | Asked() | GroupBegun() | GroupDecided() | Yielded():
                pass  # a part of a decision whose beginning is not in the journal
            case _:
                self._state_changed(entry)

    def _state_changed(
        self, entry: Forgotten | Nominated | PluginState | PluginStateGone | InitialState
    ) -> None:
        """Take a state of a plugin that follows from no event or decision in the journal."""
        match entry:
            case Forgotten(seconds, uid):
                self._pass(seconds)
                self._forgotten(uid)
            case Nominated(seconds, uid, node_name, kept_seconds):
                self._pass(seconds)
                if kept_seconds:
                    until = self._clock.monotonic() + kept_seconds
                    self.world.nominator.kept_until[uid] = until
                self._nominate(uid, node_name)
            case PluginState(kind, obj):
                self._hold(kind, obj)
            case PluginStateGone(kind, namespace, name):
                metadata = {"namespace": namespace, "name": name}
                self.world.objects.let_go(kind, {"metadata": metadata})
            case InitialState():
                self._lay_out(entry)

    def _pass(self, seconds: float) -> None:
        if self._origin_seconds is None:
            self._origin_seconds = seconds
        elapsed = seconds - self._origin_seconds - self._clock.monotonic()
        if elapsed > 0:
            self._clock.advance(elapsed)

    # --- what happened in the cluster -----------------------------------------------------------

    def _event(self, event: WatchEvent) -> None:
        if event.kind == "Pod" and event.event_type != "DELETED":
            with skipping_malformed(event):
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
        if entry is not None and entry.place in IN_FLIGHT:
            requeue(self.world, entry, Failure.error("not bound"))

    def _nominate(self, uid: str, node_name: str) -> None:
        entry = self.world.queue.entries.get(uid)
        if entry is not None:
            self.world.queue.nominate(entry.newest, node_name)

    def _hold(self, kind: str, obj: JsonObject) -> None:
        if obj.get("group") is not None:
            obj = {**obj, "group": PodGroupKey(*obj["group"])}
        self.world.objects.hold(kind, obj)

    def _lay_out(self, state: InitialState) -> None:
        """Assume and nominate what was assumed and nominated where the journal begins."""
        world = self.world
        world.cache.update_snapshot()
        for uid, node_name in state.assumed:
            entry = world.queue.entries.get(uid)
            if entry is not None and world.cache.pod(uid) is None:
                world.cache.assume_pod(entry.newest.with_node(node_name))
        for uid, node_name in state.nominated:
            self._nominate(uid, node_name)
        for kind, obj in state.held:
            self._hold(kind, obj)

    # --- what was decided -----------------------------------------------------------------------

    def _decided(self, entry: Decided) -> None:
        self._assumed.pop(entry.uid, None)
        queued, profile = self._taken_up(entry.uid)
        if queued is None or profile is None:
            self._unknown()
            return
        if profile.extenders is None:
            decision = self._decide(queued.pod, profile, entry.draws)
            self._conclude(entry, queued, profile, decision)
            return
        asking = self._asking(queued.pod, profile, entry.draws)
        for answer in entry.answers:
            asking.answer(answer)
        self._conclude(entry, queued, profile, asking.end(), asking.failure)

    def _asked(self, begun: Asked, between: Sequence[Entry], end: Decided | None) -> None:
        """A decision that waited for extenders, and what came meanwhile."""
        self._assumed.pop(begun.uid, None)
        queued, profile = self._taken_up(begun.uid)
        if queued is None or profile is None or profile.extenders is None:
            for each in between:
                self._happen(each)
            if end is not None:
                self._unknown()
            return
        with self.operator.loader.unchanged():
            asking = self._asking(queued.pod, profile, () if end is None else end.draws)
            for each in between:
                if isinstance(each, Answered):
                    asking.answer(each.answer)
                else:
                    self._happen(each)
            decision = asking.end()
        if end is None:
            requeue(self.world, queued, Failure.error(asking.failure))
            return
        self._pass(end.seconds)
        self._conclude(end, queued, profile, decision, asking.failure)

    def _conclude(
        self,
        entry: Decided,
        queued: QueuedPod,
        profile: ServedProfile,
        decision: Decision | None,
        failure: str = "",
    ) -> None:
        """Compare, and let the recorded decision have its effects."""
        self.result.releases[str(profile.compatibility.version)] = None
        now = failure if decision is None else outcome(decision, hashed=self._hashed)
        self.result.decisions += 1
        self.result.compare(
            self._clock.monotonic(), entry.key, entry.attempts, recorded_outcome(entry), now
        )
        if decision is None:
            decision = self._decide(queued.pod, profile, entry.draws)
        self.last = decision
        self._apply(queued, profile, decision, entry)

    def _unknown(self) -> None:
        self.result.decisions += 1
        self.result.unknown += 1

    def _decide(
        self, pod: PodInfo, profile: ServedProfile, draws: Sequence[tuple[int, int]] = ()
    ) -> Decision:
        """The decision without extenders."""
        self.world.cache.update_snapshot()
        self._numbers.draws = deque(draws)
        return decide(self.world, pod, profile, profile.new_state(pod))

    def _asking(
        self, pod: PodInfo, profile: ServedProfile, draws: Sequence[tuple[int, int]]
    ) -> Asking:
        self.world.cache.update_snapshot()
        self._numbers.draws = deque(draws)
        return Asking(self.world, pod, profile, profile.new_state(pod))

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
        self.beside(queued.pod, decision)
        effects = apply(world, queued, decision)
        bound = effects.bind
        world.preempting.discard(entry.uid)
        explanations, now = self.operator.explanations, self._clock
        if bound is not None:
            state = decision.search.found.state
            self._assumed[entry.uid] = _Assumption(profile.framework, state, bound)
            explanations.records.keep(decision, entry.attempts, now.monotonic())
            return
        explanations.records.keep_refusals(decision, now.monotonic())
        if effects.evict is not None:
            explanations.evictions.keep(decision, rfc3339_milliseconds(now.now()), now.monotonic())

    def _taken_up(self, uid: str) -> tuple[QueuedPod | None, ServedProfile | None]:
        """The pod of a decision, wherever the queue has it, in flight; and its profile."""
        world = self.world
        entry = world.queue.entries.get(uid)
        if entry is None:
            return None, None
        world.activate([entry.newest])
        if self.result.decisions % _STALE_AFTER == 0:
            self.operator.active.discard_stale()
        queued = world.queue.pop(ActiveItem((), entry.sequence, entry))
        return queued, None if queued is None else world.profiles.of(queued.pod)

    # --- groups ---------------------------------------------------------------------------------

    def _group(self, begun: GroupBegun, between: Sequence[Entry], end: GroupDecided | None) -> None:
        """A decision on a group, and what came meanwhile."""
        world, overs = self.world, () if end is None else end.overs
        taken = [self._taken_up(uid)[0] for uid in begun.members]
        members = [queued for queued in taken if queued is not None]
        profile = world.profiles.of(members[0].pod) if members else None
        request = request_of(world, begun, members, overs)
        if profile is None or request is None or len(members) < len(begun.members):
            for each in between:
                self._happen(each)
            self._give_back(members)
            if end is not None:
                self._unknown()
            return
        self.result.releases[str(profile.compatibility.version)] = None
        beside = self.beside_group(profile.scheduler_name)
        self._numbers.draws = deque(() if end is None else end.draws)
        with self.operator.loader.unchanged():
            records: dict[str, DecisionRecord] = {}
            attempts = {each.pod.uid: each.attempts for each in members}
            note = partial(self._note, records, attempts)
            deciding = ReplayedGroup(world, profile, request, note)
            for each in between:
                self._happen_within(deciding, each)
            if end is None:
                self._give_back(members)
                return
            decision = deciding.end()
        again = {} if decision is None else nodes_of(decision.attempt)
        self._pass(end.seconds)
        self._conclude_group(begun, end, members, profile, decision or deciding.failure)
        if beside is not None:
            nodes = {row[0]: row[3] for row in end.members if row[3]}
            if again == nodes:
                nodes = again  # in the order in which they were placed
            decided = DecidedGroup("/".join(begun.group[1:]), nodes, end.message)
            for _ in beside.look(request, decided):
                pass
        for record in records.values():
            self.operator.explanations.records.put(record)

    def _note(
        self, records: dict[str, DecisionRecord], attempts: Mapping[str, int], decision: Decision
    ) -> None:
        """Note what explains a member's decision: the next one writes its columns anew."""
        if decision.failure is None:
            made, uid = self.operator.explanations.records.made, decision.search.pod.uid
            records[uid] = made(decision, attempts[uid], self._clock.monotonic())

    def _happen_within(self, deciding: ReplayedGroup, entry: Entry) -> None:
        match entry:
            case Yielded(steps):
                deciding.until(steps)
            case Asked():
                deciding.asked()
            case Answered(answer):
                deciding.answered(answer)
            case _:
                self._happen(entry)

    def _give_back(self, members: Sequence[QueuedPod]) -> None:
        for queued in members:
            requeue(self.world, queued, Failure.error("not decided"))

    def _conclude_group(
        self,
        begun: GroupBegun,
        end: GroupDecided,
        members: Sequence[QueuedPod],
        profile: ServedProfile,
        decision: GroupDecision | str,
    ) -> None:
        made = None if isinstance(decision, str) else decision
        now = str(decision) if made is None else group_outcome(made, hashed=self._hashed)
        self.result.decisions += 1
        self.result.groups += 1
        seconds, attempts = self._clock.monotonic(), max(row[2] for row in end.members)
        key, recorded = "/".join(begun.group[1:]), recorded_group_outcome(end)
        self.result.compare(seconds, key, attempts, recorded, now)
        effects = GroupEffects(self.world, profile, end)
        for verdict, framework in effects.apply(members, made):
            if verdict.assumed is not None:
                uid = verdict.pod.uid
                self._assumed[uid] = _Assumption(framework, verdict.state, verdict.assumed)

    def explain(self, namespace: str, name: str) -> PodExplanation:
        """Explain why a pod is where it is, or waits, at this moment of the journal.

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

    def explain_waiting(self, namespace: str, name: str) -> PodExplanation:
        """The explanation of a pod that waits at this moment."""
        steps = self.operator.explanations.pod(namespace, name)
        if steps is None:
            raise LookupError(f"no pod {namespace}/{name} at this moment of the journal")
        return finished(steps)

    # --- what others decided --------------------------------------------------------------------

    def _compare_binding(self, event: WatchEvent) -> None:
        """Count whether the node of a pod that others bound is one of the best for it."""
        node_name = (event.obj.get("spec") or {}).get("nodeName")
        uid = event.obj["metadata"].get("uid")
        entry = self.world.queue.entries.get(uid)
        if not node_name or entry is None or uid in self.world.cache.assumed_pods:
            return
        profile = self.world.profiles.of(entry.newest)
        if profile is None:
            return
        self.result.releases[str(profile.compatibility.version)] = None
        self.result.bound_by_others += 1
        if self.result.bound_by_others % _STALE_AFTER == 0:
            self.operator.active.discard_stale()
            self.operator.observed.discard_stale()
        self.world.cache.update_snapshot()
        self._numbers.draws = deque()
        if node_name not in self.world.cache.snapshot.row_of:
            return
        compared = compare(self.world, entry.newest, profile, node_name)
        self.result.feasible += compared.fits
        self.result.among_best += compared.result == "equal"
        decision = compared.decision
        decision.failure, decision.node_name = None, node_name
        self.beside_binding(entry.newest, decision)
