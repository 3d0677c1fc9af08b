"""Numbers of nodes by shape that hold some pods at least cost, shown by a simulation.

`stellwerk plan fit` calls it. An integer programme chooses nodes with enough room in sum; the
scheduler then fills them, nodes are added for the pods that found none, and what is not needed is
taken away. Invariant: a plan that is returned was decided as a whole, on all of its nodes with the
pods of the DaemonSets on them; every pod without a node there is named with the reason.
"""

import copy
import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from stellwerk.framework.diagnosis import reason_counts
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_group import COSCHEDULING_LABEL
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.decide import decide
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk.world.supposed_nodes import suppose_node
from stellwerk.world.world import World
from stellwerk_kube.admission import Admission
from stellwerk_kube.clock import Clock, SystemClock
from stellwerk_kube.errors import ConfigurationError, SchedulerError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_simulation.arrivals import Arrivals, typical_pods
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world, node_manifest
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.manifest_errors import made
from stellwerk_simulation.pod_templates import pods_of
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.trace import TraceNode, TracePod

_SHARE_OF_SOLVER: Final = 0.3
"""Share of the time that the solver may take. The rest is for deciding, without which there is no
plan."""
_MAX_NODES_OF_A_SHAPE: Final = 20_000
"""Nodes of one shape in a plan, as many as clusters of Kubernetes have at most, and more."""
_MAX_ROUNDS: Final = 20
"""Times that nodes are added for the pods which found none when all was decided again."""
_MIN_SOLVER_SECONDS: Final = 0.1
"""Time for the solver where the rest of the time is over: a small programme takes less."""
_TOLERANCE: Final = 1e-6
"""The solver's values are whole numbers within this."""
_POD_COUNT: Final = "pods"
_HOSTNAME: Final = "kubernetes.io/hostname"
_OF_OTHERS: Final = frozenset({"schedulingGroup", "resourceClaims"})
"""Fields of a pod's specification about its group and its claims."""
_BESIDE_OTHERS: Final = InterPodAffinity.name
_RESERVED_PRIORITY: Final = 2_000_001_000
"""The priority of system-node-critical: no planned pod preempts the pods of DaemonSets."""
_CLAIM: Final = "PersistentVolumeClaim"


