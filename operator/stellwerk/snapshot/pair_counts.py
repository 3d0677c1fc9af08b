"""How many pods match a pairwise term on each node.

The snapshot owns one and tells it of every pod and node that changes; InterPodAffinity and
PodTopologySpread read it.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stellwerk.models.pod import PodInfo

if TYPE_CHECKING:
    from stellwerk.snapshot.snapshot import Snapshot


class PairCounts:
    """Counts per term and node."""

    def __init__(self, snapshot: "Snapshot") -> None:
        self._snapshot = snapshot
        self.namespaces: dict[str, Mapping[str, str]] = {}

    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod on a row."""

    def node_changed(self, row: int) -> None:
        """The node's labels changed, or it is about to leave its row."""

    def set_namespace(self, namespace: str, labels: Mapping[str, str] | None) -> None:
        """A namespace's labels; None: it is gone."""

    def grow(self, capacity: int) -> None:
        """Make room for more rows."""
