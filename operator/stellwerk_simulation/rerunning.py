"""A journal lived through again under another profile: the same arrivals and ends, decided anew.

`stellwerk simulate --replay FILE --profile NEW` runs it, once for each profile. Invariant: what is
decided here goes through the operator's own handlers, queue, plugins and scheduling loop; of the
recording only arrivals, ends and the cluster's other objects count, none of its decisions.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from random import Random  # noqa: TID251 breaks ties; seeded, so that a run is repeatable
from typing import Final

from typing_extensions import override

from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.cases.profile_manifests import ProfileManifests
from stellwerk.explain.steps import finished
from stellwerk.journal.entries import (
    Decided,
    Entry,
    GroupBegun,
    Head,
    SnapshotWritten,
    WatchEvent,
)
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group_key import PodGroupKey
from stellwerk.models.profile import KIND
from stellwerk.world.decide import Effects, Failure, apply, decide, requeue
from stellwerk.world.gangs.group_attempt import answered
from stellwerk.world.gangs.group_decision import (
    GroupDecision,
    RemainingMembers,
    decide_group,
    member_failures,
    reserve_nodes,
    try_with_reservation_once_more,
)
from stellwerk.world.gangs.group_request import TakenGroup, Untried, take_members, why_untried
from stellwerk.world.gangs.queue_order import after_attempt, requeue_inadmissible, requeue_untried
from stellwerk.world.pod_status import NominatingInfo
from stellwerk.world.profiles import ServedProfile
from stellwerk_simulation.instant_cluster import InstantCluster, Pods
from stellwerk_simulation.offline_operator import deliver, offline_operator, skipping_malformed
from stellwerk_simulation.virtual_time import VirtualTime

_ENDED: Final = frozenset({"Succeeded", "Failed"})


@dataclass(slots=True)
class Outcomes:
    """Figures of a journal's pods."""

    releases: dict[str, None] = field(default_factory=dict)
    """The releases of Kubernetes that the decisions followed."""
    arrived: int = 0
    waited_seconds: list[float] = field(default_factory=list)
    """Of each pod that got a node."""
    preempted: int = 0
    nodes_in_use: float = 0.0
    """Nodes with pods that were scheduled in this time, on the average of it."""
    most_nodes_in_use: int = 0

    @property
    def placed(self) -> int:
        """Pods that got a node."""
        return len(self.waited_seconds)

    def waited(self, share: float) -> float:
        """The time within which so large a share of the placed pods got a node, in seconds."""
        ordered = sorted(self.waited_seconds)
        return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


class _NodesInUse:
    """Counts pods by node, and nodes by time."""

    def __init__(self) -> None:
        self._pods: Counter[str] = Counter()
        self._node_of: dict[str, str] = {}
        self._weighted = 0.0
        self._began_seconds: float | None = None
        self._seconds = 0.0
        self.most = 0

    def placed(self, uid: str, node_name: str, now: float) -> None:
        self._pass(now)
        self._node_of[uid] = node_name
        self._pods[node_name] += 1
        self.most = max(self.most, len(self._pods))

    def gone(self, uid: str, now: float) -> None:
        node_name = self._node_of.pop(uid, "")
        if not node_name:
            return
        self._pass(now)
        self._pods[node_name] -= 1
        if not self._pods[node_name]:
            del self._pods[node_name]

    def mean(self, now: float) -> float:
        self._pass(now)
        began = self._began_seconds
        return 0.0 if began is None or now <= began else self._weighted / (now - began)

    def _pass(self, now: float) -> None:
        if self._began_seconds is None:
            self._began_seconds = self._seconds = now
        self._weighted += len(self._pods) * (now - self._seconds)
        self._seconds = now


