"""PrioritySort: higher priority first, then the earlier time, which the queue gives.

The queue calls it for every pod it pushes. The time is that of queueing plus the delay of
`backend.namespace_fairness` for retries and large namespaces. Invariant: the key depends on the pod
and that time alone, so that an entry never has to be re-sorted.
"""

from typing import ClassVar

from typing_extensions import override

from stellwerk.framework.interface import QueueSortPlugin
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.shared.stateless import StatelessPlugin


class PrioritySort(StatelessPlugin, QueueSortPlugin):
    """The default order of activeQ."""

    name: ClassVar[str] = "PrioritySort"

    @override
    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        return (-pod.spec.priority, queued_at_seconds)
