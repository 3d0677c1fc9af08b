"""Which kind of a plan a pod is of.

Targets ask it for every pod. Invariant: a pod that a kind stands for fits wherever the kind fits,
memory aside.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stellwerk.models.gpu import MODEL_LABEL, WHOLE, GpuRequest, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU, MEMORY
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.gpu.pattern_pricing import PlannedKind

MIB: Final = 1 << 20
_MOST_KINDS: Final = 512
_KINDS_REMEMBERED: Final = 4096
_MORE: Final = 1.1
"""A kind stands for pods that ask for so much less."""

_Key = tuple[int, int, int, tuple[str, ...]]


class PlannedPods:
    """The kinds of a plan, and how often each occurs."""

    def __init__(self, counts: Mapping[PlannedKind, int]) -> None:
        """The most frequent ones by what they take of GPUs, if there are too many."""
        weighed = sorted(
            counts, key=lambda kind: (counts[kind] * max(1, kind.total_milli), repr(kind))
        )
        self.kinds: Sequence[PlannedKind] = weighed[::-1][:_MOST_KINDS]
        self.counts: Sequence[int] = [counts[kind] for kind in self.kinds]
        self._number: dict[_Key, int | None] = {
            (kind.cpu_millis, kind.gpu_milli, kind.devices, kind.models): number
            for number, kind in enumerate(self.kinds)
        }

    @property
    def mean_milli(self) -> float:
        """What a pod takes of GPUs on average, in thousandths."""
        taken = sum(
            count * kind.total_milli for count, kind in zip(self.counts, self.kinds, strict=True)
        )
        return taken / max(1, sum(self.counts))

    def number_of(self, pod: PodInfo) -> int | None:
        """The number of the kind that a pod is of, or that takes little more; None: there is none.

        A kind that admits fewer models than the pod does not stand for it, nor one with more.
        """
        request = gpu_request(pod.amounts.requests) or GpuRequest(0, 0)
        cpu_millis = pod.amounts.requests.get(CPU, 0)
        models = admitted_models(pod.spec) if request.devices else ()
        key = (cpu_millis, request.milli, request.devices, models)
        if key not in self._number:
            if len(self._number) > _KINDS_REMEMBERED:
                return self._nearest(key)
            self._number[key] = self._nearest(key)
        return self._number[key]

    def _nearest(self, key: _Key) -> int | None:
        cpu_millis, milli, devices, models = key
        near = [
            (kind.gpu_milli - milli, kind.cpu_millis - cpu_millis, number)
            for number, kind in enumerate(self.kinds)
            if kind.devices == devices
            and set(kind.models) == set(models)
            and milli <= kind.gpu_milli <= _MORE * milli
            and (kind.gpu_milli == WHOLE) == (milli == WHOLE)
            and cpu_millis <= kind.cpu_millis <= _MORE * cpu_millis
        ]
        return min(near)[-1] if near else None


def seen_kinds(pods: Iterable[PodInfo]) -> dict[PlannedKind, int]:
    """The kinds of some pods and how many there are of each; DaemonSets' pods among them."""
    counts: Counter[_Key] = Counter()
    memory: Counter[_Key] = Counter()
    for pod in pods:
        request = gpu_request(pod.amounts.requests) or GpuRequest(0, 0)
        models = admitted_models(pod.spec) if request.devices else ()
        key = (pod.amounts.requests.get(CPU, 0), request.milli, request.devices, models)
        counts[key] += 1
        memory[key] += pod.amounts.requests.get(MEMORY, 0)
    return {
        PlannedKind(key[0], memory[key] / count / MIB, *key[1:]): count
        for key, count in counts.items()
    }


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
