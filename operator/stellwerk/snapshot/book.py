"""State per row that the snapshot keeps up to date beside its columns; plugins call it a book.

A book holds whatever is not an amount of a resource: host ports, volumes, devices, pods that match
a term. `Snapshot` calls every registered book when a node or a pod changes; plugins register theirs
by `Snapshot.book`. Invariant: the state follows from the nodes and pods in the rows now, not from
the order in which they came, so that opposite calls in reverse order undo a change.
"""

from typing import Self

from stellwerk.models.pod import PodInfo
from stellwerk_kube.node import NodeInfo


class Book:
    """Host ports, volumes, devices … by row; a subclass overrides what concerns it, and `fork`.

    A row that was freed may be used again. The constructor takes no arguments.
    """

    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        """The row's node appeared (before None) or changed; its pods are counted afterwards."""

    def free(self, row: int, node: NodeInfo) -> None:
        """The row's node left; its pods have been taken out before."""

    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        """Add (+1) or take out (−1) a pod on a row."""

    def grow(self, capacity: int) -> None:
        """Rows up to `capacity` may be written from now on."""

    def fork(self) -> Self:
        """A copy that shares no state which either side may change."""
        raise NotImplementedError
