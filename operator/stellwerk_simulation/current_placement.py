"""The current placement: nodes, pods where they are, and the objects that filters read.

Plans of moves begin with it. Invariant: pods are where their manifests say; a pod that is to be
placed anew asks what its manifest asks, without the node and the devices that it has now.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random  # noqa: TID251 breaks ties; seeded, so that a plan is repeatable

from stellwerk.models.node_acts import cordoned
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.decide import Decision, decide
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cluster import ActivePods, make_world
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.manifest_errors import made
from stellwerk_simulation.manifests import nodes_of


@dataclass(frozen=True, slots=True)
class Rescheduled:
    """The node on which the scheduler puts a pod that was evicted."""

    pod: PodInfo
    """As it was: `node_name` is the node that it leaves."""
    node_name: str
    ties: tuple[str, ...]
    """Other nodes with the same score, which the scheduler may as well choose."""
    held: bool = False
    """The node that it leaves is cordoned until the pod is placed."""


@dataclass(slots=True)
class CurrentPlacement:
    """Nodes and pods, and what evictions make of them under one profile."""

    world: World
    scheduler_name: str
    manifests: Mapping[str, JsonObject]
    """Manifests of the pods that have a node, by uid."""
    waiting: int
    """Pods that have no node."""

    def fork(self, seed: int) -> "CurrentPlacement":
        """Copy the placement, to go on from here; ties are broken by the seed."""
        return replace(self, world=self.world.fork(Random(seed)))

    def cordon(self, node_name: str) -> None:
        """Let no further pod come to a node, as `kubectl cordon` does."""
        cache = self.world.cache
        node = cache.node(node_name)
        if node is None:
            raise LookupError(f"there is no node {node_name}")
        cache.set_node(cordoned(node))
        cache.update_snapshot()

    def evict(
        self, pod: PodInfo, avoid: frozenset[str], *, hold: bool = False
    ) -> Rescheduled | None:
        """Take a pod off its node and let the scheduler place it.

        None, and nothing has changed: it would wait, or come to a node that is to be avoided.
        `hold`: its node is cordoned meanwhile.

        Raises:
            PluginFailure: a plugin raised.
        """
        node = self.world.cache.node(pod.node_name)
        if not hold or node is None or node.unschedulable:
            return self._evict(pod, avoid)
        self.cordon(pod.node_name)
        moved = self._evict(pod, avoid)
        self.world.cache.set_node(node)
        self.world.cache.update_snapshot()
        return None if moved is None else replace(moved, held=True)

    def _evict(self, pod: PodInfo, avoid: frozenset[str]) -> Rescheduled | None:
        cache = self.world.cache
        cache.remove_pod(pod.uid)
        cache.update_snapshot()
        served = self.world.profiles.served[self.scheduler_name]
        decision = decide(self.world, self._anew(pod), served, thorough=True)
        moved = Rescheduled(pod, decision.node_name, _ties(decision))
        if moved.node_name and not avoid.intersection((moved.node_name, *moved.ties)):
            state = decision.search.found.state
            assumed = decision.search.pod.with_node(moved.node_name)
            cache.assume_pod(assumed)
            if served.framework.binding.reserve(state, assumed, moved.node_name).ok:
                cache.update_snapshot()
                return moved
            served.framework.binding.unreserve(state, assumed, moved.node_name)
            cache.forget_pod(pod.uid)
        cache.set_pod(pod)
        cache.update_snapshot()
        return None

    def _anew(self, pod: PodInfo) -> PodInfo:
        manifest = self.manifests[pod.uid]
        spec = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
        bare = {**manifest, "spec": spec, "status": {}}
        return _pod(self.world, bare)


def placement_of(
    objects: Sequence[JsonObject], profile: LoadedProfile, source: str
) -> CurrentPlacement:
    """The cluster that objects describe.

    Raises:
        ConfigurationError: there is no node, or an object is wrong.
        ProfileError: a plugin of the profile refuses its arguments.
    """
    cluster_objects = ClusterObjects.among(objects, source)
    world = make_world(nodes_of(objects, source), profile, 0, ActivePods(), cluster_objects)
    manifests: dict[str, JsonObject] = {}
    waiting = 0
    for obj in objects:
        if obj.get("kind") != "Pod":
            continue
        pod = made(partial(_pod, world), obj, source)
        if pod.node_name and not pod.finished:
            world.cache.set_pod(pod)
            manifests[pod.uid] = obj
        waiting += not pod.node_name and not pod.finished
    world.cache.update_snapshot()
    return CurrentPlacement(world, profile.scheduler_name, manifests, waiting)


def _pod(world: World, manifest: JsonObject) -> PodInfo:
    """A pod; one that was written by hand, without a uid, has its key as one."""
    auto = world.profiles.compatibility
    pod = parse_pod(manifest, world.priority_classes.resolve, compatibility=auto)
    pod.uid = pod.uid or pod.key
    return pod


def _ties(decision: Decision) -> tuple[str, ...]:
    if decision.scores is None or decision.best is None:
        return ()
    rows = decision.scores.nodes.row_numbers()[decision.best]
    names = decision.search.snapshot.names(rows.tolist())
    return tuple(sorted(name for name in names if name != decision.node_name))
