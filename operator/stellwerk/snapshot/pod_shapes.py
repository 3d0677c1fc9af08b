"""The shapes of pods that a cluster was asked to run, counted in limited memory.

A shape is the part of a pod that GPU plugins compare: cpu, GPUs, and the models that it admits.
Plugins without typical pods of their own read the counts. The snapshot keeps them, so that an
edited profile goes on with those of the one before. Invariants: a shape follows from the pod's
requests and selectors, and has a bounded size. A pod counts once, however often it is tried. The
counts follow from the pods and their order, never from time. Made-up shapes, however many, replace
only the rarest ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from stellwerk.models.gpu import MODEL_LABEL, GpuRequest, gpu_request, refusal
from stellwerk.models.pod import PodInfo
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.snapshot.columns import ChangeLog, HasRows, RowCursor
from stellwerk_kube.resource_amounts import CPU, MEMORY

MAX_SHAPES: Final = 1024
"""Shapes that are counted; beyond it a new shape takes the place of the rarest."""
MAX_TYPICAL_SHAPES: Final = 128
"""Shapes that are called typical, because plugins judge every node by each of them."""
_TYPICAL_SHARE: Final = 0.95
"""Share of the pods that the typical shapes together make up, if MAX_TYPICAL_SHAPES suffice."""
HALF_LIFE_PODS: Final = 10_000
"""Number of later pods after which a pod counts half, so that old habits of a cluster fade."""
_RECOUNT_SHARE: Final = 0.05
"""Recompute the typical shapes when this share of the pods is new."""
_GROWTH: Final = 2.0 ** (1 / HALF_LIFE_PODS)
"""Factor from the weight of one pod to that of the next: later pods weigh more, so that the older
need not be written again."""
_MAX_UIDS: Final = 1 << 17
"""Pods whose uids are kept, so that each counts once; beyond it the oldest is dropped."""
_MIB: Final = 1 << 20
_MAX_MEMORY_MIB: Final = 1 << 31
_COMES_WITH_NODES: Final = frozenset({"apps/v1 DaemonSet", "v1 Node"})
_NONE: Final = GpuRequest(0, 0)
_MAX_CPU_MILLIS: Final = 10_000_000
_MAX_DEVICES: Final = 64
_MAX_MODELS: Final = 16
"""Limits of a plausible shape (`GpuShape.plausible`): more than any node has, so that made-up pods
do not count."""


class GpuShape(NamedTuple):
    """The request that pods of one kind have in common; memory aside."""

    cpu_millis: int
    gpu_milli: int
    """Thousandths of each device; 0: it requests none."""
    devices: int
    models: tuple[str, ...]
    """The models that it admits, sorted; empty: any."""

    @property
    def plausible(self) -> bool:
        """True if some node could hold such a pod, and the shape is small."""
        return (
            self.cpu_millis <= _MAX_CPU_MILLIS
            and self.devices <= _MAX_DEVICES
            and len(self.models) <= _MAX_MODELS
        )


def gpu_shape(pod: PodInfo) -> GpuShape:
    """The shape of a pod; one that asks for what no node can give counts as one without GPUs."""
    requests = pod.amounts.requests
    request = gpu_request(requests) or _NONE
    models = admitted_models(pod.spec) if request.devices else ()
    return GpuShape(requests.get(CPU, 0), request.milli, request.devices, models)


def is_in_vain(pod: PodInfo) -> bool:
    """Return whether a pod asks for GPUs in a way that no node can serve."""
    return bool(refusal(pod.amounts.requests))


def admitted_models(spec: SchedulingSpec) -> tuple[str, ...]:
    """The models that nodeSelector and required node affinity admit, sorted; empty: any."""
    admitted: set[str] | None = None
    if MODEL_LABEL in spec.node_selector:
        admitted = {spec.node_selector[MODEL_LABEL]}
    if spec.required_node_affinity is not None:
        by_term = [
            [
                requirement.values
                for requirement in term.match_expressions
                if requirement.key == MODEL_LABEL and requirement.operator == "In"
            ]
            for term in spec.required_node_affinity.terms
        ]
        if by_term and all(by_term):
            named = {model for values in by_term for model in frozenset.intersection(*values)}
            admitted = named if admitted is None else admitted & named
    return tuple(sorted(admitted or ()))


class ShowsPods(HasRows, Protocol):
    """The nodes that pods are seen on: a snapshot."""

    pods: list[Mapping[str, PodInfo]]
    usage_changes: ChangeLog
    open_trials: int


class CountedShape(NamedTuple):
    """A shape, and what is remembered of its pods."""

    shape: GpuShape
    pods: float
    """Number of its pods, older ones as fractions."""
    memory_mib: float
    """Average memory request of its pods."""


class _Tally:
    """Weights of one shape, in units of the newest pod's when counting began."""

    __slots__ = ("memory", "pods")

    def __init__(self) -> None:
        self.pods = 0.0
        self.memory = 0.0


