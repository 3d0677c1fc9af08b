"""An attempt for a pod on a fork, along its whole way: its group, filters, scores and Reserve.

Explanations of pods and what-if make one for each pod, so that both say what the scheduler would
do. Invariant: a pod that gets a node is assumed and reserved there on the fork, with the members of
its group, and nothing else changes; what could not be asked on a fork is in `not_asked`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stellwerk.answers.pod import PluginLeftOut
from stellwerk.explain.steps import Steps
from stellwerk.framework.extension_points import PERMIT
from stellwerk.framework.types import PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.defaults import GANG_SCHEDULING
from stellwerk.world.decide import Decision, Failure, decide
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk.world.extenders import is_interested
from stellwerk.world.gangs.group_attempt import GroupRequest, decided_at_once
from stellwerk.world.gangs.group_decision import (
    WAITING_FOR_OTHERS,
    GroupDecision,
    RemainingMembers,
    decide_group,
    member_failures,
    missing_text,
)
from stellwerk.world.gangs.group_request import request_for, why_different
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.gangs.queue_order import in_order, why_inadmissible
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

_MAX_TIED_NODES: Final = 20
"""Nodes of a tie that an answer names. It counts all of them."""


EXTENDERS_NOT_ASKED: Final = "explanations do not call extenders"
"""The reason for which an extender has no part in an answer."""


@dataclass(slots=True)
class Attempt:
    """The result for one pod, and for the members of its group that were decided with it."""

    node_name: str = ""
    """Empty: it gets none."""
    message: str = ""
    """The reason why it gets none."""
    is_own: bool = True
    """Whether that reason is the pod's own: plugins turn all nodes away."""
    tied: int = 0
    """Number of nodes that share the best total; 0: there was no tie."""
    tied_nodes: Sequence[str] = ()
    """Some of these nodes."""
    decision: Decision | None = None
    """The decision on the pod by itself; None: its group was decided, or nothing was."""
    others: Mapping[str, "Attempt"] = field(default_factory=dict)
    """The results for the other members of its group, by uid."""


def attempt(
    world: World,
    pod: PodInfo,
    profile: ServedProfile,
    live: World | None = None,
    runs: EqualPodRuns | None = None,
) -> Steps[Attempt]:
    """Try a pod on a fork, with its group where the profile places groups.

    `live`: the World that was forked, whose queue says what the members of a group wait for.
    `runs`: decides on the fork where many equal pods come one after the other.

    Raises:
        PluginFailure: a plugin raised, or did not return in time.
    """
    take_out_own_copies(world, [pod])
    if pod.spec.too_complex:
        return Attempt(message=pod.spec.too_complex, is_own=False)
    if pod.terminating:
        return Attempt(message="it is being deleted", is_own=False)
    if profile.places_groups:
        members = world.pod_groups.of_member(pod.uid)
        if members is not None:
            return (yield from _with_group(world, pod, profile, members, live or world))
    return alone(world, pod, profile, runs)


def take_out_own_copies(world: World, pods: Iterable[PodInfo], *, by_name: bool = False) -> None:
    """Take pods off the nodes of a fork that they are assumed on or bound to.

    Without this a pod would count against itself: its requests, host ports and volumes, and its
    labels for its own anti-affinity.

    Args:
        world: the fork.
        pods: that are decided anew.
        by_name: a pod of the same name is the same pod, as for manifests; this looks at every pod.
    """
    missing = set[str]()
    for pod in pods:
        if world.cache.remove_pod(pod.uid) is None:
            missing.add(pod.key)
    if by_name and missing:
        # Keys are made of the few pods whose names are the same, not of every pod.
        names = {key.partition("/")[2] for key in missing}
        same = [each for each in world.cache.pods() if each.name in names]
        for known in [each for each in same if each.key in missing]:
            world.cache.remove_pod(known.uid)
            world.pod_groups.take_pod(known.uid)


def not_asked(profile: ServedProfile, pod: PodInfo) -> Iterator[PluginLeftOut]:
    """Extenders and plugins with a say in whether the pod gets its node, not asked on a fork."""
    for extender in profile.loaded.spec.extenders:
        if is_interested(extender, pod):
            yield PluginLeftOut(plugin=extender.shown_url_prefix, reason=EXTENDERS_NOT_ASKED)
    for plugin in PERMIT.among(profile.framework.plugins):
        yield PluginLeftOut(plugin=plugin.name, reason="its Permit runs only when the pod is bound")


# --- a pod by itself ----------------------------------------------------------------------------


def alone(
    world: World, pod: PodInfo, profile: ServedProfile, runs: EqualPodRuns | None = None
) -> Attempt:
    """Try a pod by itself on a fork, on which it has no copy.

    `runs`: as for `attempt`; the nodes of a tie are counted then, and not named.

    Raises:
        PluginFailure: a plugin raised, or did not return in time.
    """
    world.cache.update_snapshot()
    state = profile.new_state(pod)
    if runs is None:
        decision = decide(world, pod, profile, state)
    else:
        decision = runs.decide(pod, profile, state)
    if decision.failure is not None:
        return Attempt(message=decision.failure.message, decision=decision)
    refused = _refused(world, pod, profile, decision)
    if refused is not None:
        return Attempt(message=refused.message, is_own=False, decision=decision)
    tie = _tie(decision, is_named=runs is None)
    return Attempt(decision.node_name, tied=tie.count, tied_nodes=tie.names, decision=decision)


