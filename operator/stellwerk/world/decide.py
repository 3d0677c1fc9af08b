"""From a World and a pod to a Decision, and from a Decision to its Effects.

Here the node is chosen (`choose`), also among equals (`_pick_of_equals`), a failure gets its reason
(`reject`), a binding that failed is undone (`undo_binding`), and a preemptor waits for its victims
(`last_victim_ended`). Which nodes are feasible and what they score is `framework`'s.

`decide` is the scheduling cycle of a profile without extenders, and of `stellwerk decide`; with
extenders, `scheduler.extenders` takes the same steps and puts what they answered between them, so
that a recording which holds draws and answers can be replayed. `apply` assumes and reserves, or
requeues; the Effects that it returns are for the operator's tasks to carry out, for a simulation to
answer in virtual time, for a shadow profile to drop. Invariants: a decision is synchronous and
pure: it asks nothing of the cluster, measures nothing, and leaves the World as it was; when `apply`
returns, the pod is assumed on its node or back in its place in the queue.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

import numpy as np

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.diagnosis import Diagnosis, fit_error, rejecting_plugins
from stellwerk.framework.interface import APICall, Candidate, PostFilterResult
from stellwerk.framework.runtime import Framework
from stellwerk.framework.score_phase import Scores
from stellwerk.framework.types import (
    OK,
    Code,
    CycleState,
    Feasibility,
    PluginFailure,
    Status,
    StatusColumn,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk.world.extenders import ExtenderFilterResult
from stellwerk.world.pod_status import (
    CLEAR_NOMINATION,
    LEAVE_NOMINATION,
    SCHEDULER_ERROR,
    SLOW,
    UNSCHEDULABLE,
    NominatingInfo,
    NominatingMode,
    Report,
)
from stellwerk.world.profiles import POD_COMPLEXITY, Draw, ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.untrusted_text import shown

EXTENDER: Final = "Extender"
"""Stands for all extenders among the plugins that rejected a pod; any event may wake it."""
_NO_REASON_GIVEN: Final = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)


@dataclass(slots=True)
class Failure:
    """The reason why an attempt failed: a message, and the plugins whose hints can end a rejection.

    One that is not a rejection has no such plugins, since no event can be awaited to end it.
    `requeue` reads it.
    """

    message: str
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nomination: NominatingInfo = LEAVE_NOMINATION
    rejected: bool = False
    """True: plugins rejected the pod, and its condition has the reason Unschedulable. False:
    something broke, the reason is SchedulerError, and the pod is tried again after a backoff."""

    slow: bool = False
    """Its profile's foreign code takes too much time: nothing was tried."""

    @classmethod
    def throttled(cls, message: str) -> "Failure":
        """The pod is not tried now, since foreign code of its profile is too slow."""
        return cls(message, slow=True)

    @classmethod
    def error(cls, message: str) -> "Failure":
        """Something broke."""
        return cls(message, nomination=CLEAR_NOMINATION)

    @classmethod
    def not_permitted(cls, status: Status) -> "Failure":
        """A rejection by Reserve or Permit: the one node that was chosen does not take the pod."""
        if not status.rejected:
            return cls.error(status.message)
        unschedulable, pending = rejecting_plugins([status])
        diagnosis = Diagnosis((0,), StatusColumn.of([status]), "", unschedulable, pending)
        return cls(fit_error(diagnosis), unschedulable, pending, rejected=True)

    @classmethod
    def too_complex(cls, spec: SchedulingSpec) -> "Failure":
        """A rejection without a look at any node, until the pod itself changes."""
        return cls(spec.too_complex, frozenset({POD_COMPLEXITY}), rejected=True)

    @classmethod
    def not_bound(cls, status: Status) -> "Failure":
        """PreBind or Bind did not succeed; to the queue this is an error, whatever the status says.

        If the status rejects, the condition has the reason Unschedulable, and the pod still waits
        in podErrorBackoffQ. kube-scheduler does the same (v1.36): `handleSchedulingFailure` takes
        the reason from the status, and plugins, whose hints could requeue the pod, from a FitError
        alone, which these points do not make.
        """
        return cls(status.message, rejected=status.rejected)


