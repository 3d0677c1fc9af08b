"""The kind of a plan that a pod is of.

Targets ask it for every pod. Invariant: a pod that a kind stands for fits wherever the kind fits,
memory aside.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from stellwerk.models.gpu import WHOLE
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.pattern_pricing import PlannedKind
from stellwerk.snapshot.pod_shapes import CountedShape, GpuShape, gpu_shape

MIB: Final = 1 << 20
_MAX_KINDS: Final = 512
"""Kinds of pods that a plan is made for, those that weigh most first."""
_KINDS_REMEMBERED: Final = 4096
_MORE: Final = 1.1
"""A kind stands for pods that ask for so much less."""
_HUNDREDTHS: Final = 100


class PlannedPods:
    """The kinds of a plan, and how often each occurs."""

    def __init__(self, counts: Mapping[PlannedKind, int]) -> None:
        """The most frequent ones by what they take of GPUs, if there are too many."""
        weighed = sorted(
            counts, key=lambda kind: (counts[kind] * max(1, kind.total_milli), repr(kind))
        )
        self.kinds: Sequence[PlannedKind] = weighed[::-1][:_MAX_KINDS]
        self.counts: Sequence[int] = [counts[kind] for kind in self.kinds]
        self._number: dict[GpuShape, int | None] = {
            GpuShape(kind.cpu_millis, kind.gpu_milli, kind.devices, kind.models): number
            for number, kind in enumerate(self.kinds)
        }

    @property
    def mean_milli(self) -> float:
        """The thousandths of GPUs that a pod takes on average."""
        taken = sum(
            count * kind.total_milli for count, kind in zip(self.counts, self.kinds, strict=True)
        )
        return taken / max(1, sum(self.counts))

    def number_of(self, pod: PodInfo) -> int | None:
        """The number of the kind that a pod is of, or that takes little more; None: there is none.

        A kind that admits fewer models than the pod does not stand for it, nor one with more.
        """
        return self.number_of_shape(gpu_shape(pod))

    def number_of_shape(self, shape: GpuShape) -> int | None:
        """The number of the planned kind for pods of a shape; None: there is none."""
        if shape not in self._number:
            if len(self._number) > _KINDS_REMEMBERED:
                return self._nearest(shape)
            self._number[shape] = self._nearest(shape)
        return self._number[shape]

    def _nearest(self, shape: GpuShape) -> int | None:
        cpu_millis, milli, devices, models = shape
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


def seen_kinds(seen: Iterable[CountedShape]) -> dict[PlannedKind, int]:
    """The shapes of pods that were seen as kinds, with how often each occurs, in hundredths."""
    return {
        PlannedKind(each.shape.cpu_millis, each.memory_mib, *each.shape[1:]): max(
            1, round(_HUNDREDTHS * each.pods)
        )
        for each in seen
    }
