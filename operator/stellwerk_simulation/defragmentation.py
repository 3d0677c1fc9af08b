"""A plan of the few pods to move so that whole nodes, or whole GPUs of one node, become free.

`stellwerk plan defrag` calls it. Invariant: a plan that is returned was carried out, move by move
and by the profile's own decisions, on forks of the World, once for each of several ways to break
ties; its goal held after every one of them, and no budget was overdrawn: the moves of one plan
together never take more from a PodDisruptionBudget than its status allows now, for an eviction is
not sure to be made good before the next one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import Final

from typing_extensions import override

from stellwerk.models.eviction_budgets import EvictionBudgets
from stellwerk.models.gpu import DEVICES, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion
from stellwerk_simulation.current_placement import CurrentPlacement, Rescheduled

_MIRROR: Final = "kubernetes.io/config.mirror"


@dataclass(frozen=True, slots=True)
class MoveRules:
    """The rules by which a user lets pods move."""

    bare_pods: bool
    """Also pods without a controller, which nothing makes anew."""
    max_priority: int


def stays_with_its_node(pod: PodInfo, manifest: JsonObject) -> bool:
    """Whether a pod belongs to its node, which counts as empty with it: DaemonSets, mirror pods."""
    kind = pod.owner[0].rpartition(" ")[2] if pod.owner is not None else ""
    return kind in {"DaemonSet", "Node"} or _MIRROR in _annotations(manifest)


def reason_to_stay(
    pod: PodInfo, manifest: JsonObject, rules: MoveRules, budgets: EvictionBudgets
) -> str:
    """The reason why a pod is never moved; empty: it may be."""
    reasons = (
        (stays_with_its_node(pod, manifest), "belongs to a DaemonSet or is a mirror pod"),
        (pod.owner is None and not rules.bare_pods, "has no controller (--bare-pods)"),
        (pod.priority > rules.max_priority, "has a priority above --max-priority"),
        (pod.terminating, "is terminating"),
        (pod.group is not None, "belongs to a group of pods"),
        (bool(manifest["spec"].get("resourceClaims")), "holds resource claims"),
        (len(budgets.of(pod)) > 1, "has more than one PodDisruptionBudget"),
        (not budgets.allow([pod]), "has a PodDisruptionBudget that allows no disruption"),
    )
    return next((reason for holds, reason in reasons if holds), "")


def _annotations(manifest: JsonObject) -> Mapping[str, str]:
    return manifest["metadata"].get("annotations") or {}


SEEDS: Final = 5
"""A plan holds however ties are broken, as far as so many seeds show."""
_MAX_OPTIONS: Final = 64
"""Sets of pods whose leaving may reach the goal, the smallest first. Further ones are not tried."""
_MAX_OPTIONS_PER_NODE: Final = 16
"""Sets of one node among these, so that other nodes are looked at."""
_MAX_TRIALS: Final = 200
"""Sets of pods of one size that are tried: their number grows with the factorial of the size."""
_MAX_HELPERS: Final = 16
"""Pods that are tried, one by one, to make room for a pod that has to move."""
NODES: Final = "nodes"
GPUS: Final = "gpus"


@dataclass(frozen=True, slots=True)
class Goal:
    """The nodes or resources that are to become free."""

    kind: str
    """`nodes`: so many nodes more than now; `gpus`: so many whole GPUs on one node."""
    number: int
    resource: str = DEVICES
    """The resource that counts whole GPUs."""

    @override
    def __str__(self) -> str:
        return f"{self.kind}={self.number}"


@dataclass(frozen=True, slots=True)
class DefragPlan:
    """Evictions in their order, and where the scheduler then places the pods."""

    frees: Sequence[str]
    """The nodes that become empty, or the one that gets its GPUs."""
    cordons: Sequence[str]
    """Nodes to be cordoned first, for good."""
    moves: Sequence[Rescheduled]
    stays: Counter[str]
    """The number of pods that are never moved, by the reason."""
    waiting: int
    nothing_found: str = ""
    """The things that hold the pods, where no moves reach the goal; empty: some were found."""


@dataclass(frozen=True, slots=True)
class _Option:
    """Pods that leave a node so that it becomes free."""

    node_name: str
    pods: tuple[PodInfo, ...]


@dataclass(slots=True)
class _Branch:
    """A cluster after some moves."""

    placement: CurrentPlacement
    rescheduled: list[Rescheduled]

    def fork(self, seed: int = 0) -> "_Branch":
        return _Branch(self.placement.fork(seed), self.rescheduled.copy())

    def evict(self, pod: PodInfo, avoid: frozenset[str], *, hold: bool = False) -> bool:
        """Move a pod to where it then lands, another node than its own."""
        moved = self.placement.evict(pod, avoid | {pod.node_name}, hold=hold)
        if moved is not None:
            self.rescheduled.append(moved)
        return moved is not None


class Defragmentation:
    """A search for the fewest moves, greedy and bounded."""

    def __init__(
        self,
        placement: CurrentPlacement,
        goal: Goal,
        rules: MoveRules,
        most_moves: int,
        *,
        cordon: bool,
    ) -> None:
        self._placement, self._goal = placement, goal
        self._most_moves, self._cordon = most_moves, cordon
        self._budgets = EvictionBudgets(placement.world.objects.list("PodDisruptionBudget"))
        if self._budgets.malformed:
            raise ConfigurationError(self._budgets.malformed)
        self._pods = list(placement.world.cache.pods())
        self._why = {
            pod.uid: reason_to_stay(pod, placement.manifests[pod.uid], rules, self._budgets)
            for pod in self._pods
        }
        self._empty = len(self._empty_nodes(placement))

    def plan(self) -> DefragPlan:
        """The moves.

        Raises:
            ConfigurationError: no node offers the resource of the goal.
            PluginFailure: a plugin raised.
        """
        if why := self._out_of_reach():
            return replace(self._as_plan((), (), ()), nothing_found=why)
        if self._goal.kind == GPUS and (free := self._with_idle_gpus(self._placement)):
            return self._as_plan(free[:1], (), ())
        number = self._goal.number if self._goal.kind == NODES else 1
        options = [each for each in self._options() if number == 1 or self._tried([each])]
        chosen = islice(combinations(options, number), _MAX_TRIALS)
        for option in sorted(chosen, key=_moves_of):
            branch = self._tried(option)
            if branch is not None and (rescheduled := self._verified(option, branch)):
                names = [each.node_name for each in option]
                lasting = self._cordon and self._goal.kind == NODES
                return self._as_plan(names, names if lasting else (), rescheduled)
        return replace(self._as_plan((), (), ()), nothing_found=self._nothing_found())

    def _as_plan(
        self, frees: Sequence[str], cordons: Sequence[str], moves: Sequence[Rescheduled]
    ) -> DefragPlan:
        return DefragPlan(frees, cordons, moves, self._held(), self._placement.waiting)

    def _out_of_reach(self) -> str:
        """The reason why no moves could reach the goal; empty: they might.

        Raises:
            ConfigurationError: no node offers the resource.
        """
        nodes, goal = list(self._placement.world.cache.nodes()), self._goal
        if goal.kind == NODES and goal.number > len(nodes) - self._empty:
            there = f"of {len(nodes)} nodes {self._empty} are empty"
            return f"no plan for {goal}: {there}, so there are too few others"
        if goal.kind == NODES:
            return ""
        most = max((node.allocatable.get(goal.resource, 0) for node in nodes), default=0)
        if not most:
            offered = {name for node in nodes for name in node.allocatable if "/" in name}
            near = suggestion(goal.resource, offered)
            raise ConfigurationError(f"--gpu-resource: no node offers {goal.resource}{near}")
        if goal.number > most:
            return f"no plan for {goal}: no node has that many {goal.resource}; the most is {most}"
        return ""

    # --- what to begin with -----------------------------------------------------------------------

    def _options(self) -> list[_Option]:
        """Ways to free one node, those of few moves first."""
        offered = self._of_nodes() if self._goal.kind == NODES else self._of_gpus()
        fitting = (
            option
            for option in offered
            if len(option.pods) <= self._most_moves and self._budgets.allow(option.pods)
        )
        return sorted(fitting, key=lambda each: (len(each.pods), each.node_name))[:_MAX_OPTIONS]

    def _of_nodes(self) -> Iterator[_Option]:
        for node in self._placement.world.cache.nodes():
            pods = _leaving(self._placement, node.name)
            if pods and not any(self._why[pod.uid] for pod in pods):
                yield _Option(node.name, tuple(pods))

    def _of_gpus(self) -> Iterator[_Option]:
        for node in self._placement.world.cache.nodes():
            enough = node.allocatable.get(self._goal.resource, 0) >= self._goal.number
            if enough and not node.unschedulable:
                yield from islice(self._of_gpus_on(node.name), _MAX_OPTIONS_PER_NODE)

    def _of_gpus_on(self, node_name: str) -> Iterator[_Option]:
        there = list(self._placement.world.cache.pods_on(node_name).values())
        holders = [
            pod for pod in there if _holds_gpus(pod, self._goal.resource) and not self._why[pod.uid]
        ]
        for number in range(1, min(len(holders), self._most_moves) + 1):
            for pods in islice(combinations(holders, number), _MAX_TRIALS):
                left = [pod for pod in there if pod not in pods]
                if self._idle(node_name, left) >= self._goal.number:
                    yield _Option(node_name, pods)

    # --- moves ------------------------------------------------------------------------------------

    def _tried(self, options: Sequence[_Option]) -> _Branch | None:
        """The cluster after the moves of these options; None: some pod has nowhere to go."""
        branch = _Branch(self._placement.fork(0), [])
        names = frozenset(option.node_name for option in options)
        self._cordoned(branch, names)
        for option in options:
            for pod in sorted(option.pods, key=_size, reverse=True):
                if self._moved(branch, pod, names):
                    continue
                helped = self._after_another(branch, pod, names)
                if helped is None:
                    return None
                branch = helped
        moved = [moved.pod for moved in branch.rescheduled]
        return branch if len(moved) <= self._most_moves and self._budgets.allow(moved) else None

    def _after_another(
        self, branch: _Branch, pod: PodInfo, names: frozenset[str]
    ) -> _Branch | None:
        """A swap: the cluster after another pod made room for this one, and both have moved."""
        avoid = names if self._goal.kind == NODES else frozenset[str]()
        for helper in islice(self._helpers(branch, pod, names), _MAX_HELPERS):
            trial = branch.fork()
            if self._moved(trial, helper, avoid) and self._moved(trial, pod, names):
                return trial
        return None

    def _moved(self, branch: _Branch, pod: PodInfo, avoid: frozenset[str]) -> bool:
        """Whether a pod was moved, its node held only if that is allowed and needed."""
        return branch.evict(pod, avoid) or (self._cordon and branch.evict(pod, avoid, hold=True))

    def _helpers(self, branch: _Branch, pod: PodInfo, names: frozenset[str]) -> Iterable[PodInfo]:
        """Pods that would leave room enough, as resources go, the smallest first."""
        cache = branch.placement.world.cache
        moved = {moved.pod.uid for moved in branch.rescheduled}
        found = []
        for node in cache.nodes():
            if node.name in names or node.unschedulable:
                continue
            there = cache.pods_on(node.name).values()
            used = Counter[str]()
            for other in there:
                used.update(other.amounts.requests)
            found += [
                other
                for other in there
                if other.uid not in moved
                and not self._why[other.uid]
                and all(
                    node.allocatable.get(name, 0) - used[name] + other.amounts.requests.get(name, 0)
                    >= request
                    for name, request in pod.amounts.requests.items()
                )
            ]
        return sorted(found, key=_size)

    def _verified(self, options: Sequence[_Option], branch: _Branch) -> Sequence[Rescheduled]:
        """The moves as they are carried out from the beginning; none: the goal is not sure."""
        names = frozenset(option.node_name for option in options)
        leaving = {pod.uid for option in options for pod in option.pods}
        runs = []
        for seed in range(SEEDS):
            run = _Branch(self._placement.fork(seed), [])
            self._cordoned(run, names)
            for moved in branch.rescheduled:
                swapped = moved.pod.uid not in leaving and self._goal.kind == GPUS
                avoid = frozenset[str]() if swapped else names
                if not run.evict(moved.pod, avoid, hold=moved.held):
                    return ()
            if not self._holds(run.placement, names):
                return ()
            runs.append(run)
        return runs[0].rescheduled

    def _cordoned(self, branch: _Branch, names: Iterable[str]) -> None:
        """Nodes to be emptied take no further pods; one that gets its GPUs is to take some."""
        for name in sorted(names) if self._cordon and self._goal.kind == NODES else ():
            branch.placement.cordon(name)

    # --- the goal ---------------------------------------------------------------------------------

    def _holds(self, placement: CurrentPlacement, names: frozenset[str]) -> bool:
        """Whether these nodes are free, and none has been filled in their place."""
        if self._goal.kind == GPUS:
            return names.issubset(self._with_idle_gpus(placement))
        empty = self._empty_nodes(placement)
        return names.issubset(empty) and len(empty) >= self._empty + self._goal.number

    def _empty_nodes(self, placement: CurrentPlacement) -> list[str]:
        nodes = placement.world.cache.nodes()
        return [node.name for node in nodes if not _leaving(placement, node.name)]

    def _with_idle_gpus(self, placement: CurrentPlacement) -> list[str]:
        """The nodes that take pods and have so many GPUs that no pod holds a part of."""
        before, cache = self._placement.world.cache, placement.world.cache
        return [
            node.name
            for node in before.nodes()
            if not node.unschedulable
            and self._idle(node.name, list(cache.pods_on(node.name).values())) >= self._goal.number
        ]

    def _idle(self, node_name: str, pods: Sequence[PodInfo]) -> int:
        """GPUs of a node that none of these pods holds a part of."""
        node, resource = self._placement.world.cache.node(node_name), self._goal.resource
        offered = node.allocatable.get(resource, 0) if node is not None else 0
        if resource != DEVICES:
            return offered - sum(pod.amounts.requests.get(resource, 0) for pod in pods)
        named = {number for pod in pods for number in pod.gpu_devices}
        unnamed = [gpu_request(pod.amounts.requests) for pod in pods if not pod.gpu_devices]
        return offered - len(named) - sum(each.devices for each in unnamed if each is not None)

    # --- words ------------------------------------------------------------------------------------

    def _held(self) -> Counter[str]:
        return Counter(reason for reason in self._why.values() if reason)

    def _nothing_found(self) -> str:
        text = f"no plan of at most {self._most_moves} moves was found for {self._goal}"
        held = "; ".join(
            f"{number} pods stay: each {reason}" for reason, number in sorted(self._held().items())
        )
        hint = (
            ""
            if self._cordon
            else "; with --cordon, pods do not return to the nodes that they leave"
        )
        return (
            f"{text} (the search is limited, so there may be one)"
            + (f"; {held}" if held else "")
            + hint
        )


def _leaving(placement: CurrentPlacement, node_name: str) -> list[PodInfo]:
    """The pods on a node that keep it from being empty."""
    there = placement.world.cache.pods_on(node_name).values()
    return [pod for pod in there if not stays_with_its_node(pod, placement.manifests[pod.uid])]


def _holds_gpus(pod: PodInfo, resource: str) -> bool:
    requests = pod.amounts.requests
    asks = gpu_request(requests) is not None if resource == DEVICES else False
    return asks or bool(requests.get(resource))


def _size(pod: PodInfo) -> tuple[int, int, str]:
    requests = pod.amounts.requests
    return requests.get("cpu", 0), requests.get("memory", 0), pod.key


def _moves_of(options: Sequence[_Option]) -> int:
    return sum(len(option.pods) for option in options)