@dataclass(slots=True)
class Search:
    """The filter half of a decision: which nodes take the pod."""

    pod: PodInfo
    profile: ServedProfile
    snapshot: Snapshot
    found: Feasibility
    draws: list[Draw]
    """The draws so far; the random numbers of the whole decision in the end."""
    thorough: bool
    """Every node, score and candidate is looked at, where a cycle stops at enough."""
    nominated: bool
    """The node nominated to the pod takes it, and is chosen."""
    by_extenders: ExtenderFilterResult | None = None
    """The nodes that extenders left, if they took any away."""
    offered: int = 0
    """Number of nodes that extenders were offered, if they took any away."""

    def node_names(self) -> list[str]:
        """The feasible nodes in visiting order, as extenders are offered them."""
        rows = self.found.rows
        if rows is None:
            order = self.snapshot.visit_order
            rows = order[self.found.fits[order]]
        return self.snapshot.names(rows.tolist())

    def narrow(self, result: ExtenderFilterResult, offered: int) -> None:
        """Let only the nodes that extenders left be feasible, of so many that were offered."""
        found, names = self.found, result.node_names
        left = np.array([self.snapshot.row_of[name] for name in names], dtype=np.intp)
        found.keep(left, evaluated=found.evaluated)
        if len(names) != offered:
            self.by_extenders, self.offered = result, offered


@dataclass(slots=True)
class Decision:
    """The decision on a pod: a node for it, or the reason why there is none."""

    search: Search
    node_name: str = ""
    """Empty: see `failure`."""
    failure: Failure | None = None
    candidate: Candidate | None = None
    """The victims on the node that the failure nominates the pod to; None: no preemption."""
    feasible: int = 0
    """The number of nodes that there were to choose from."""
    scores: Scores | None = None
    """None: there was nothing to choose."""
    total: IntColumn | None = None
    """(n,) int64, the scores' total with what extenders added; None as `scores`."""
    best: RowColumn | None = None
    """Positions in `total` that share the best one, in their order; None as `scores`."""
    position: int = -1
    """Position of the chosen node in `total`; below 0 if `scores` is None."""
    diagnosis: Diagnosis | None = None
    post_filter: PostFilterResult | None = None
    """The result of PostFilter; None: it was not run."""
    decided_by: str = ""
    """Text on what decided for the candidate against kube-scheduler's order; empty: nothing did."""

    @property
    def draws(self) -> list[Draw]:
        """Every random number that went into it."""
        return self.search.draws


@dataclass(slots=True)
class NoNode:
    """No node takes the pod: why, and whose eviction would change that."""

    diagnosis: Diagnosis
    post_filter: PostFilterResult | None = None
    """None: nothing was looked for."""


def decide(
    world: World,
    pod: PodInfo,
    profile: ServedProfile,
    state: CycleState | None = None,
    *,
    thorough: bool = False,
) -> Decision:
    """The decision of a profile for a pod, extenders aside.

    Raises:
        PluginFailure: a plugin raised.
    """
    search = find_nodes(world, pod, profile, state, thorough=thorough)
    if is_broken(search):
        return broken(search)
    if not np.count_nonzero(search.found.fits):
        return reject(search, find_candidates(search))
    return choose(search, score(search))


def find_nodes(
    world: World,
    pod: PodInfo,
    profile: ServedProfile,
    state: CycleState | None = None,
    *,
    thorough: bool = False,
) -> Search:
    """PreFilter and Filter on the snapshot as it is."""
    snapshot = world.cache.snapshot
    draws: list[Draw] = []
    profile.random.draws = draws
    found = profile.framework.filtering.find_feasible(pod, state, sample=not thorough)
    nominated = (
        bool(pod.details.nominated_node_name) and found.nominated_row(pod, snapshot) is not None
    )
    return Search(pod, profile, snapshot, found, draws, thorough, nominated)


def is_broken(search: Search) -> bool:
    """Whether PreFilter or a costly filter ended in an error."""
    found = search.found
    return found.pre_filter.code is Code.ERROR or found.state.broken_filter is not None


def broken(search: Search) -> Decision:
    """The decision where PreFilter or a costly filter ended in an error."""
    status = search.found.state.broken_filter
    message = search.found.pre_filter.message if status is None else _filter_error(status)
    return Decision(search, failure=Failure.error(message))


def _filter_error(status: Status) -> str:
    return f'running "{status.plugin}" filter plugin: {status.message}'


# --- a node is chosen ---------------------------------------------------------------------------


def score(search: Search) -> Scores | None:
    """The feasible nodes' scores; None: there is nothing to choose."""
    if search.nominated and not search.thorough:
        return None
    view = search.found.view()
    if view.size == 1 and not search.thorough:
        return None
    return search.profile.framework.scoring.prioritize(search.found.state, search.pod, view)


