"""Numbers of nodes by shape that hold some pods at least cost, shown by a simulation.

`stellwerk plan fit` calls it. Invariant: a plan that is returned was simulated, and every pod that
any shape can take had a node there; what no shape takes is named beforehand.
"""

import copy
import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from stellwerk.errors import ConfigurationError
from stellwerk.framework.diagnosis import reason_counts
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group_key import COSCHEDULING_LABEL
from stellwerk.models.profile import LoadedProfile
from stellwerk.world.world import World
from stellwerk_simulation.arrivals import as_listed, typical_pods
from stellwerk_simulation.cluster import ActivePods, PodMaker, make_world, node_manifest
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.trace import TraceNode, TracePod

_MOST_TRIALS: Final = 60
_LEAST_STEP: Final = 0.01
_TRIALS_BELOW: Final = 6
"""So often less is tried again, between what was too little and what was enough."""
_MOST_NODES: Final = 20_000
_POD_COUNT: Final = "pods"
_HOSTNAME: Final = "kubernetes.io/hostname"
_OF_OTHERS: Final = frozenset({"schedulingGroup", "resourceClaims"})
"""What a pod's specification says of its group and its claims."""


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


@dataclass(frozen=True, slots=True)
class _Kind:
    """Pods that ask the same."""

    requests: dict[str, int]
    fits: tuple[bool, ...]
    """By shape."""
    count: int


def fit(
    pods: Sequence[TracePod], shapes: Sequence[TraceNode], profile: LoadedProfile, seconds: float
) -> FitPlan:
    """The cheapest nodes found that hold the pods under a profile.

    Raises:
        ConfigurationError: no shape takes any of the pods, or no plan was found in time.
    """
    shapes = [_named(shape, shape.name) for shape in shapes]
    pods = [_by_itself(pod) for pod in pods]
    world = make_world(shapes, profile, 0, ActivePods())
    kinds, homeless = _kinds(world, pods, shapes, profile)
    if not kinds:
        pod, reason = next(iter(homeless.items()))
        message = "no shape takes any of the pods, even if it is empty"
        raise ConfigurationError(f"{message}: {pod}: {reason}")
    wanted = [pod for pod in pods if pod.name not in homeless]
    search = _Search(wanted, shapes, kinds, profile, seconds)
    counts, cost = search.run()
    return FitPlan(counts, search.bound, cost, homeless, len(wanted))


def _by_itself(pod: TracePod) -> TracePod:
    """The pod without its group and its claims: a shape says nothing of what they ask for."""
    if pod.manifest is None:
        return pod
    metadata, spec = pod.manifest["metadata"], pod.manifest["spec"]
    labels = metadata.get("labels") or {}
    alone = {key: value for key, value in spec.items() if key not in _OF_OTHERS}
    if len(alone) == len(spec) and COSCHEDULING_LABEL not in labels:
        return pod
    kept = {key: value for key, value in labels.items() if key != COSCHEDULING_LABEL}
    manifest = {**pod.manifest, "metadata": {**metadata, "labels": kept}, "spec": alone}
    return replace(pod, manifest=manifest)


def nothing_to_do(shapes: Sequence[TraceNode]) -> FitPlan:
    """The plan for no pods."""
    return FitPlan([0] * len(shapes), 0.0, 0.0, {}, 0)


class _Search:
    """Nodes with enough room in sum, with more and more of it until a simulation places all."""

    def __init__(
        self,
        pods: Sequence[TracePod],
        shapes: Sequence[TraceNode],
        kinds: Sequence[_Kind],
        profile: LoadedProfile,
        seconds: float,
    ) -> None:
        self._pods, self._shapes, self._kinds = pods, shapes, kinds
        self._profile, self._seconds = profile, seconds
        self._offers = [_offer(shape) for shape in shapes]
        self._prices = [shape.hourly_price for shape in shapes]
        if not any(self._prices):
            self._prices = [1.0] * len(shapes)
        self._placed: dict[tuple[int, ...], int] = {}
        self.bound = 0.0

    def run(self) -> tuple[Sequence[int], float]:
        """The cheapest counts that held all, and their cost.

        Raises:
            ConfigurationError: none did.
        """
        too_little, demand = 1.0, 1.0
        for trial in range(_MOST_TRIALS):
            counts, cost, least = self._cheapest(demand)
            self.bound = self.bound if trial else least
            missing = len(self._pods) - self._simulated(counts)
            if not missing:
                return self._less(too_little, demand, (counts, cost)) if trial else (counts, cost)
            # Room in sum is not room on one node: the demand is raised by what found none.
            too_little = demand
            demand *= 1 + max(_LEAST_STEP, missing / len(self._pods) / 2)
        message = f"no plan holds all {len(self._pods)} pods after {_MOST_TRIALS} simulations"
        raise ConfigurationError(message)

    def _less(
        self, too_little: float, enough: float, best: tuple[Sequence[int], float]
    ) -> tuple[Sequence[int], float]:
        """The cheapest of what holds all between two demands."""
        for _ in range(_TRIALS_BELOW):
            between = (too_little + enough) / 2
            counts, cost, _ = self._cheapest(between)
            if self._simulated(counts) < len(self._pods):
                too_little = between
                continue
            enough = between
            if cost < best[1]:
                best = counts, cost
        return best

    def _cheapest(self, demand: float) -> tuple[list[int], float, float]:
        return _cheapest(self._kinds, self._offers, self._prices, demand, self._seconds)

    def _simulated(self, counts: Sequence[int]) -> int:
        key = tuple(counts)
        if key not in self._placed:
            self._placed[key] = _simulated(self._pods, self._shapes, counts, self._profile)
        return self._placed[key]