@dataclass(frozen=True, slots=True)
class FitPlan:
    """Nodes to add."""

    counts: Sequence[int]
    """By shape."""
    bound: float
    """No choice costs less; where no shape has a price, a node costs 1."""
    cost: float
    homeless: Mapping[str, str]
    """Pods that no shape takes even if it is empty, and why."""
    placed: int
    unplanned: Mapping[str, str] = field(default_factory=dict)
    """Pods that found no node in addition to the others, however many there were, and why."""
    on_node: Mapping[str, str] = field(default_factory=dict)
    """The node of each pod that has one, by the pod's name: SHAPE-NUMBER."""
    assumed: Sequence[str] = ()
    """Assumptions, and things that are left aside, in sentences."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The objects of a cluster beside the pods to place: volumes, classes, budgets, DaemonSets."""

    cluster_objects: ClusterObjects = field(default_factory=ClusterObjects)
    daemon_sets: Sequence[JsonObject] = ()
    admission: Admission = field(default_factory=Admission)
    """The admission of the pods that DaemonSets have on new nodes."""
    claims_may_lack: bool = True
    """Whether the input need not have the claims that pods name; they are left aside then."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """Pods that ask the same."""

    requests: dict[str, int]
    fits: tuple[bool, ...]
    """By shape."""
    count: int


class _OutOfTimeError(Exception):
    """The time of the search is over."""


def fit(
    pods: Sequence[TracePod],
    shapes: Sequence[TraceNode],
    profile: LoadedProfile,
    seconds: float,
    surroundings: Surroundings | None = None,
    clock: Clock | None = None,
) -> FitPlan:
    """The cheapest nodes found in some seconds that hold the pods under a profile.

    Raises:
        SchedulerError: no plan was decided in time.
    """
    around = surroundings or Surroundings()
    shapes = [_named(shape, shape.name) for shape in shapes]
    pods, assumed = _by_themselves(pods, around)
    search = _Search(shapes, profile, around, seconds, clock or SystemClock())
    kinds, homeless = search.kinds(pods)
    if not kinds:
        nothing = nothing_to_do(shapes)
        return replace(nothing, homeless=homeless, assumed=[*assumed, *search.assumed])
    counts, unplanned, bound = search.run([pod for pod in pods if pod.name not in homeless])
    placed = len(pods) - len(homeless) - len(unplanned)
    cost = search.cost(counts)
    assumed += search.assumed
    return FitPlan(
        counts, min(bound, cost), cost, homeless, placed, unplanned, search.on_node, assumed
    )


def nothing_to_do(shapes: Sequence[TraceNode]) -> FitPlan:
    """The plan for no pods."""
    return FitPlan([0] * len(shapes), 0.0, 0.0, {}, 0)


# --- the pods ---------------------------------------------------------------------------------


def _by_themselves(
    pods: Sequence[TracePod], around: Surroundings
) -> tuple[list[TracePod], list[str]]:
    """The pods without what no shape can answer, and a sentence on what is left aside."""
    claims = {
        (obj["metadata"].get("namespace") or "default", obj["metadata"].get("name")): obj
        for obj in around.cluster_objects.objects
        if obj.get("kind") == _CLAIM and isinstance(obj.get("metadata"), dict)
    }
    immediate = {
        obj["metadata"].get("name")
        for obj in around.cluster_objects.objects
        if obj.get("kind") == "StorageClass"
        and obj.get("volumeBindingMode") != "WaitForFirstConsumer"
    }
    found, without_claims, in_groups, with_devices = [], [], [], []
    for pod in pods:
        if pod.manifest is None:
            found.append(pod)
            continue
        manifest = pod.manifest
        metadata, spec = manifest["metadata"], manifest["spec"]
        labels = metadata.get("labels") or {}
        namespace = metadata.get("namespace") or "default"
        kept = [
            volume
            for volume in spec.get("volumes") or ()
            if (name := _claim_of(metadata.get("name"), volume)) is None
            or not _is_left_aside(claims.get((namespace, name)), immediate, around)
        ]
        alone = {key: value for key, value in spec.items() if key not in _OF_OTHERS}
        if len(kept) < len(spec.get("volumes") or ()):
            without_claims.append(pod.name)
        if spec.get("schedulingGroup") or COSCHEDULING_LABEL in labels:
            in_groups.append(pod.name)
        if spec.get("resourceClaims"):
            with_devices.append(pod.name)
        own = {key: value for key, value in labels.items() if key != COSCHEDULING_LABEL}
        alone |= {"volumes": kept} if "volumes" in spec else {}
        found.append(
            replace(
                pod, manifest={**manifest, "metadata": {**metadata, "labels": own}, "spec": alone}
            )
        )
    sentences = []
    for names, what in (
        (without_claims, "the volume claims that are unbound or missing in the input,"),
        (in_groups, "the groups"),
        (with_devices, "the claims for devices"),
    ):
        if names:
            whose = names[0] if len(names) == 1 else f"{len(names)} pods, such as {names[0]},"
            sentences.append(f"{what} of {whose} are ignored")
    return found, sentences


def _claim_of(pod_name: object, volume: JsonObject) -> str | None:
    """The name of the claim behind a volume; None: there is none."""
    if "ephemeral" in volume:
        return f"{pod_name}-{volume.get('name')}"
    source = volume.get("persistentVolumeClaim")
    return str(source.get("claimName")) if isinstance(source, dict) else None


def _is_left_aside(claim: JsonObject | None, immediate: set[object], around: Surroundings) -> bool:
    """Whether nothing can be said of a claim: it is missing, or its controller has yet to act.

    A live cluster has all claims, and what a pod waits for there no node can give.
    """
    if not around.claims_may_lack:
        return False
    if claim is None:
        return True
    spec = claim.get("spec") or {}
    class_name = spec.get("storageClassName")
    return not spec.get("volumeName") and (not class_name or class_name in immediate)


# --- the search -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trial:
    """A choice of nodes, filled by the scheduler."""

    counts: tuple[int, ...]
    world: World
    waiting: tuple[TracePod, ...]
    """The pods that found no node."""


class _Search:
    """Nodes with enough room in sum, and then as many as the scheduler needs."""

    def __init__(
        self,
        shapes: Sequence[TraceNode],
        profile: LoadedProfile,
        around: Surroundings,
        seconds: float,
        clock: Clock,
    ) -> None:
        self._shapes, self._profile, self._around = shapes, profile, around
        self._seconds, self._clock = seconds, clock
        self._end_seconds = clock.monotonic() + seconds
        self._prices = [shape.hourly_price for shape in shapes]
        if not any(self._prices):
            self._prices = [1.0] * len(shapes)
        self._world = make_world(shapes, profile, 0, ActivePods(), around.cluster_objects)
        self._maker = PodMaker(profile.scheduler_name, self._world.priority_classes.resolve)
        self._daemons = [_daemon_pods(shape, around) for shape in shapes]
        self._offers = [
            _offer(shape, daemons) for shape, daemons in zip(shapes, self._daemons, strict=True)
        ]
        self._kinds: list[_Kind] = []
        self._kind_of: dict[str, _Kind] = {}
        """By the name of the pod."""
        self._best: _Trial | None = None
        self.assumed: list[str] = []
        self._filled_world, self._runs = self._world, EqualPodRuns(self._world)
        self.on_node: dict[str, str] = {}
        """The node of each pod in the plan that was found."""
        classes = dict.fromkeys(
            name
            for index, shape in enumerate(shapes)
            for name in self._suppose(self._world, index, shape)
        )
        self._world.cache.update_snapshot()
        if classes:
            self.assumed.append(
                f"new nodes are assumed to have room for every volume of {', '.join(classes)}: the "
                "driver says how much there is when a node is there"
            )

    def cost(self, counts: Sequence[int]) -> float:
        """The price of a choice."""
        return float(sum(n * price for n, price in zip(counts, self._prices, strict=True)))

    def kinds(self, pods: Sequence[TracePod]) -> tuple[Sequence[_Kind], dict[str, str]]:
        """Kinds by what they ask of the scheduler, and the pods that no shape takes, with why."""
        answers: dict[object, tuple[tuple[bool, ...], str]] = {}
        counts: Counter[tuple[tuple[tuple[str, int], ...], tuple[bool, ...]]] = Counter()
        alike: dict[str, tuple[tuple[tuple[str, int], ...], tuple[bool, ...]]] = {}
        homeless = {}
        for pod in pods:
            made = self._maker.pod(pod)
            requests = tuple(sorted(made.amounts.requests.items()))
            key = made.spec, requests, made.namespace, made.volumes
            if key not in answers:
                answers[key] = self._fits(made)
            fits, reason = answers[key]
            if not any(fits):
                homeless[pod.name] = reason
                continue
            alike[pod.name] = requests, fits
            counts[requests, fits] += 1
        known = {each: _Kind(dict(each[0]), each[1], count) for each, count in counts.items()}
        self._kinds = list(known.values())
        self._kind_of = {name: known[each] for name, each in alike.items()}
        return self._kinds, homeless

    def run(self, pods: Sequence[TracePod]) -> tuple[Sequence[int], Mapping[str, str], float]:
        """The cheapest counts that were decided, the pods without a node there, and the bound.

        Raises:
            SchedulerError: nothing was decided in time.
        """
        made = {pod.name: self._maker.pod(pod) for pod in pods}
        # As the queue pops them; what comes first is not preempted then.
        pods = sorted(pods, key=lambda pod: -made[pod.name].priority)
        counts, bound = self._cheapest(self._kinds)
        late = False
        try:
            self._add(pods, counts)
            self._less(pods, bound)
        except _OutOfTimeError:
            late = True
        best = self._best
        if best is None:
            message = f"no plan for {len(pods)} pods was decided in {self._seconds:g} s"
            raise SchedulerError(f"{message}; --seconds gives the search more time")
        if late:
            self.assumed.append(
                f"the search ended after {self._seconds:g} s: there may be a cheaper plan"
            )
        cache = best.world.cache
        self.on_node = {
            pod.name: found.node_name for pod in pods if (found := cache.pod(pod.name)) is not None
        }
        why = self._why(best, late=late)
        if why:
            bound = self._cheapest(self._kinds_without(why))[1] if self._left() else 0.0
        # No pod has a node: none is to be added.
        counts = list(best.counts) if len(why) < len(pods) else [0] * len(best.counts)
        return counts, why, bound

    def _left(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self._end_seconds - self._clock.monotonic())

    def _check_time(self) -> None:
        if not self._left():
            raise _OutOfTimeError

    def _add(self, pods: Sequence[TracePod], counts: Sequence[int]) -> None:
        """Decide the first choice, and add nodes until all pods have one that can get one."""
        self._best = self._filled(pods, counts)
        for _ in range(_MAX_ROUNDS):
            more = self._more(self._best) if self._best.waiting else self._best.counts
            if more == self._best.counts:
                return
            # Where all nodes are there from the start, pods may come to other ones.
            trial = self._filled(pods, more)
            if len(trial.waiting) >= len(self._best.waiting):
                return
            self._best = trial

    def _less(self, pods: Sequence[TracePod], bound: float) -> None:
        """Take nodes away, the dearest first, as long as no more pods are without a node."""
        for shape in sorted(range(len(self._shapes)), key=lambda each: -self._prices[each]):
            best = self._best
            step = 0 if best is None else best.counts[shape]
            while best is not None and step:
                fewer = [*best.counts[:shape], best.counts[shape] - step, *best.counts[shape + 1 :]]
                is_possible = best.waiting or self.cost(fewer) >= bound - _TOLERANCE
                if fewer[shape] >= 0 and is_possible and any(fewer):
                    trial = self._filled(pods, fewer)
                    if len(trial.waiting) <= len(best.waiting):
                        self._best = best = trial
                        continue
                step //= 2

    # --- deciding -----------------------------------------------------------------------------

    def _suppose(self, world: World, shape: int, node: TraceNode) -> list[str]:
        """Add a node of a shape, with its DaemonSets' pods; returns what `suppose_node` does."""
        assumed = suppose_node(world, parse_node(node.manifest or node_manifest(node)))
        for daemon in self._daemons[shape]:
            there = daemon.with_node(node.name)
            there.uid = there.name = f"{daemon.name} {node.name}"
            world.cache.set_pod(there)
        return assumed

    def _withdraw(self, world: World, shape: int, node: TraceNode) -> None:
        for daemon in self._daemons[shape]:
            world.cache.remove_pod(f"{daemon.name} {node.name}")
        world.cache.remove_node(node.name)
        world.cache.update_snapshot()

    def _filled(self, pods: Sequence[TracePod], counts: Sequence[int]) -> _Trial:
        """The pods on these nodes, in rounds: one may have waited for another one to be there."""
        nodes = [
            (index, _numbered(shape, number))
            for index, (shape, count) in enumerate(zip(self._shapes, counts, strict=True))
            for number in range(count)
        ]
        arrivals = Arrivals(pods, [node for _, node in nodes], self._around.cluster_objects)
        simulation = Simulation(arrivals, self._profile, typical_pods(pods), 0)
        world = simulation.world
        for index, node in nodes:
            self._check_time()
            self._suppose(world, index, node)
        world.cache.update_snapshot()
        waiting = list(pods)
        while True:
            for pod in waiting:
                self._check_time()
                if world.queue.pod(pod.name) is None:
                    simulation.arrive(pod)
            left = [pod for pod in pods if world.cache.pod(pod.name) is None]
            if not left or len(left) >= len(waiting):
                return _Trial(tuple(counts), world, tuple(left))
            waiting = left

    def _more(self, trial: _Trial) -> tuple[int, ...]:
        """The counts with nodes on which pods that wait found one, the cheapest that takes each."""
        counts, world = list(trial.counts), trial.world
        hopeless: set[object] = set()
        for number, pod in enumerate(trial.waiting):
            made = self._maker.pod(pod)
            key = made.spec, tuple(made.amounts.requests.items()), made.volumes
            if key in hopeless:
                continue
            if not self._placed(world, made):
                shapes = self._by_price(self._kind_of[pod.name], len(trial.waiting) - number)
                if not any(self._opened(world, made, shape, counts) for shape in shapes):
                    hopeless.add(key)
                    continue
            # What came may be what another pod waits for.
            hopeless.clear()
        return tuple(counts)

    def _opened(self, world: World, pod: PodInfo, shape: int, counts: list[int]) -> bool:
        """Whether a pod takes a new node of a shape, which is there from now on then."""
        self._check_time()
        if counts[shape] >= _MAX_NODES_OF_A_SHAPE:
            return False
        node = _numbered(self._shapes[shape], counts[shape])
        self._suppose(world, shape, node)
        if not self._placed(world, pod):
            self._withdraw(world, shape, node)
            return False
        counts[shape] += 1
        return True

    def _placed(self, world: World, pod: PodInfo) -> bool:
        """Whether the scheduler finds a node for a pod, which is on it from now on then."""
        world.cache.update_snapshot()
        [served] = world.profiles.served.values()
        if self._filled_world is not world:
            self._filled_world, self._runs = world, EqualPodRuns(world)
        decision = self._runs.decide(pod, served)
        if not decision.node_name:
            return False
        state = decision.search.found.state
        assumed = decision.search.pod.with_node(decision.node_name)
        world.cache.assume_pod(assumed)
        if served.framework.binding.reserve(state, assumed, decision.node_name).ok:
            return True
        served.framework.binding.unreserve(state, assumed, decision.node_name)
        world.cache.forget_pod(assumed.uid)
        return False

    def _by_price(self, kind: _Kind, number: int) -> list[int]:
        """The shapes that take a kind of pods, the cheapest for so many of them first."""
        prices = {}
        for shape, (fits, offer) in enumerate(zip(kind.fits, self._offers, strict=True)):
            room = [offer.get(name, 0) // n for name, n in kind.requests.items() if n]
            held = max(1, min([*room, offer.get(_POD_COUNT, 0), number]))
            if fits:
                prices[shape] = self._prices[shape] / held
        return sorted(prices, key=lambda shape: (prices[shape], shape))

    def _why(self, trial: _Trial, *, late: bool) -> dict[str, str]:
        """Reasons for which pods have no node, as the scheduler says them."""
        world, found = trial.world, dict[str, str]()
        [served] = world.profiles.served.values()
        reasons: dict[object, str] = {}
        world.cache.update_snapshot()
        for pod in trial.waiting:
            made = self._maker.pod(pod)
            key = made.spec, made.volumes
            if late:
                found[pod.name] = "the time ran out before a node was found for it"
                continue
            if key not in reasons:
                failure = decide(world, made, served).failure
                reasons[key] = failure.message if failure else "it was placed and preempted"
            found[pod.name] = reasons[key]
        return found

    def _fits(self, pod: PodInfo) -> tuple[tuple[bool, ...], str]:
        """The shapes whose new nodes pass the profile's filters; the reason where none does."""
        profile = self._world.profiles.of(pod)
        if profile is None:
            raise LookupError(f"no profile serves {pod.key}")
        filtering = profile.framework.filtering
        found = filtering.find_feasible(pod, sample=False)
        rows = self._world.cache.snapshot.row_of
        fits = tuple(bool(found.fits[rows[shape.name]]) for shape in self._shapes)
        if any(fits):
            return fits, ""
        statuses = filtering.diagnose(found, pod).statuses
        # Only the pod that it wants to be with may be missing, which is placed with it.
        beside = {
            name for name, each in zip(rows, statuses, strict=True) if each.plugin == _BESIDE_OTHERS
        }
        if beside and found.pre_filter.ok:
            return tuple(shape.name in beside for shape in self._shapes), ""
        return fits, ", ".join(dict(reason_counts(statuses))) or found.pre_filter.message

    # --- the integer programme ----------------------------------------------------------------

    def _kinds_without(self, pods: Mapping[str, str]) -> list[_Kind]:
        fewer = Counter(id(self._kind_of[name]) for name in pods)
        return [replace(kind, count=kind.count - fewer[id(kind)]) for kind in self._kinds]

    def _cheapest(self, kinds: Sequence[_Kind]) -> tuple[list[int], float]:
        """Counts by shape with enough room in sum, and what no other counts cost less than.

        No counts at all where the solver finds none in its time.
        """
        try:
            highspy: Any = importlib.import_module("highspy")
        except ImportError as error:
            message = "plans need the package highspy: pip install 'stellwerk[planning]'"
            raise ConfigurationError(message) from error
        kinds = [kind for kind in kinds if kind.count]
        if not kinds:
            return [0] * len(self._shapes), 0.0
        solver = highspy.Highs()
        solver.setOptionValue("output_flag", False)  # noqa: FBT003 the solver's interface
        solver.setOptionValue("threads", 1)
        limit = min(_SHARE_OF_SOLVER * self._seconds, max(_MIN_SOLVER_SECONDS, self._left()))
        solver.setOptionValue("time_limit", limit)
        infinity, nothing = highspy.kHighsInf, np.zeros(0, np.int32)
        resources = sorted({name for kind in kinds for name in kind.requests} | {_POD_COUNT})
        for _ in range(len(self._offers) * len(resources)):
            solver.addRow(-infinity, 0.0, 0, nothing, np.zeros(0))
        for kind in kinds:
            solver.addRow(kind.count, infinity, 0, nothing, np.zeros(0))
        for shape, offer in enumerate(self._offers):
            rows = np.arange(len(resources), dtype=np.int32) + shape * len(resources)
            room = np.array([-float(offer.get(name, 0)) / _scale(name) for name in resources])
            # A node without a pod is not needed.
            most = min(_MAX_NODES_OF_A_SHAPE, sum(kind.count for kind in kinds if kind.fits[shape]))
            solver.addCol(self._prices[shape], 0.0, float(most), len(rows), rows, room)
            solver.changeColIntegrality(shape, highspy.HighsVarType.kInteger)
        for number, kind in enumerate(kinds):
            taken = np.array([kind.requests.get(name, 0) / _scale(name) for name in resources])
            taken[resources.index(_POD_COUNT)] = 1.0
            for shape, fits in enumerate(kind.fits):
                if fits:
                    rows = np.arange(len(resources), dtype=np.int32) + shape * len(resources)
                    rows = np.append(rows, np.int32(len(self._offers) * len(resources) + number))
                    solver.addCol(0.0, 0.0, infinity, len(rows), rows, np.append(taken, 1.0))
        solver.run()
        values = np.array(solver.getSolution().col_value)[: len(self._offers)]
        bound = float(solver.getInfo().mip_dual_bound)
        counts = [0] * len(self._shapes)
        if len(values) == len(self._offers):
            counts = [max(0, math.ceil(value - _TOLERANCE)) for value in values.tolist()]
        return counts, max(0.0, bound) if math.isfinite(bound) else 0.0


def _offer(shape: TraceNode, daemons: Sequence[PodInfo]) -> dict[str, int]:
    """The room that an empty node of a shape offers beside the pods of its DaemonSets."""
    offer = dict(parse_node(shape.manifest or node_manifest(shape)).allocatable)
    taken: Counter[str] = Counter({_POD_COUNT: len(daemons)})
    for daemon in daemons:
        taken.update(daemon.amounts.requests)
    return {name: max(0, amount - taken[name]) for name, amount in offer.items()}


def _daemon_pods(shape: TraceNode, around: Surroundings) -> list[PodInfo]:
    """The pods that DaemonSets have on a node of a shape."""
    node = shape.manifest or node_manifest(shape)
    found = []
    make = partial(pods_of, namespace="default", most=1, nodes=[node], admission=around.admission)
    for daemon_set in around.daemon_sets:
        pods = made(make, daemon_set, "DaemonSets")
        for manifest in pods:
            spec = {**manifest["spec"], "priority": _RESERVED_PRIORITY}
            pod = parse_pod({**manifest, "spec": spec})
            pod.name = f"{pod.namespace}/{daemon_set['metadata']['name']}"
            found.append(pod)
    return found


def _scale(resource: str) -> float:
    """Bytes are counted in MiB, so that a solver's tolerances fit all rows."""
    return float(1 << 20) if resource in {"memory", "ephemeral-storage"} else 1.0


def _numbered(shape: TraceNode, number: int) -> TraceNode:
    return _named(shape, f"{shape.name}-{number}")


def _named(shape: TraceNode, name: str) -> TraceNode:
    """A node of the shape with a hostname, as every kubelet gives its node one."""
    manifest = copy.deepcopy(shape.manifest or node_manifest(shape))
    labels = (manifest["metadata"].get("labels") or {}) | {_HOSTNAME: name}
    manifest["metadata"] |= {"name": name, "uid": name, "labels": labels}
    return replace(shape, name=name, manifest=manifest)