class AsRecorded:
    """The recording's own figures on its pods; the others are compared with them."""

    def __init__(self, profiles: Sequence[JsonObject]) -> None:
        """`profiles`: whose pods count."""
        self.outcomes = Outcomes()
        self._whose = _profiles_of(profiles)
        self._arrived: dict[str, float] = {}
        self._use = _NodesInUse()
        self._now = 0.0

    def feed(self, entry: Entry) -> None:
        """Take one entry into account."""
        if isinstance(entry, WatchEvent):
            _note_namespace(self._whose, entry)
        if not isinstance(entry, WatchEvent) or entry.kind != "Pod":
            return
        self._now = entry.seconds
        with skipping_malformed(entry):
            self._pod(entry)

    def _pod(self, entry: WatchEvent) -> None:
        uid, node_name = _uid(entry.obj), _node_name(entry.obj)
        if _is_over(entry):
            self._arrived.pop(uid, None)
            self._use.gone(uid, self._now)
        elif node_name and uid in self._arrived:
            self.outcomes.waited_seconds.append(self._now - self._arrived.pop(uid))
            self._use.placed(uid, node_name, self._now)
        elif not node_name and uid not in self._arrived and self._whose.serve(entry.obj):
            self._arrived[uid] = self._now
            self.outcomes.arrived += 1

    def finish(self) -> Outcomes:
        """The outcomes, at the end of the journal."""
        self.outcomes.nodes_in_use = self._use.mean(self._now)
        self.outcomes.most_nodes_in_use = self._use.most
        return self.outcomes


