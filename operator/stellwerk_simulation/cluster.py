"""The World of a simulation: nodes and pods of a trace in the words of the scheduler.

A simulation decides on it. Invariant: nothing here decides; the World, its queue and its profile
are made of the parts that the operator's are made of.
"""

import heapq
from collections.abc import Callable, Sequence
from functools import cache
from random import Random  # noqa: TID251 breaks ties; seeded, so that a run is repeatable
from typing import Any, Generic, TypeVar

from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.backend.queued_pod import ActiveItem
from stellwerk.backend.scheduling_queue import SchedulingQueue
from stellwerk.framework.interface import APICall
from stellwerk.framework.services import ClusterClient, NumberSources
from stellwerk.framework.worker import PendingResult, Worker
from stellwerk.models.gpu import DEVICES, MILLI, MODEL_LABEL, WHOLE
from stellwerk.models.pod import PodInfo, ResolvePriority, parse_pod
from stellwerk.plugins.registry import watched_kinds
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.gangs.pod_groups import PodGroupStates
from stellwerk.world.loop import ActiveQ
from stellwerk.world.profiles import Profiles, RecordedRandom
from stellwerk.world.world import World, offline_profile
from stellwerk_kube.clock import Clock, VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.trace import TraceNode, TracePod

Result = TypeVar("Result")


class VirtualWorker(Worker):
    """Takes the stretch that it is made with, however long the work really takes."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock, self._seconds = clock, seconds

    @override
    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        return _Delivered(work(), self._clock, self._clock.monotonic() + self._seconds)


class _Delivered(PendingResult[Result], Generic[Result]):
    def __init__(self, value: Result, clock: Clock, at_seconds: float) -> None:
        self._value, self._clock, self._at_seconds = value, clock, at_seconds

    @override
    def ready(self) -> bool:
        return self._clock.monotonic() >= self._at_seconds

    @override
    def result(self) -> Result:
        return self._value


PODS_PER_NODE = 1001
"""More than any node of the traces is ever given."""

_OF_THE_PAST = frozenset({"annotations", "resourceVersion"})
"""Metadata of a manifest about the pod's life in another cluster."""
_OF_A_LIFE = frozenset({"nodeName"})
"""Fields of its specification about that life: the node on which the pod ran."""


class ActivePods(ActiveQ):
    """The activeQ of a simulation, by the sort keys of the profile's QueueSort."""

    def __init__(self) -> None:
        self._items: list[ActiveItem] = []

    def __call__(self, item: ActiveItem) -> None:
        """Take over an item from the scheduling queue."""
        heapq.heappush(self._items, item)

    @override
    def empty(self) -> bool:
        return not self._items

    @override
    def get_nowait(self) -> ActiveItem:
        return heapq.heappop(self._items)


def make_world(  # noqa: PLR0913 - what a World begins with, and what is special
    nodes: Sequence[TraceNode],
    profile: LoadedProfile,
    seed: int,
    active: ActivePods,
    cluster_objects: ClusterObjects | None = None,
    clock: VirtualClock | None = None,
    plan_seconds: float = 0.0,
    sources: Callable[[World], NumberSources] | None = None,
    *,
    client: ClusterClient | None = None,
    write_later: Callable[[APICall], None] | None = None,
) -> World:
    """A World with these nodes and nothing on them, in virtual time.

    `cluster_objects`: what else there is; `plan_seconds`: how long the work of plugins takes there;
    `sources` makes what reads numbers for plugins; `client`: what they write to, if to anything;
    `write_later` has happen what they do not wait for.

    Raises:
        ConfigurationError: one of these objects is wrong.
        ProfileError: a plugin of the profile refuses its arguments.
    """
    profiles, nominator = Profiles(compatibility=profile.auto), Nominator()
    clock = clock or VirtualClock()
    cluster_cache = Cache()
    world = World(
        cache=cluster_cache,
        objects=IndexedObjectStore(),
        priority_classes=PriorityClasses(),
        nominator=nominator,
        queue=SchedulingQueue(active, profiles, nominator=nominator),
        profiles=profiles,
        clock=clock,
        random=RecordedRandom(Random(seed)),
        pod_groups=PodGroupStates(
            lambda name: name in profiles.served, profiles.profile_name, cluster_cache.assumed_pods
        ),
    )
    for node in nodes:
        world.cache.set_node(parse_node(node.manifest or node_manifest(node)))
    if cluster_objects is not None:
        cluster_objects.load(world, watched_kinds(profile))
    served = offline_profile(
        profile,
        world.cache,
        world.objects,
        nominator,
        world.random,
        world.clock,
        world.pod_groups,
        worker=VirtualWorker(clock, plan_seconds),
        compatibility=profile.auto,
        sources=None if sources is None else sources(world),
        client=client,
        preempting=world.preempting,
        write_later=write_later,
    )
    profiles.serve([served], {})
    world.cache.update_snapshot()
    return world