def _refused(
    world: World, pod: PodInfo, profile: ServedProfile, decision: Decision
) -> Failure | None:
    """Assume the pod on its node and reserve there; the failure where Reserve refuses it."""
    nominated = world.nominator.node_of(pod.uid)
    assumed = pod.with_node(decision.node_name)
    world.nominator.remove(pod.uid)
    world.cache.assume_pod(assumed)
    binding, state = profile.framework.binding, decision.search.found.state
    try:
        status = binding.reserve(state, assumed, decision.node_name)
        if status.ok:
            return None
        failure = Failure.not_permitted(status)
    except PluginFailure as raised:
        failure = Failure.error(str(raised))
    binding.unreserve(state, assumed, decision.node_name)
    world.cache.forget_pod(pod.uid)
    if nominated:
        world.nominator.nominate(pod, nominated)
    return failure


@dataclass(frozen=True, slots=True)
class _Tie:
    """The nodes among which the profile draws."""

    count: int = 0
    """0: there was no tie, or nothing is drawn."""
    names: Sequence[str] = ()
    """The first ones: naming thousands would take longer than the decision."""


def _tie(decision: Decision, *, is_named: bool = True) -> _Tie:
    search, best, scores = decision.search, decision.best, decision.scores
    if best is None or scores is None or len(best) < 2:  # noqa: PLR2004 a tie
        return _Tie()
    if search.nominated or search.profile.loaded.spec.tie_break != "Random":
        return _Tie()
    if not is_named:
        return _Tie(len(best))
    view, first = scores.nodes, best[:_MAX_TIED_NODES]
    rows = first if view.whole else view.row_numbers()[first]
    return _Tie(len(best), search.snapshot.names(rows.tolist()))


# --- a member of a group ------------------------------------------------------------------------


def _with_group(
    world: World, pod: PodInfo, profile: ServedProfile, members: GroupMembers, live: World
) -> Steps[Attempt]:
    closed = world.pod_groups.why_closed(members)
    known = live.pod_groups.groups.get(members.key)
    held = closed or (why_inadmissible(live, known) if known is not None else "")
    if held:
        return Attempt(message=held, is_own=False)
    pending = [each for each in members.pods.values() if _is_pending(world, each, live)]
    group = members.group
    if group is None or not any(each.uid == pod.uid for each in pending):
        return alone(world, pod, profile)
    held = why_different(world, profile, members, pending)
    if not held and len(pending) + world.pod_groups.placed(members) < group.min_count:
        held = (
            f"only {len(pending)} members of its group can be tried, but {group.min_count} "
            "are needed"
        )
    if held:
        return Attempt(message=held, is_own=False)
    results: dict[str, Attempt] = {}
    while pending:
        request = request_for(world, profile, members, in_order(live, pending))
        ties: dict[str, _Tie] = {}
        decision = yield from _decided(world, profile, request, ties)
        results |= yield from _of_members(world, profile, decision, ties)
        # What a cycle leaves, the next one of the group tries.
        pending = [each.pod for each in RemainingMembers(decision, profile.compatibility).again]
    own = results.pop(pod.uid)
    own.others = results
    return own


def _decided(
    world: World,
    profile: ServedProfile,
    request: GroupRequest,
    ties: dict[str, _Tie],
) -> Steps[GroupDecision]:
    """The decision on a group, with the best nodes of each member in `ties`."""
    deciding = decide_group(world, profile, request)
    try:
        ask = next(deciding)
        while True:
            answer = None if ask is None else decided_at_once(ask)
            if ask is not None and answer is not None and ask.world is world:
                ties[ask.pod.uid] = _tie(answer)
            yield
            ask = next(deciding) if answer is None else deciding.send(answer)
    except StopIteration as ended:
        decision: GroupDecision = ended.value
        return decision
    finally:
        deciding.close()


def _of_members(
    world: World,
    profile: ServedProfile,
    decision: GroupDecision,
    ties: Mapping[str, _Tie],
) -> Steps[dict[str, Attempt]]:
    """The result for each member by uid, those that a quorum left tried by themselves."""
    if not decision.placed:
        failures = member_failures(decision)
        name, missing = decision.request.group.key.name, missing_text(decision)
        results: dict[str, Attempt] = {}
        for uid, failure in failures.items():
            message = failure.message
            if missing and message == WAITING_FOR_OTHERS:
                message = missing  # what the others lack says more
            results[uid] = Attempt(message=f'with its pod group "{name}": {message}', is_own=False)
        return results
    tied = next((tie for tie in ties.values() if tie.count), _Tie())
    results = {}
    for each in decision.attempt.results:
        if each.assumed is not None:
            own = ties.get(each.pod.uid, tied)
            own = own if own.count else tied
            results[each.pod.uid] = Attempt(
                each.assumed.node_name, tied=own.count, tied_nodes=own.names
            )
        elif each.failure is not None:
            results[each.pod.uid] = Attempt(message=each.failure.message, is_own=False)
    remaining = RemainingMembers(decision, profile.compatibility)
    for each in remaining.results:
        if remaining.is_refused(each.pod):
            continue
        by_itself = alone(world, each.pod, profile)
        yield
        if by_itself.decision is not None and remaining.helps(by_itself.decision):
            results[each.pod.uid] = by_itself
    return results


def _is_pending(world: World, pod: PodInfo, live: World) -> bool:
    """Whether a member is decided with the others: it has no node, and no plugin keeps it back."""
    if world.cache.pod(pod.uid) is not None or pod.terminating or pod.spec.scheduling_gates:
        return False
    entry = live.queue.entries.get(pod.uid)
    return entry is None or entry.gating_plugin in {"", GANG_SCHEDULING}
