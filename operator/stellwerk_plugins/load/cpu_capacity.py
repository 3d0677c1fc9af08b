"""The CPU capacity of nodes, which exceeds their allocatable CPU."""

from typing import Self

import numpy as np
from typing_extensions import override

from stellwerk.plugin_api import Book, IntColumn, NodeInfo


class CpuCapacity(Book):
    """status.capacity.cpu of each row."""

    def __init__(self) -> None:
        self.millis: IntColumn = np.zeros(0, np.int64)
        """(capacity,) int64, millicores; 0 where there is no node."""

    @override
    def grow(self, capacity: int) -> None:
        larger = np.zeros(capacity, np.int64)
        larger[: len(self.millis)] = self.millis
        self.millis = larger

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        self.millis[row] = node.capacity.get("cpu", 0)

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self.millis[row] = 0

    @override
    def fork(self) -> Self:
        fork = type(self)()
        fork.millis = self.millis.copy()
        return fork
