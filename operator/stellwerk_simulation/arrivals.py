"""Arrivals of a run in their order, and the order of the nodes among which ties break.

The protocol is that of the published experiment: the list is shuffled and then cut or filled up
with pods drawn from it until it asks for a share of the cluster's GPUs. Invariant: everything
follows from the trace, the seed and the share.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from stellwerk.models.gpu import WHOLE
from stellwerk.plugins.gpu.fragmentation import TypicalPod
from stellwerk_simulation.cluster_objects import ClusterObjects
from stellwerk_simulation.lagged_fibonacci import LaggedFibonacci
from stellwerk_simulation.trace import TraceNode, TracePod

_DRAWS_OF_WATCHERS: Final = 10
_TYPICAL_SHARE: Final = 0.95
"""Share of the pods that the typical shapes together make up, as in `snapshot.pod_shapes`."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The pods of a run and its nodes."""

    pods: Sequence[TracePod]
    """In the order in which they arrive."""
    nodes: Sequence[TraceNode]
    """By rank: of nodes with equal scores the first is chosen."""
    cluster_objects: ClusterObjects = field(default_factory=ClusterObjects)


def as_listed(nodes: Sequence[TraceNode], pods: Sequence[TracePod]) -> Arrivals:
    """Pods and nodes in the order of their files."""
    return Arrivals(pods, nodes)


def inflated(
    nodes: Sequence[TraceNode], pods: Sequence[TracePod], share: float, seed: int
) -> Arrivals:
    """A random order of the pods, cut or filled up to a share of all GPUs."""
    numbers = LaggedFibonacci(seed)
    numbers.int63()
    by_name = sorted(pods, key=lambda pod: pod.name)
    wanted = share * gpu_capacity(nodes)
    arriving = list(by_name)
    numbers.shuffle(arriving)
    demand = sum(pod.total_milli for pod in arriving)
    if demand < wanted:
        arriving += _resampled(by_name, numbers, wanted - demand)
    while demand > wanted:
        demand -= arriving.pop(numbers.below(len(arriving))).total_milli
    for _ in range(_DRAWS_OF_WATCHERS):
        numbers.int63()
    ranks = numbers.permutation(len(nodes))
    in_order = sorted(nodes, key=lambda node: node.name)
    ranked = sorted(zip(ranks, in_order, strict=True), key=lambda each: each[0])
    return Arrivals(arriving, [node for _, node in ranked])


def _resampled(
    by_name: Sequence[TracePod], numbers: LaggedFibonacci, room: float
) -> list[TracePod]:
    """Pods drawn with replacement until one device of the next would be too much."""
    drawn: list[TracePod] = []
    if not any(pod.total_milli for pod in by_name):
        return drawn  # or it would never end
    while True:
        pod = by_name[numbers.below(len(by_name))]
        if pod.gpu_milli > room:
            return drawn
        room -= pod.total_milli
        drawn.append(replace(pod, name=f"{pod.name}-{len(drawn)}"))


def gpu_capacity(nodes: Sequence[TraceNode]) -> int:
    """Thousandths of all devices."""
    return WHOLE * sum(node.devices for node in nodes)


def typical_pods(pods: Sequence[TracePod]) -> list[TypicalPod]:
    """The commonest kinds, as many as make up 95 % of the pods."""
    counts = Counter(
        (pod.cpu_millis, pod.gpu_milli, pod.devices, "|".join(pod.models)) for pod in pods
    )
    typical: list[TypicalPod] = []
    covered = 0
    for count, kind in sorted(((n, kind) for kind, n in counts.items()), reverse=True):
        if covered >= _TYPICAL_SHARE * len(pods):
            break
        cpu_millis, gpu_milli, devices, models = kind
        admitted = tuple(models.split("|")) if models else ()
        typical.append(TypicalPod(cpu_millis, gpu_milli, devices, admitted, count))
        covered += count
    return typical


def planned_kinds(pods: Sequence[TracePod]) -> list[tuple[TypicalPod, int]]:
    """Every kind, and the memory in MiB that its pods request on average."""
    memory: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter()
    counts: Counter[tuple[int, int, int, tuple[str, ...]]] = Counter()
    for pod in pods:
        kind = (pod.cpu_millis, pod.gpu_milli, pod.devices, pod.models)
        counts[kind] += 1
        memory[kind] += pod.memory_mib
    return [
        (TypicalPod(*kind, count), round(memory[kind] / count))
        for kind, count in sorted(counts.items())
    ]
