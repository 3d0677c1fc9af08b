"""The cycle of a group in a cluster that answers at once: taken up, decided, bound or requeued.

Simulations and reruns have one each. Invariant: every step is the one that the operator's group
cycle drives in slices (`world.gangs`); here nothing happens between two of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.explain.steps import finished
from stellwerk.models.pod_group import PodGroupKey
from stellwerk.world.decide import Failure, apply, decide, requeue
from stellwerk.world.gangs.group_attempt import MemberResult, answered
from stellwerk.world.gangs.group_decision import (
    GroupDecision,
    RemainingMembers,
    decide_group,
    member_failures,
)
from stellwerk.world.gangs.group_request import TakenGroup, Untried, take_members, why_untried
from stellwerk.world.gangs.group_reservation import reserve_nodes, try_with_reservation_once_more
from stellwerk.world.gangs.queue_order import after_attempt, requeue_inadmissible, requeue_untried
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_simulation.instant_cluster import Binding, InstantCluster
from stellwerk_simulation.virtual_time import VirtualTime


class InstantGroups:
    """Decides groups of pods, and has what is decided carried out."""

    def __init__(
        self,
        world: World,
        cluster: InstantCluster,
        time: VirtualTime,
        on_refused: Callable[[QueuedPod, Failure], None],
        before_binding: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`on_refused` is called with members without a node, `before_binding` with the others."""
        self._world, self._cluster, self._time = world, cluster, time
        self._on_refused, self._before_binding = on_refused, before_binding
        self._reserved_until: dict[str, float] = {}
        """The moments until which nodes are reserved, by group."""

    def schedule(self, queued: QueuedPod, profile: ServedProfile) -> None:
        """Take up, decide and carry out the group of a member that was popped."""
        world = self._world
        members = world.pod_groups.of_member(queued.pod.uid)
        if members is None:
            world.queue.done(queued.pod.uid)
            return
        taken = TakenGroup(members, profile, {queued.pod.uid: queued})
        for _ in take_members(world, taken):
            pass
        if not taken.queued:
            return
        match why_untried(world, taken):
            case None:
                self._attempt(taken)
                after_attempt(world, members)
            case Untried.PROFILES_DIFFER, message:
                for each in taken.queued.values():
                    self._requeue(each, Failure.error(message))
            case Untried.TOO_FEW, _:
                for each in taken.queued.values():
                    requeue_untried(world, each)
                    # The operator keeps room until a controller has made the others; here it may
                    # be that none does, and nothing would end it.
                    world.queue.nominate(each.pod, "")
            case Untried.INADMISSIBLE, _:
                requeue_inadmissible(world, members, taken.queued.values())

    def _attempt(self, taken: TakenGroup) -> None:
        deciding = decide_group(self._world, taken.profile, taken.request(self._world))
        self._carry_out(taken, finished(answered(deciding)))

    def _carry_out(self, taken: TakenGroup, decision: GroupDecision) -> None:
        """Bind the members that have a node, and requeue the others with their nominations."""
        if decision.placed:
            self._bind(taken, decision)
            return
        preemption = decision.preemption
        victims = preemption.victims if preemption is not None else ()
        if victims:
            # Before the members are requeued: they are gated until their victims are gone.
            self._world.preempting.update(taken.queued)
        nodes = self._reserve(taken, decision)
        acts = (each.api_call for each in decision.attempt.results)
        for act in {act.act: act for act in acts if act is not None}.values():
            self._cluster.write(act)
        for uid, failure in member_failures(decision).items():
            self._requeue(taken.queued[uid], failure, nodes.get(uid, ""))
        if victims:
            pods = [each.pod for each in taken.queued.values()]
            self._cluster.evict_for_group(pods, victims)

    def _bind(self, taken: TakenGroup, decision: GroupDecision) -> None:
        remaining = RemainingMembers(decision, taken.profile.compatibility)
        again = [taken.queued[each.pod.uid] for each in remaining.again]
        taken.members.was_placed, taken.members.room_refused = True, ""
        bindings = []
        for each in decision.attempt.results:
            if each.assumed is not None:
                self._before_binding(each.pod.uid)
                bindings.append(self._binding(taken, each))
            elif each.pod.uid not in remaining.uids and taken.queued[each.pod.uid] not in again:
                self._requeue(taken.queued[each.pod.uid], each.failure)
        request = decision.request
        self._cluster.bind_together(bindings, request.needed if request.group.is_gang else 1)
        self._try_remaining(taken, remaining)
        if again:
            left = {each.pod.uid: each for each in again}
            following = TakenGroup(taken.members, taken.profile, left)
            self._attempt(following)

    def _binding(self, taken: TakenGroup, result: MemberResult) -> Binding:
        assert result.assumed is not None  # noqa: S101 the caller looks
        queued, framework = taken.queued[result.pod.uid], taken.profile.framework
        return Binding(queued, result.assumed, framework, result.state)

    def _try_remaining(self, taken: TakenGroup, remaining: RemainingMembers) -> None:
        """Try the members by themselves, preemption included, that were left by a quorum."""
        world, profile = self._world, taken.profile
        for each in remaining.results:
            pod, queued = each.pod, taken.queued[each.pod.uid]
            if not remaining.is_refused(pod):
                world.cache.update_snapshot()
                decision = decide(world, pod, profile, profile.new_state(pod))
                if remaining.helps(decision):
                    self._cluster.carry_out(queued, decision, apply(world, queued, decision))
                    continue
            self._requeue(queued, each.failure)

    def _reserve(self, taken: TakenGroup, decision: GroupDecision) -> Mapping[str, str]:
        """The nodes to which members are nominated while room is made, for a limited time."""
        key = taken.members.key
        self._reserved_until.pop(key.shown, None)
        reservation = reserve_nodes(self._world, taken.profile, taken.members, decision)
        if reservation is None:
            return {}
        if reservation.left_seconds > 0:
            until = self._world.clock.monotonic() + reservation.left_seconds
            self._reserved_until[key.shown] = until
            self._time.call_at(
                until, key.shown, partial(self._try_with_reservation_once_more, key, until)
            )
        return reservation.nodes

    def _try_with_reservation_once_more(self, key: PodGroupKey, until: float, _: str) -> None:
        if self._reserved_until.get(key.shown) == until:
            del self._reserved_until[key.shown]
            try_with_reservation_once_more(self._world, key)

    def _requeue(self, queued: QueuedPod, failure: Failure | None, nominated_to: str = "") -> None:
        """Requeue a member; the nomination that it had is replaced or taken away."""
        failure = failure or Failure.error("no verdict")
        if failure.rejected:
            failure = replace(failure, nomination=NominatingInfo(nominated_to))
        self._on_refused(queued, failure)
        self._cluster.put_back(queued.pod, requeue(self._world, queued, failure))
