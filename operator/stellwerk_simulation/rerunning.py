"""A journal lived through again under another profile: the same arrivals and ends, decided anew.

`stellwerk simulate --replay FILE --profile NEW` runs it, once for each profile. Invariant: what is
decided here goes through the operator's own handlers, queue, plugins and scheduling loop; of the
recording only arrivals, ends and the cluster's other objects count, none of its decisions.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import ceil
from random import Random  # noqa: TID251 breaks ties; seeded, so that a run is repeatable
from typing import Final

from typing_extensions import override

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.journal.entries import (
    Decided,
    Entry,
    GroupBegun,
    Head,
    SnapshotWritten,
    WatchEvent,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import GROUP_KINDS
from stellwerk.profiles.spec.profile import KIND
from stellwerk.world.decide import apply, decide
from stellwerk_kube.clock import rfc3339_seconds
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.profile_manifests import ProfileManifests
from stellwerk_simulation.instant_claims import InstantClaims
from stellwerk_simulation.instant_cluster import InstantCluster, Pods
from stellwerk_simulation.instant_groups import InstantGroups
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
    """The wait of each pod that got a node."""
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
        self._claims = InstantClaims(IndexedObjectStore(), self._show_claim)
        self._operator, self._clock = offline_operator(
            head, lambda own: Random(seed if own is None else own), self._claims
        )
        self._handlers, self.world = self._operator.handlers, self._operator.world
        self._claims.objects = self.world.objects
        for profile in profiles:
            self._handlers.on_object(KIND, None, profile)
        self.refusals = dict(self.world.profiles.refusals)
        """Reasons for which profiles cannot serve, by schedulerName."""
        self._whose = _profiles_of(profiles)
        self._others: dict[str, JsonObject] = {}
        """Pods that a selector may have later, by uid."""
        self._cluster = InstantCluster(self.world, self, self._claims)
        self._time = VirtualTime(
            self.world, self._clock, self._operator.active, self._schedule_one, self._cluster
        )
        self._groups = InstantGroups(
            self.world, self._cluster, self._time, lambda *_: None, self._arrive_late
        )
        self._origin_seconds: float | None = None
        self._has_begun = False
        """Whether pods are decided on."""
        self._pending: dict[str, JsonObject] = {}
        """Pods that wait here for a node, by uid."""
        self._placed: dict[str, JsonObject] = {}
        self._arrived: dict[str, float] = {}
        self._evicted: set[str] = set()
        self._versions = count(1)
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
        elif entry.kind == RESOURCE_CLAIM and entry.event_type != "DELETED":
            with skipping_malformed(entry):
                claim = self._claims.as_seen(entry.obj, self._decides_devices_of)
                if claim is not None:
                    deliver(self._handlers, replace(entry, obj=claim))
        else:
            deliver(self._handlers, entry)

    def _decides_devices_of(self, uid: str) -> bool:
        """Whether a pod, or a group, by uid, gets its devices here and not as recorded."""
        if uid in self._pending or uid in self._placed:
            return True
        groups = self.world.pod_groups.groups.values()
        return any(each.group is not None and each.group.uid == uid for each in groups)

    def _show_claim(self, event_type: str, claim: JsonObject) -> None:
        self._handlers.on_object(RESOURCE_CLAIM, event_type, claim)

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
        """Whether it shows a pod that waits for a node for the first time, or claims made for it.

        The controller of claims holds up none that came with the pod, nor do conditions of groups.
        """
        if event.kind in GROUP_KINDS or event.kind == RESOURCE_CLAIM:
            return event.event_type != "DELETED"
        uid = _uid(event.obj)
        if uid in self._pending:
            return _claims(event.obj) != _claims(self._pending[uid])
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
        self._claims.given_up(uid)

    # --- decisions ------------------------------------------------------------------------------

    async def _schedule_one(self, queued: QueuedPod) -> None:
        world, pod = self.world, queued.pod
        profile = world.profiles.of(pod)
        if profile is None:
            world.queue.delete(pod.uid)
            return
        self._arrive_late(pod.uid)
        self.outcomes.releases[str(profile.compatibility.version)] = None
        if pod.group is not None and profile.places_groups:
            self._groups.schedule(queued, profile)
            return
        if pod.terminating or pod.uid in world.cache.assumed_pods:
            world.queue.done(pod.uid)
            return
        world.cache.update_snapshot()
        decision = decide(world, pod, profile, profile.new_state(pod))
        self._cluster.carry_out(queued, decision, apply(world, queued, decision))

    def _arrive_late(self, uid: str) -> None:
        """The labels of the pod's namespace are others now."""
        if uid in self._others:
            self._arrive(uid, self._others[uid])

    # --- what becomes of pods -------------------------------------------------------------------

    @override
    def bind(self, assumed: PodInfo) -> None:
        uid, node_name, now = assumed.uid, assumed.node_name, self._clock.monotonic()
        obj = self._pending.pop(uid)
        # As kubelets write it: whole seconds.
        started = {"startTime": rfc3339_seconds(self._clock.now())}
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
        """Show a pod that waits, under the next version: without one it would be no news."""
        metadata = {**obj["metadata"], "resourceVersion": f"rerun {next(self._versions)}"}
        self._pending[uid] = obj = {**obj, "metadata": metadata}
        self._handlers.on_pod("MODIFIED", obj)


def _uid(obj: JsonObject) -> str:
    return str(obj["metadata"].get("uid") or "")


def _claims(obj: JsonObject) -> object:
    return (obj.get("status") or {}).get("resourceClaimStatuses")


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