class Rerun(Pods):
    """An operator without a cluster, whose bindings and evictions happen at once."""

    def __init__(self, head: Head, profiles: Sequence[JsonObject], seed: int) -> None:
        """Serve these profiles alone; needs a running event loop."""
        self._operator, self._clock = offline_operator(
            head, lambda own: Random(seed if own is None else own)
        )
        self._handlers, self.world = self._operator.handlers, self._operator.world
        for profile in profiles:
            self._handlers.on_object(KIND, None, profile)
        self.refusals = dict(self.world.profiles.refusals)
        """Why a profile cannot serve, by schedulerName."""
        self._whose = _profiles_of(profiles)
        self._others: dict[str, JsonObject] = {}
        """Pods that a selector may have later, by uid."""
        self._cluster = InstantCluster(self.world, self)
        self._time = VirtualTime(
            self.world, self._clock, self._operator.active, self._schedule_one, self._cluster
        )
        self._origin_seconds: float | None = None
        self._has_begun = False
        """Whether pods are decided on."""
        self._pending: dict[str, JsonObject] = {}
        """Pods that wait here for a node, by uid."""
        self._placed: dict[str, JsonObject] = {}
        self._arrived: dict[str, float] = {}
        self._evicted: set[str] = set()
        self._reserved_until: dict[str, float] = {}
        """When nodes are reserved no longer, by group."""
        self._use = _NodesInUse()
        self.outcomes = Outcomes()

    def feed(self, entry: Entry) -> None:
        """Let one event of the journal happen."""
        self._has_begun = self._has_begun or self._begins(entry)
        if not isinstance(entry, WatchEvent) or entry.kind == KIND:
            return
        if self._origin_seconds is None:
            self._origin_seconds = entry.seconds
        seconds = entry.seconds - self._origin_seconds
        is_together = seconds <= self._clock.monotonic() and self._is_arrival(entry)
        if not is_together:
            if self._has_begun:
                self._time.run()
            self._time.pass_until(seconds)
        with skipping_malformed(entry):
            _note_namespace(self._whose, entry)
        if entry.kind == "Pod":
            with skipping_malformed(entry):
                self._pod(entry)
        else:
            deliver(self._handlers, entry)

    def _begins(self, entry: Entry) -> bool:
        """Whether all first lists were there when this was recorded.

        No operator decides before: a pod of one list would find none of the nodes of another. It
        has recorded what it decided; who only watches has seen a change of what was listed.
        """
        if isinstance(entry, WatchEvent):
            return entry.event_type is not None and any(self.world.cache.nodes())
        return isinstance(entry, SnapshotWritten | Decided | GroupBegun)

    def finish(self) -> Outcomes:
        """The outcomes, at the end of the journal."""
        self._time.run()
        self.outcomes.nodes_in_use = self._use.mean(self._clock.monotonic())
        self.outcomes.most_nodes_in_use = self._use.most
        return self.outcomes

    # --- pods of the journal --------------------------------------------------------------------

    def _pod(self, event: WatchEvent) -> None:
        obj, uid = event.obj, _uid(event.obj)
        if uid in self._evicted:
            return
        if _is_over(event):
            self._end(uid, obj)
        elif uid in self._placed:
            return
        elif uid in self._pending:
            if not _node_name(obj):
                self._show(uid, _nominated(_unscheduled(obj), _nomination(self._pending[uid])))
        elif not _node_name(obj) and self._whose.serve(obj):
            self._arrive(uid, _unscheduled(obj))
            self._handlers.on_pod("ADDED", self._pending[uid])
        else:
            self._others.pop(uid, None)
            if not _node_name(obj) and self._whose.may_serve(obj):
                self._others[uid] = _unscheduled(obj)
            self._handlers.on_pod(event.event_type, obj)

    def _is_arrival(self, event: WatchEvent) -> bool:
        """Whether it shows a pod that waits for a node for the first time."""
        uid = _uid(event.obj)
        is_known = uid in self._pending or uid in self._placed or uid in self._evicted
        return not (event.kind != "Pod" or is_known or _node_name(event.obj) or _is_over(event))

    def _arrive(self, uid: str, obj: JsonObject) -> None:
        self._others.pop(uid, None)
        self._pending[uid] = obj
        self._arrived[uid] = self._clock.monotonic()
        self.outcomes.arrived += 1

    def _end(self, uid: str, obj: JsonObject) -> None:
        self._pending.pop(uid, None)
        self._others.pop(uid, None)
        self._placed.pop(uid, None)
        self._use.gone(uid, self._clock.monotonic())
        self._handlers.on_pod("DELETED", obj)

    # --- decisions ------------------------------------------------------------------------------

    async def _schedule_one(self, queued: QueuedPod) -> None:
        world, pod = self.world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None:
            world.queue.delete(pod.uid)
            return
        self._arrive_late(pod.uid)
        self.outcomes.releases[str(profile.compatibility.release)] = None
        if pod.group is not None and profile.places_groups:
            self._schedule_group(queued, profile)
            return
        if pod.terminating or pod.uid in world.cache.assumed_pods:
            world.queue.done(pod.uid)
            return
        world.cache.update_snapshot()
        decision = decide(world, pod, profile, profile.new_state(pod))
        self._cluster.carry_out(pod, apply(world, queued, decision))

    def _arrive_late(self, uid: str) -> None:
        """The labels of the pod's namespace are others now."""
        if uid in self._others:
            self._arrive(uid, self._others[uid])

    # --- groups -----------------------------------------------------------------------------------

    def _schedule_group(self, queued: QueuedPod, profile: ServedProfile) -> None:
        """Take up, decide and carry out the group of a member that was popped."""
        world = self.world
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
                request = taken.request(world)
                self._carry_out(taken, finished(answered(decide_group(world, profile, request))))
                after_attempt(world, members)
            case Untried.PROFILES_DIFFER, message:
                for each in taken.queued.values():
                    self._requeue(each, Failure.error(message))
            case Untried.TOO_FEW, _:
                for each in taken.queued.values():
                    requeue_untried(world, each)
            case Untried.INADMISSIBLE, _:
                requeue_inadmissible(world, members, taken.queued.values())

    def _carry_out(self, taken: TakenGroup, decision: GroupDecision) -> None:
        """Bind the members that have a node, and requeue the others with their nominations."""
        if decision.placed:
            remaining = RemainingMembers(decision)
            for each in decision.attempt.results:
                if each.assumed is not None:
                    self._arrive_late(each.pod.uid)
                    self._cluster.carry_out(each.pod, Effects(each.assumed))
                elif each.pod.uid not in remaining.uids:
                    self._requeue(taken.queued[each.pod.uid], each.failure)
            self._try_remaining(taken, remaining)
            return
        preemption = decision.preemption
        victims = preemption.victims if preemption is not None else ()
        if victims:
            # Before the members are requeued: they are gated until their victims are gone.
            self.world.preempting.update(taken.queued)
        nodes = self._reserve(taken, decision)
        for uid, failure in member_failures(decision).items():
            self._requeue(taken.queued[uid], failure, nodes.get(uid, ""))
        if victims:
            pods = [each.pod for each in taken.queued.values()]
            self._cluster.evict_for_group(pods, victims)

    def _try_remaining(self, taken: TakenGroup, remaining: RemainingMembers) -> None:
        """Try the members by themselves, preemption included, that were left by a quorum."""
        world, profile = self.world, taken.profile
        for each in remaining.results:
            pod, queued = each.pod, taken.queued[each.pod.uid]
            if not remaining.is_refused(pod):
                world.cache.update_snapshot()
                decision = decide(world, pod, profile, profile.new_state(pod))
                if remaining.helps(decision):
                    self._cluster.carry_out(pod, apply(world, queued, decision))
                    continue
            self._requeue(queued, each.failure)

    def _reserve(self, taken: TakenGroup, decision: GroupDecision) -> Mapping[str, str]:
        """The nodes to which members are nominated while room is made, for a limited time."""
        key = taken.members.key
        self._reserved_until.pop(key.shown, None)
        reservation = reserve_nodes(self.world, taken.profile, taken.members, decision)
        if reservation is None:
            return {}
        if reservation.left_seconds > 0:
            until = self._clock.monotonic() + reservation.left_seconds
            self._reserved_until[key.shown] = until
            self._time.call_at(
                until, key.shown, partial(self._try_with_reservation_once_more, key, until)
            )
        return reservation.nodes

    def _try_with_reservation_once_more(self, key: PodGroupKey, until: float, _: str) -> None:
        if self._reserved_until.get(key.shown) == until:
            del self._reserved_until[key.shown]
            try_with_reservation_once_more(self.world, key)

    def _requeue(self, queued: QueuedPod, failure: Failure | None, nominated_to: str = "") -> None:
        """Requeue a member; the nomination that it had is replaced or taken away."""
        failure = failure or Failure.error("no verdict")
        if failure.rejected:
            failure = replace(failure, nomination=NominatingInfo(nominated_to))
        self._cluster.carry_out(queued.pod, requeue(self.world, queued, failure))

    # --- what becomes of pods -------------------------------------------------------------------

    @override
    def bind(self, assumed: PodInfo) -> None:
        uid, node_name, now = assumed.uid, assumed.node_name, self._clock.monotonic()
        obj = self._pending.pop(uid)
        # As kubelets write it: whole seconds.
        started = {"startTime": self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        bound = {
            **obj,
            "spec": {**obj["spec"], "nodeName": node_name},
            "status": {**(obj.get("status") or {}), **started},
        }
        self._placed[uid] = bound
        self.outcomes.waited_seconds.append(now - self._arrived.pop(uid))
        self._use.placed(uid, node_name, now)
        self._handlers.on_pod("MODIFIED", bound)

    @override
    def delete(self, victim: PodInfo) -> None:
        metadata = {"uid": victim.uid, "namespace": victim.namespace, "name": victim.name}
        self._end(victim.uid, {"metadata": metadata})

    @override
    def nominate(self, pod: PodInfo, node_name: str) -> None:
        obj = self._pending.get(pod.uid)
        if obj is not None:
            self._show(pod.uid, _nominated(obj, node_name))

    @override
    def preempt(self, victims: Sequence[PodInfo]) -> None:
        new = {victim.uid for victim in victims} - self._evicted
        self.outcomes.preempted += len(new)
        self._evicted |= new

    @override
    def refuse(self, uid: str) -> None:
        """It waits in the queue."""

    def _show(self, uid: str, obj: JsonObject) -> None:
        self._pending[uid] = obj
        self._handlers.on_pod("MODIFIED", obj)


def _uid(obj: JsonObject) -> str:
    return str(obj["metadata"].get("uid") or "")


def _node_name(obj: JsonObject) -> str:
    return str((obj.get("spec") or {}).get("nodeName") or "")


def _profiles_of(manifests: Sequence[JsonObject]) -> ProfileManifests:
    profiles = ProfileManifests()
    for each in manifests:
        profiles.add(each)
    return profiles


def _note_namespace(profiles: ProfileManifests, event: WatchEvent) -> None:
    if event.kind != "Namespace":
        return
    if event.event_type == "DELETED":
        profiles.forget(str(event.obj["metadata"]["name"]))
    else:
        profiles.choose_by([event.obj])


def _is_over(event: WatchEvent) -> bool:
    phase = (event.obj.get("status") or {}).get("phase")
    return event.event_type == "DELETED" or phase in _ENDED


def _nomination(obj: JsonObject) -> str:
    return str((obj.get("status") or {}).get("nominatedNodeName") or "")


def _nominated(obj: JsonObject, node_name: str) -> JsonObject:
    return {**obj, "status": {**(obj.get("status") or {}), "nominatedNodeName": node_name}}


def _unscheduled(obj: JsonObject) -> JsonObject:
    """The pod without what the recorded scheduler wrote into its status."""
    status = obj.get("status") or {}
    kept = {key: value for key, value in status.items() if key != "nominatedNodeName"}
    return {**obj, "status": {**kept, "conditions": []}}
