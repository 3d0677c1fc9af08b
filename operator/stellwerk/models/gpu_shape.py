"""The shape of a pod as GPU plugins compare pods: cpu, GPUs, and the models that it admits.

Plans and the memory of pods that were seen count by it. Invariant: it follows from what the pod
asks for alone, and is as small for a made-up pod as for any other.
"""

from typing import Final, NamedTuple

from stellwerk.models.gpu import MODEL_LABEL, GpuRequest, gpu_request, refusal
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU
from stellwerk.models.scheduling_spec import SchedulingSpec

_NONE: Final = GpuRequest(0, 0)
_MOST_CPU_MILLIS: Final = 10_000_000
_MOST_DEVICES: Final = 64
_MOST_MODELS: Final = 16


class GpuShape(NamedTuple):
    """The request that pods of one kind have in common; memory aside."""

    cpu_millis: int
    gpu_milli: int
    """Of each device; 0: it asks for none."""
    devices: int
    models: tuple[str, ...]
    """The models that it admits, sorted; empty: any."""

    @property
    def plausible(self) -> bool:
        """Whether some node could hold such a pod, and the shape is small."""
        return (
            self.cpu_millis <= _MOST_CPU_MILLIS
            and self.devices <= _MOST_DEVICES
            and len(self.models) <= _MOST_MODELS
        )


def gpu_shape(pod: PodInfo) -> GpuShape:
    """The shape of a pod; one that asks for what no node can give counts as one without GPUs."""
    requests = pod.amounts.requests
    request = gpu_request(requests) or _NONE
    models = admitted_models(pod.spec) if request.devices else ()
    return GpuShape(requests.get(CPU, 0), request.milli, request.devices, models)


def is_in_vain(pod: PodInfo) -> bool:
    """Whether a pod asks for GPUs in a way that no node can serve."""
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