def choose(
    search: Search, scores: Scores | None, by_extenders: IntColumn | None = None
) -> Decision:
    """The nominated node, the only one, or one of the best (`selectHost`) by tieBreak.

    `by_extenders` is added to the totals.
    """
    if search.nominated:
        return Decision(search, search.pod.nominated_node_name, feasible=1, scores=scores)
    snapshot = search.snapshot
    if scores is None:
        row = int(search.found.fits.argmax())
        return Decision(search, snapshot.node_at(row).name, feasible=1)
    total = scores.total if by_extenders is None else scores.total + by_extenders
    # The place of the largest is found in half the time of its value.
    best: RowColumn = (total == total[total.argmax()]).nonzero()[0]
    view = scores.nodes
    position = int(best[_pick_of_equals(search, view, best) if len(best) > 1 else 0])
    row = position if view.whole else int(view.row_numbers()[position])
    name = snapshot.node_at(row).name
    return Decision(search, name, None, None, view.size, scores, total, best, position)


def _pick_of_equals(search: Search, view: NodeView, best: RowColumn) -> int:
    """The one chosen of several positions with the highest total, as the profile's tieBreak says.

    Random: by the profile's generator, which a seed makes repeatable. Else the first in the order
    in which nodes are visited. tieBreak does not concern preemption: among equal candidates
    `_select_candidate`, below, draws.
    """
    if search.profile.loaded.spec.tie_break == "Random":
        return search.profile.framework.handle.random(len(best))
    snapshot = search.snapshot
    rank = np.empty(snapshot.size, np.intp)
    rank[snapshot.visit_order] = np.arange(len(snapshot.visit_order))
    return int(rank[view.row_numbers()[best]].argmin())


# --- no node takes the pod ----------------------------------------------------------------------


def find_candidates(search: Search) -> NoNode:
    """The reason why no node takes the pod, and the proposal of PostFilter."""
    found, pod = search.found, search.pod
    framework = search.profile.framework
    diagnosis = framework.filtering.diagnose(found, pod)
    if search.by_extenders is not None:
        diagnosis = _with_extenders(diagnosis, search.by_extenders, search.snapshot)
    if not diagnosis.rows or _broken_filter(diagnosis) is not None:
        return NoNode(diagnosis)
    return NoNode(diagnosis, framework.run_post_filters(found.state, pod, diagnosis))


def reject(search: Search, no_node: NoNode) -> Decision:
    """A rejection, with a nomination if a candidate is left to preempt on."""
    diagnosis, post = no_node.diagnosis, no_node.post_filter
    error = _broken_filter(diagnosis)
    if error is not None:
        failure = Failure.error(_filter_error(error))
        return Decision(search, failure=failure, diagnosis=diagnosis)
    # Not run where there is no node at all: then none can be nominated, either.
    found = post or PostFilterResult(OK, clear_nomination=True)
    failure = Failure(
        fit_error(diagnosis, found.status.message),
        diagnosis.unschedulable_plugins,
        diagnosis.pending_plugins,
        CLEAR_NOMINATION if found.clear_nomination else LEAVE_NOMINATION,
        rejected=True,
    )
    candidate = _select_candidate(search, found) if found.status.ok else None
    if candidate is not None:
        failure.nomination = NominatingInfo(candidate.node_name)
        if found.told_of is not None:
            failure.message = fit_error(diagnosis, found.told_of(candidate))
    decided_by = ""
    if candidate is not None and found.decided_by is not None:
        decided_by = found.decided_by(candidate, found.candidates)
    return Decision(
        search,
        failure=failure,
        candidate=candidate,
        decided_by=decided_by,
        diagnosis=diagnosis,
        post_filter=post,
    )


def _select_candidate(search: Search, found: PostFilterResult) -> Candidate | None:
    """One of the best candidates at random (`SelectCandidate`)."""
    best = found.best(found.candidates) if found.best and found.candidates else ()
    if not best:
        return None
    return best[search.profile.framework.handle.random(len(best))] if len(best) > 1 else best[0]


def _broken_filter(diagnosis: Diagnosis) -> Status | None:
    """A node's status that is an error: then it is not known whether the pod fits."""
    for status in diagnosis.statuses.counts():
        if not status.ok and not status.rejected:
            return status
    return None


