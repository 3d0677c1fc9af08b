"""QOSSort: by priority, then Guaranteed before Burstable before BestEffort, then by time.

The queue gives the time: that of queueing plus the delay of retries and large namespaces.
"""

from typing import ClassVar, Final

from typing_extensions import override

from stellwerk.plugin_api import (
    BEST_EFFORT,
    BURSTABLE,
    GUARANTEED,
    Handle,
    PodInfo,
    QueueSortPlugin,
)

_RANK: Final = {GUARANTEED: 0, BURSTABLE: 1, BEST_EFFORT: 2}


class QOSSort(QueueSortPlugin):
    """Orders activeQ by priority, QoS class and the time that the queue gives."""

    name: ClassVar[str] = "QOSSort"

    def __init__(self, _: Handle, __: None = None) -> None:
        """It needs nothing of the handle, and takes no arguments."""

    @override
    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """The smaller keys first."""
        return (-pod.priority, _RANK.get(pod.qos_class, len(_RANK)), queued_at_seconds)
