"""What the pods of one node request in sum.

The cache keeps one for each node and the snapshot writes it into its columns; a trial makes one for
a row that it changes. Invariant: sums are exact, also where the columns stop at MAX_REQUESTED.
"""

from collections.abc import Mapping
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

NATIVE_RESOURCES: Final = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
"""The first rows of the resource columns; others have one while some node offers them."""
_NATIVE_ROW: Final = {resource: row for row, resource in enumerate(NATIVE_RESOURCES)}
_PODS_ROW: Final = NATIVE_RESOURCES.index(PODS)


class Usage:
    """Requested amounts of one node, and the amounts that scores count."""

    __slots__ = ("amounts", "extended", "nonzero_cpu_millis", "nonzero_memory_bytes")

    def __init__(
        self,
        amounts: list[int],
        cpu_millis: int,
        memory_bytes: int,
        extended: Mapping[str, int] | None = None,
    ) -> None:
        self.amounts = amounts
        """Of NATIVE_RESOURCES; of "pods" their number."""
        self.extended: dict[str, int] = dict(extended or ())
        """Of all other resources by name, those of which nothing is requested left out."""
        self.nonzero_cpu_millis = cpu_millis
        self.nonzero_memory_bytes = memory_bytes
        """Both with kube-scheduler's defaults for containers that request none."""

    @classmethod
    def none(cls) -> "Usage":
        """The usage of a node without pods."""
        return cls([0] * len(NATIVE_RESOURCES), 0, 0)

    def count(self, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod."""
        amounts = self.amounts
        for name, amount in pod.amounts.requests.items():
            row = _NATIVE_ROW.get(name)
            if row is None:
                self._count_extended(name, change * amount)
            else:
                amounts[row] += change * amount
        amounts[_PODS_ROW] += change
        self.nonzero_cpu_millis += change * pod.amounts.nonzero_cpu_millis
        self.nonzero_memory_bytes += change * pod.amounts.nonzero_memory_bytes

    def copy(self) -> "Usage":
        """The same sums, to be changed apart."""
        return Usage(
            self.amounts.copy(), self.nonzero_cpu_millis, self.nonzero_memory_bytes, self.extended
        )

    def _count_extended(self, name: str, change: int) -> None:
        amount = self.extended.get(name, 0) + change
        if amount:
            self.extended[name] = amount
            return
        self.extended.pop(name, None)
        if not self.extended:
            # A map keeps the room of a pod that invented a hundred thousand resources.
            self.extended = {}