def _with_extenders(
    diagnosis: Diagnosis, result: ExtenderFilterResult, snapshot: Snapshot
) -> Diagnosis:
    """The diagnosis with the extenders' word for every node they took away."""
    names = [snapshot.node_at(row).name for row in diagnosis.rows]
    statuses = StatusColumn.of(
        # A node that passed the filters and is not feasible went without a word.
        result.statuses.get(name, _NO_REASON_GIVEN if status.ok else status)
        for name, status in zip(names, diagnosis.statuses, strict=True)
    )
    plugins = diagnosis.unschedulable_plugins | {EXTENDER}
    return replace(diagnosis, statuses=statuses, unschedulable_plugins=plugins)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Victims to be evicted so that a pod fits on the node it is nominated to."""

    preemptor: PodInfo
    candidate: Candidate
    victims: tuple[PodInfo, ...]
    """Those of the candidate's that are not terminating yet; at least one."""
    profile_name: str
    """The schedulerName under which events and conditions are written."""
    decided_by: str = ""
    """As `Decision.decided_by`."""


@dataclass(slots=True)
class Effects:
    """The part that is left to be done in the cluster; each field may be absent."""

    bind: PodInfo | None = None
    """A pod assumed on its node and reserved there, to be bound."""
    evict: Eviction | None = None
    api_call: APICall | None = None
    """The call to the API that PostFilter asks for."""
    patch: Report | None = None
    """The condition and the nomination of a pod that was requeued."""
    event: str = ""
    """The note of a FailedScheduling event."""
    failure: Failure | None = None
    """The reason why there is nothing to bind."""
    plugin_failures: tuple[PluginFailure, ...] = ()
    """Errors that Reserve or Unreserve raised, to be logged and counted."""


def apply(world: World, queued: QueuedPod, decision: Decision) -> Effects:
    """Assume the pod on its node and reserve there, or requeue it."""
    failure = decision.failure
    if failure is None:
        return _assume_and_reserve(world, queued, decision)
    evict = None if decision.candidate is None else _eviction(decision, decision.candidate)
    if evict is not None:
        # Before the pod is requeued: it is gated while its victims are to be evicted.
        world.preempting.add(decision.search.pod.uid)
    effects = requeue(world, queued, failure)
    effects.evict = evict
    if decision.post_filter is not None:
        effects.api_call = decision.post_filter.api_call
    return effects


def requeue(world: World, queued: QueuedPod, failure: Failure) -> Effects:
    """Put the pod back where it belongs (`handleSchedulingFailure`)."""
    place = world.queue.add_unschedulable_if_not_present(
        queued,
        failure.unschedulable_plugins,
        failure.pending_plugins,
        error=not failure.rejected,
        now=world.clock.monotonic(),
    )
    effects = Effects(event=shown(failure.message), failure=failure)
    if place is None:
        # Deleted, or bound from outside meanwhile: a condition would be wrong or in vain.
        return effects
    nomination = failure.nomination
    if nomination.mode is NominatingMode.OVERRIDE:
        world.queue.nominate(queued.pod, nomination.node_name)
    reason = UNSCHEDULABLE if failure.rejected else SLOW if failure.slow else SCHEDULER_ERROR
    effects.patch = Report(queued.pod, reason, failure.message, nomination)
    return effects


def undo_binding(
    world: World,
    queued: QueuedPod,
    reserved: tuple[Framework, CycleState],
    assumed: PodInfo,
    failure: Failure,
    on_victim: Callable[[str], None],
) -> Effects:
    """Unreserve, forget, wake and requeue after a binding that failed (`handleBindingCycleError`).

    Plugins give back at once what they hold in memory (`unreserve`, the last plugin first); what is
    in the API already, such as reservations of claims, by calls that are tried again while it is
    away (`APICalls`).

    The pods that the capacity may help are woken before the pod itself is back in the queue; a
    rejected one is back before that, and is not moved by its own end. `on_victim` is called with
    the uid of a pod that was still assumed, before others are woken.
    """
    forgotten, failures = release(world, *reserved, assumed)
    if forgotten and not failure.rejected:
        on_victim(assumed.uid)
        world.wake_after_forgetting(assumed)
    effects = requeue(world, queued, failure)
    if forgotten and failure.rejected:
        on_victim(assumed.uid)
        world.wake_after_forgetting(assumed, except_itself=True)
    effects.plugin_failures = tuple(failures)
    return effects