class PodShapes:
    """Counts pods by shape, each for the time being; a fork remembers and does not go on."""

    def __init__(self) -> None:
        self._tallies: dict[GpuShape, _Tally] = {}
        self._uids: dict[str, None] = {}
        """The pods counted last, oldest first."""
        self._cursor: RowCursor | None = None
        self._newest = 1.0
        """Weight of the next pod."""
        self._total = 0.0
        self._news = 0
        """Pods counted since `typical` was last recomputed."""
        self._is_copy = False
        self.count = 0
        """Number of pods counted so far."""
        self.generation = 0
        """Number of times that `typical` was recomputed."""
        self.typical: Sequence[CountedShape] = ()
        """The commonest shapes, as many as make up 95 % of the pods, commonest first."""

    @property
    def remembered(self) -> float:
        """The number of pods that are remembered, older ones as fractions."""
        return self._total / self._newest

    def shapes(self) -> list[CountedShape]:
        """All shapes, commonest first; of a fork, the typical ones."""
        if self._is_copy:
            return list(self.typical)
        return sorted(
            (
                CountedShape(shape, tally.pods / self._newest, tally.memory / tally.pods)
                for shape, tally in self._tallies.items()
            ),
            key=lambda seen: (-seen.pods, seen.shape),
        )

    def fork(self) -> "PodShapes":
        """The counts for a fork of the snapshot; where nothing was seen yet, it looks itself."""
        if not self.count:
            return PodShapes()
        copy = PodShapes()
        copy._is_copy = True
        copy._total = self.remembered
        copy.count, copy.generation, copy.typical = self.count, self.generation, self.typical
        return copy

    # --- counting ---------------------------------------------------------------------------------

    def follow(self, snapshot: ShowsPods) -> None:
        """Count the pods that have come to nodes, whatever placed them."""
        if self._is_copy or snapshot.open_trials:
            return
        if self._cursor is None:
            self._cursor = RowCursor(snapshot, snapshot.usage_changes)
        if self._cursor.current:
            return
        changed = self._cursor.changed()
        for row in range(snapshot.size) if changed is None else changed:
            self.see(snapshot.pods[row].values())
        self._cursor.catch_up()

    def see(self, pods: Iterable[PodInfo]) -> None:
        """Count those of the pods that were not counted yet."""
        if self._is_copy:
            return
        for pod in pods:
            if pod.uid not in self._uids:
                self._uids[pod.uid] = None
                if len(self._uids) > _MAX_UIDS:
                    del self._uids[next(iter(self._uids))]
                self._count(pod)

    def _count(self, pod: PodInfo) -> None:
        """Count a pod that chooses its node; those of DaemonSets and mirror pods come with one."""
        if is_in_vain(pod) or (pod.owner is not None and pod.owner[0] in _COMES_WITH_NODES):
            return
        shape = gpu_shape(pod)
        if not shape.plausible:
            return
        memory_mib = min(pod.amounts.requests.get(MEMORY, 0) / _MIB, _MAX_MEMORY_MIB)
        tally = self._tallies.get(shape) or self._place_for(shape)
        tally.pods += self._newest
        tally.memory += self._newest * memory_mib
        self._total += self._newest
        self._newest *= _GROWTH
        self.count += 1
        self._news += 1
        if self._news >= _RECOUNT_SHARE * self.remembered:
            self._settle()

    def _place_for(self, shape: GpuShape) -> _Tally:
        if len(self._tallies) >= MAX_SHAPES:
            rarest = min(self._tallies, key=lambda each: self._tallies[each].pods)
            self._total -= self._tallies.pop(rarest).pods
        tally = self._tallies[shape] = _Tally()
        return tally

    def _settle(self) -> None:
        """Work out what is typical, and let the newest pod weigh 1 again."""
        for tally in self._tallies.values():
            tally.pods /= self._newest
            tally.memory /= self._newest
        self._newest = 1.0
        self._total = sum(tally.pods for tally in self._tallies.values())
        self._news = 0
        self.generation += 1
        # The commonest shapes, until they cover nearly all pods.
        self.typical, covered = [], 0.0
        for seen in self.shapes()[:MAX_TYPICAL_SHAPES]:
            if covered >= _TYPICAL_SHARE * self._total:
                break
            self.typical.append(seen)
            covered += seen.pods
