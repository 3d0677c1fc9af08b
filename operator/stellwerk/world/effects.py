"""Effects of a Decision: changes of the World at once, and the rest as data.

`apply` assumes and reserves, or requeues; the Effects that it returns are for the operator's tasks
to carry out, for a simulation to answer in virtual time, for a shadow profile to drop. Invariant:
when `apply` returns, the pod is assumed on its node or back in its place in the queue.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, auto

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.api_call import APICall
from stellwerk.framework.interface import Candidate
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.models.untrusted_text import shown
from stellwerk.world.decide import Decision
from stellwerk.world.failure import Failure
from stellwerk.world.pod_status import (
    CLEAR_NOMINATION,
    SCHEDULER_ERROR,
    SLOW,
    UNSCHEDULABLE,
    NominatingInfo,
    NominatingMode,
    Report,
)
from stellwerk.world.world import World


@dataclass(frozen=True, slots=True)
class Eviction:
    """Victims to be evicted so that a pod fits on the node it is nominated to."""

    preemptor: PodInfo
    candidate: Candidate
    victims: tuple[PodInfo, ...]
    """Those of the candidate's that are not terminating yet; at least one."""
    profile_name: str
    """The schedulerName under which events and conditions are written."""


@dataclass(slots=True)
class Effects:
    """The part that is left to be done in the cluster; each field may be absent."""

    bind: PodInfo | None = None
    """A pod assumed on its node and reserved there, to be bound."""
    evict: Eviction | None = None
    api_call: APICall | None = None
    """What PostFilter wants done in the cluster."""
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


def release(
    world: World, framework: Framework, state: CycleState, assumed: PodInfo
) -> tuple[bool, list[PluginFailure]]:
    """Undo Reserve and forget the pod: (whether it was still assumed, what Unreserve raised)."""
    failures = framework.binding.unreserve(state, assumed, assumed.node_name)
    return world.cache.forget_pod(assumed.uid) is not None, failures


def undo_binding(
    world: World,
    queued: QueuedPod,
    reserved: tuple[Framework, CycleState],
    assumed: PodInfo,
    failure: Failure,
    on_forgotten: Callable[[str], None],
) -> Effects:
    """Unreserve, forget, wake and requeue after a binding that failed (`handleBindingCycleError`).

    The pods that the capacity may help are woken before the pod itself is back in the queue; a
    rejected one is back before that, and is not moved by its own end. `on_forgotten` is called with
    the uid of a pod that was still assumed, before others are woken.
    """
    forgotten, failures = release(world, *reserved, assumed)
    if forgotten and not failure.rejected:
        on_forgotten(assumed.uid)
        world.on_forgotten(assumed)
    effects = requeue(world, queued, failure)
    if forgotten and failure.rejected:
        on_forgotten(assumed.uid)
        world.on_forgotten(assumed, except_itself=True)
    effects.plugin_failures = tuple(failures)
    return effects


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
    return Eviction(search.pod, candidate, victims, search.profile.scheduler_name)


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
