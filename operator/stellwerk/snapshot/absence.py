"""The snapshot as it would be without some pods, for as long as a question takes.

Cross-node preemption asks it what the whole cluster would answer if pods on several nodes were
gone; an overlay cannot say that, because there every row is a hypothesis of its own. Invariant:
on leaving, every column, count and mapping is as it was; nothing may be awaited in between, so
nobody else sees the difference.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import PODS
from stellwerk.snapshot.snapshot import Snapshot


@contextmanager
def without_pods(snapshot: Snapshot, pods: Iterable[PodInfo]) -> Iterator[None]:
    """Within the block, the snapshot reads as if these pods were on no node.

    The rows are in the change logs twice afterwards, so that columns kept by others are computed
    again and never mix the two states. Costs a few microseconds per pod, whatever the cluster.
    """
    leaving: dict[int, list[PodInfo]] = {}
    for pod in pods:
        leaving.setdefault(snapshot.row_of[pod.node_name], []).append(pod)
    left = []
    try:
        for row, gone in leaving.items():
            left.append(_Absence(snapshot, row, gone))
        yield
    finally:
        for absence in reversed(left):
            absence.undo()


class _Absence:
    """Some pods of one row taken out of everything that counts them."""

    def __init__(self, snapshot: Snapshot, row: int, pods: list[PodInfo]) -> None:
        self._snapshot = snapshot
        self._row = row
        self._gone = pods
        self._pods = snapshot.pods[row]
        self._requested: list[int] = snapshot.requested[:, row].tolist()
        cpu_millis, memory_bytes = snapshot.nonzero_requested[:, row].tolist()
        self._nonzero = (cpu_millis, memory_bytes)
        uids = {pod.uid for pod in pods}
        # Before the counting: a term that is new meanwhile is counted from this mapping.
        snapshot.pods[row] = {uid: pod for uid, pod in self._pods.items() if uid not in uids}
        for pod in pods:
            snapshot.count_pod(row, pod, -1)
        self._write_remaining()

    def _write_remaining(self) -> None:
        requested, (cpu_millis, memory_bytes) = list(self._requested), self._nonzero
        resource_row = self._snapshot.resource_row
        for pod in self._gone:
            for resource, amount in pod.amounts.requests.items():
                requested[resource_row[resource]] -= amount
            requested[resource_row[PODS]] -= 1
            cpu_millis -= pod.amounts.nonzero_cpu_millis
            memory_bytes -= pod.amounts.nonzero_memory_bytes
        self._snapshot.write_usage(self._row, requested, (cpu_millis, memory_bytes))

    def undo(self) -> None:
        snapshot = self._snapshot
        snapshot.pods[self._row] = self._pods
        for pod in reversed(self._gone):
            snapshot.count_pod(self._row, pod, 1)
        snapshot.write_usage(self._row, self._requested, self._nonzero)