def node_manifest(node: TraceNode) -> JsonObject:
    """The v1.Node of a trace's node."""
    allocatable: dict[str, Any] = {
        "cpu": f"{node.cpu_millis}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(PODS_PER_NODE),
    }
    if node.devices:
        allocatable |= {DEVICES: str(node.devices), MILLI: str(node.devices * WHOLE)}
    labels = {MODEL_LABEL: node.model} if node.model else {}
    return {
        "metadata": {"name": node.name, "labels": labels},
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


class PodMaker:
    """Pods of a trace as the scheduler sees them; those that ask the same are parsed once."""

    def __init__(
        self,
        scheduler_name: str,
        resolve_priority: ResolvePriority | None = None,
    ) -> None:
        """`resolve_priority`: the priority of a class, for pods whose manifests name one."""
        self._name = scheduler_name
        self._resolve_priority = resolve_priority
        self._parsed = cache(lambda kind: parse_pod(pod_manifest(kind, scheduler_name)))

    def pod(self, pod: TracePod) -> PodInfo:
        """The pod, unbound, with its name as its uid."""
        if pod.manifest is not None:
            return self._own(pod, pod.manifest)
        kind = TracePod("", pod.cpu_millis, pod.memory_mib, pod.devices, pod.gpu_milli, pod.models)
        made: PodInfo = self._parsed(kind).with_node("")
        made.name = made.uid = pod.name
        return made

    def with_claims(
        self, pod: TracePod, claims_for: Callable[[JsonObject], Sequence[JsonObject]]
    ) -> PodInfo | None:
        """The pod, once its claims are made; None: none has to be made for it.

        `claims_for` makes them and returns the pod's resourceClaimStatuses.
        """
        manifest = pod.manifest
        if manifest is None or not manifest["spec"].get("resourceClaims"):
            return None
        bare = self._bare(manifest)
        identified = {**bare["metadata"], "uid": pod.name}
        own = {**bare, "metadata": identified, "status": manifest.get("status")}
        statuses = claims_for(own)
        if not statuses:
            return None
        return self._parse(pod, {**bare, "status": {"resourceClaimStatuses": statuses}})

    def _own(self, pod: TracePod, manifest: JsonObject) -> PodInfo:
        """A pod with a manifest of its own, as it was before it had a node."""
        return self._parse(pod, self._bare(manifest))

    def _bare(self, manifest: JsonObject) -> JsonObject:
        spec = {key: value for key, value in manifest["spec"].items() if key not in _OF_A_LIFE}
        metadata = {
            key: value for key, value in manifest["metadata"].items() if key not in _OF_THE_PAST
        }
        return {"metadata": metadata, "spec": spec | {"schedulerName": self._name}}

    def _parse(self, pod: TracePod, bare: JsonObject) -> PodInfo:
        made = parse_pod(bare, self._resolve_priority)
        made.uid = pod.name
        return made


def pod_manifest(pod: TracePod, scheduler_name: str) -> JsonObject:
    """The v1.Pod of a trace's pod."""
    requests = {"cpu": f"{pod.cpu_millis}m", "memory": f"{pod.memory_mib}Mi"}
    limits = {}
    if pod.devices:
        shared = pod.gpu_milli < WHOLE
        # The API wants a limit for what cannot be overcommitted.
        limits = {MILLI if shared else DEVICES: str(pod.gpu_milli if shared else pod.devices)}
    resources = {"requests": requests | limits, "limits": limits}
    spec: JsonObject = {
        "schedulerName": scheduler_name,
        "containers": [{"name": "main", "resources": resources}],
    }
    if pod.models:
        admitted = {"key": MODEL_LABEL, "operator": "In", "values": list(pod.models)}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [admitted]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        spec["affinity"] = {"nodeAffinity": required}
    return {"metadata": {"name": pod.name, "namespace": "default"}, "spec": spec}