def _kinds(
    world: World, pods: Sequence[TracePod], shapes: Sequence[TraceNode], profile: LoadedProfile
) -> tuple[list[_Kind], dict[str, str]]:
    """Kinds by what they ask of the scheduler, and the pods that no shape takes, with reasons."""
    maker = PodMaker(profile.scheduler_name)
    made = [maker.pod(pod) for pod in pods]
    keys = [(pod.spec, tuple(sorted(pod.amounts.requests.items()))) for pod in made]
    one_of = dict(zip(keys, made, strict=True))
    answers = {key: _fits(world, pod, shapes) for key, pod in one_of.items()}
    kinds = [
        _Kind(dict(key[1]), answers[key][0], count)
        for key, count in Counter(keys).items()
        if any(answers[key][0])
    ]
    homeless = {
        pod.uid: answers[key][1]
        for key, pod in zip(keys, made, strict=True)
        if not any(answers[key][0])
    }
    return kinds, homeless


def _fits(world: World, pod: PodInfo, shapes: Sequence[TraceNode]) -> tuple[tuple[bool, ...], str]:
    """The shapes whose empty nodes pass the profile's filters, with the reason where none does."""
    profile = world.profiles.of(pod)
    if profile is None:
        raise LookupError(f"no profile serves {pod.key}")
    world.cache.update_snapshot()
    filtering = profile.framework.filtering
    found = filtering.find_feasible(pod, sample=False)
    rows = world.cache.snapshot.row_of
    fits = tuple(bool(found.fits[rows[shape.name]]) for shape in shapes)
    if any(fits):
        return fits, ""
    reasons = dict(reason_counts(filtering.diagnose(found, pod).statuses))
    return fits, ", ".join(reasons) or found.pre_filter.message


def _offer(shape: TraceNode) -> dict[str, int]:
    return dict(parse_node(shape.manifest or node_manifest(shape)).allocatable)


def _cheapest(
    kinds: Sequence[_Kind],
    offers: Sequence[dict[str, int]],
    prices: Sequence[float],
    demand: float,
    seconds: float,
) -> tuple[list[int], float, float]:
    """Counts by shape whose room, in sum, is enough for so many times the pods.

    Also their cost, and what no other counts cost less than.
    """
    try:
        highspy: Any = importlib.import_module("highspy")
    except ImportError as error:
        message = "plans need the package highspy: pip install 'stellwerk[planning]'"
        raise ConfigurationError(message) from error
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)  # noqa: FBT003 the solver's interface
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    infinity, nothing = highspy.kHighsInf, np.zeros(0, np.int32)
    resources = sorted({name for kind in kinds for name in kind.requests} | {_POD_COUNT})
    for _ in range(len(offers) * len(resources)):
        solver.addRow(-infinity, 0.0, 0, nothing, np.zeros(0))
    for kind in kinds:
        solver.addRow(kind.count * demand, infinity, 0, nothing, np.zeros(0))
    for shape, offer in enumerate(offers):
        rows = np.arange(len(resources), dtype=np.int32) + shape * len(resources)
        room = np.array([-float(offer.get(name, 0)) / _scale(name) for name in resources])
        solver.addCol(prices[shape], 0.0, float(_MOST_NODES), len(rows), rows, room)
        solver.changeColIntegrality(shape, highspy.HighsVarType.kInteger)
    for number, kind in enumerate(kinds):
        taken = np.array([kind.requests.get(name, 0) / _scale(name) for name in resources])
        taken[resources.index(_POD_COUNT)] = 1.0
        for shape, fits in enumerate(kind.fits):
            if fits:
                rows = np.arange(len(resources), dtype=np.int32) + shape * len(resources)
                rows = np.append(rows, np.int32(len(offers) * len(resources) + number))
                solver.addCol(0.0, 0.0, infinity, len(rows), rows, np.append(taken, 1.0))
    solver.run()
    values = np.array(solver.getSolution().col_value)[: len(offers)]
    if len(values) < len(offers) or not values.any():
        raise ConfigurationError(f"no plan was found in {seconds:g} s")
    counts = [math.ceil(value - 1e-6) for value in values.tolist()]
    cost = sum(number * price for number, price in zip(counts, prices, strict=True))
    return counts, float(cost), float(solver.getInfo().mip_dual_bound)


def _scale(resource: str) -> float:
    """Bytes are counted in MiB, so that a solver's tolerances fit all rows."""
    return float(1 << 20) if resource in {"memory", "ephemeral-storage"} else 1.0


def _simulated(
    pods: Sequence[TracePod],
    shapes: Sequence[TraceNode],
    counts: Sequence[int],
    profile: LoadedProfile,
) -> int:
    """The number of the pods that the nodes hold."""
    nodes = [
        _numbered(shape, number)
        for shape, count in zip(shapes, counts, strict=True)
        for number in range(count)
    ]
    simulation = Simulation(as_listed(nodes, pods), profile, typical_pods(pods), 0)
    return simulation.run(pods, lambda _: None).placed


def _numbered(shape: TraceNode, number: int) -> TraceNode:
    return _named(shape, f"{shape.name}-{number}")


def _named(shape: TraceNode, name: str) -> TraceNode:
    """A node of the shape with a hostname, as every kubelet gives its node one."""
    manifest = copy.deepcopy(shape.manifest or node_manifest(shape))
    labels = (manifest["metadata"].get("labels") or {}) | {_HOSTNAME: name}
    manifest["metadata"] |= {"name": name, "uid": name, "labels": labels}
    return replace(shape, name=name, manifest=manifest)
