"""Pods that no node of a trace would take even if it were empty, by what they request.

Experiments name them before anything runs. Invariant: only amounts and models are compared; what a
simulation does with such a pod is for its conduct to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stellwerk.models.gpu import DEVICES, MILLI, WHOLE
from stellwerk.models.node import parse_node
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_resources import CPU, MEMORY
from stellwerk_simulation.trace import TraceNode, TracePod

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Shape:
    """What nodes alike offer."""

    amounts: frozenset[tuple[str, int]]
    model: str


def pods_that_fit_nowhere(pods: Sequence[TracePod], nodes: Sequence[TraceNode]) -> list[TracePod]:
    """Those of the pods that are larger than every node, in their order."""
    shapes = {_Shape(frozenset(_offers(node).items()), node.model) for node in nodes}
    offers = [(dict(shape.amounts), shape.model) for shape in shapes]
    known: dict[tuple[frozenset[tuple[str, int]], tuple[str, ...]], bool] = {}
    found = []
    for pod in pods:
        wanted = _wants(pod)
        key = frozenset(wanted.items()), pod.models
        if key not in known:
            known[key] = any(_fits(wanted, pod.models, *offer) for offer in offers)
        if not known[key]:
            found.append(pod)
    return found


def _offers(node: TraceNode) -> Mapping[str, int]:
    if node.manifest is not None:
        return parse_node(node.manifest).allocatable
    return {
        CPU: node.cpu_millis,
        MEMORY: node.memory_mib * _MIB,
        DEVICES: node.devices,
        MILLI: node.devices * WHOLE,
    }


def _wants(pod: TracePod) -> Mapping[str, int]:
    if pod.manifest is not None:
        return parse_pod(pod.manifest).amounts.requests
    return {
        CPU: pod.cpu_millis,
        MEMORY: pod.memory_mib * _MIB,
        DEVICES: pod.devices,
        MILLI: pod.total_milli,
    }


def _fits(
    wanted: Mapping[str, int], models: Sequence[str], offered: Mapping[str, int], model: str
) -> bool:
    amounts = all(amount <= offered.get(resource, 0) for resource, amount in wanted.items())
    return amounts and (not models or model in models)