def release(
    world: World, framework: Framework, state: CycleState, assumed: PodInfo
) -> tuple[bool, list[PluginFailure]]:
    """Undo Reserve and forget the pod: (whether it was still assumed, what Unreserve raised)."""
    failures = framework.binding.unreserve(state, assumed, assumed.node_name)
    return world.cache.forget_pod(assumed.uid) is not None, failures


def _assume_and_reserve(world: World, queued: QueuedPod, decision: Decision) -> Effects:
    search, node_name = decision.search, decision.node_name
    assumed = search.pod.with_node(node_name)
    try:
        # Before binding: the next cycle must already count its requests.
        world.cache.assume_pod(assumed)
    except ValueError as refused:
        return requeue(world, queued, Failure.error(str(refused)))
    if world.nominator.by_node:
        world.nominator.remove(assumed.uid)
    framework, state = search.profile.framework, search.found.state
    failures: list[PluginFailure] = []
    try:
        status = framework.binding.reserve(state, assumed, node_name)
        if status.ok:
            return Effects(assumed)
        failure = Failure.not_permitted(status)
    except PluginFailure as raised:
        failures, failure = [raised], Failure.error(str(raised))
    failures += release(world, framework, state, assumed)[1]
    failure.nomination = CLEAR_NOMINATION
    effects = requeue(world, queued, failure)
    effects.plugin_failures = tuple(failures)
    return effects


def _eviction(decision: Decision, candidate: Candidate) -> Eviction | None:
    """The victims to be evicted; those that are terminating need nothing but time."""
    victims = tuple(victim for victim in candidate.victims if not victim.terminating)
    if not victims:
        return None
    search = decision.search
    profile_name = search.profile.scheduler_name
    return Eviction(search.pod, candidate, victims, profile_name, decision.decided_by)


# --- a preemption -------------------------------------------------------------------------------


class VictimOutcome(Enum):
    """The outcome of the eviction of a victim."""

    TERMINATING = auto()
    """Its deletion has begun, and takes its time."""
    DELETED = auto()
    """It was deleted at once."""
    ALREADY_GONE = auto()
    """It was gone before its deletion was asked for."""
    BINDING_CANCELLED = auto()
    """It was not on its node yet, and never will be."""


def clear_lower_nominations(world: World, preemptor: PodInfo, node_name: str) -> list[Report]:
    """Let pods of lower priority that are nominated to the node look for another one.

    Returns what their status is to say (`prepareCandidate`).
    """
    nominated = world.nominator.pods_for_node(node_name)
    lower = [pod for pod in nominated if pod.priority < preemptor.priority]
    for pod in lower:
        world.queue.nominate(pod, "")
    world.activate(lower)
    return [_without_nomination(pod) for pod in lower]


def last_victim_ended(world: World, uid: str, outcome: VictimOutcome | None) -> bool:
    """Whether the last victim has gone, or begun to, as the cache has it.

    The news of its end may come before the answer to its eviction (`outcome` is None until then),
    and must not be missed. Its termination is enough where it takes its time; a victim that goes
    at once terminates for a moment, in which every other change would cause a needless attempt.
    Before the cache has it, its capacity is not there for any attempt.
    """
    victim = world.cache.pod(uid)
    if victim is None or outcome is VictimOutcome.BINDING_CANCELLED:
        return True
    return outcome is VictimOutcome.TERMINATING and victim.terminating


def open_gate(world: World, uid: str) -> None:
    """Let a preemptor be tried again: no victim is left to be evicted for it."""
    world.preempting.discard(uid)
    world.queue.rerun_pre_enqueue(uid)


def wake_preemptor(world: World, preemptor: PodInfo, outcomes: Iterable[VictimOutcome]) -> None:
    """Wake a preemptor whose victims are evicted, unless the end of one of them will.

    The end of a victim that was gone already may have been overlooked while the preemptor was
    gated, and then no other event wakes it.
    """
    if VictimOutcome.ALREADY_GONE in outcomes:
        world.activate([preemptor])


def withdraw_nomination(world: World, preemptor: PodInfo) -> Report | None:
    """Clear the nomination of a pod whose preemption failed, and let it try again.

    Returns what its status is to say; None: it waits no more.
    """
    if preemptor.uid not in world.queue.entries:
        return None
    world.queue.nominate(preemptor, "")
    world.activate([preemptor])
    return _without_nomination(preemptor)


def _without_nomination(pod: PodInfo) -> Report:
    return Report(pod, nomination=NominatingInfo("", in_any_case=True))
