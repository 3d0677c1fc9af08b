"""LegacyBalancedAllocation: balance as kube-scheduler 1.18 scored it, for the legacy profile.

Off by default. Invariant: the score is (1 − |cpu − memory|) × 100 of the fractions that would be
in use, truncated; 0 on a node that would be full. With `balanceAttachedNodeVolumes` it is
(1 − variance of cpu, memory and attached volumes) × 100 on nodes with a limit for volumes.
"""

from collections.abc import Hashable, Iterator
from typing import ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from stellwerk.framework.interface import MAX_NODE_SCORE, Reuse, ScorePlugin
from stellwerk.framework.services import Handle
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.attached_volumes import (
    NO_VOLUME_LIMIT,
    AttachedVolumes,
    VolumeId,
    volume_id,
)
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import LegacyBalancedAllocationArgs
from stellwerk.snapshot.columns import IntColumn, Mask
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.resource_amounts import CPU, MEMORY

FractionColumn: TypeAlias = npt.NDArray[np.float64]
"""(n,) float64, what would be in use of what the node has; 1 where it has nothing."""


class LegacyBalancedAllocation(RowByRow, ScorePlugin):
    """Scores the balance that the node would have with the pod."""

    name: ClassVar[str] = "LegacyBalancedAllocation"
    args_model: ClassVar[type[LegacyBalancedAllocationArgs]] = LegacyBalancedAllocationArgs
    score_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: LegacyBalancedAllocationArgs) -> None:
        self._handle = handle
        self._attached: AttachedVolumes | None = None
        if args.balance_attached_node_volumes:
            self._attached = AttachedVolumes(handle.snapshot, handle.objects)

    @override
    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        cpu, memory = _fraction_with_pod(nodes, pod, CPU), _fraction_with_pod(nodes, pod, MEMORY)
        full: Mask = (cpu >= 1) | (memory >= 1)
        scores = ((1 - np.abs(cpu - memory)) * MAX_NODE_SCORE).astype(np.int64)
        if self._attached is not None:
            limits, uses = self._volumes(self._attached, nodes, pod)
            volumes = _fraction(limits, uses)
            variance = _variance(cpu, memory, volumes)
            with_volumes = ((1 - variance) * MAX_NODE_SCORE).astype(np.int64)
            scores = np.where(limits > 0, with_volumes, scores)
            full |= (limits > 0) & (volumes >= 1)
        return np.where(full, 0, scores)

    @override
    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:
        # Claims and limits of drivers change without their nodes.
        return pod.spec if self._attached is None else None

    def _volumes(
        self, attached: AttachedVolumes, nodes: NodeView, pod: PodInfo
    ) -> tuple[IntColumn, IntColumn]:
        """((n,) volumes that nodes take, 0 without a limit; (n,) attached ones with the pod's)."""
        attached.refresh()
        size = attached.snapshot.size
        limits: IntColumn = np.zeros(size, np.int64)
        uses: IntColumn = np.zeros(size, np.int64)
        wanted = set(self._pod_volumes(pod))
        for driver in attached.limited_drivers():
            limit = attached.limit(driver)
            if limit is None:
                continue
            limited = limit < NO_VOLUME_LIMIT
            count = attached.count(driver) + sum(
                _new_on_rows(attached, volume) for volume in wanted if volume[0] == driver
            )
            limits += np.where(limited, limit, 0)
            uses += np.where(limited, count, 0)
        return nodes.gather(limits), nodes.gather(uses)

    def _pod_volumes(self, pod: PodInfo) -> Iterator[VolumeId]:
        for volume in pod.volumes:
            for key in volume.usage_keys(pod.namespace):
                found = volume_id(self._handle.objects, key)
                if found is not None:
                    yield found


def _new_on_rows(attached: AttachedVolumes, volume: VolumeId) -> IntColumn:
    """(N,) int64, 1 where no pod uses the volume yet."""
    new: IntColumn = np.ones(attached.snapshot.size, np.int64)
    new[list(attached.rows_using(volume))] = 0
    return new


def _fraction_with_pod(nodes: NodeView, pod: PodInfo, resource: str) -> FractionColumn:
    request = pod.spec.amounts.scoring_requests.get(resource, 0)
    return _fraction(nodes.allocatable(resource), nodes.nonzero_requested(resource) + request)


def _fraction(capacity: IntColumn, requested: IntColumn) -> FractionColumn:
    return np.where(capacity == 0, 1.0, requested / np.maximum(capacity, 1))


def _variance(
    cpu: FractionColumn, memory: FractionColumn, volumes: FractionColumn
) -> FractionColumn:
    mean = (cpu + memory + volumes) / 3
    return ((cpu - mean) ** 2 + (memory - mean) ** 2 + (volumes - mean) ** 2) / 3
