"""The book of node labels: one column for each key that is asked for, and the domains it makes.

Selectors read the columns, pairwise plugins the topologies. Keys that no node has share one empty
column and one topology without domains, so that made-up keys cost nothing. Invariant: a column is
kept up to date from when it was first asked for; a topology that is still valid equals one made
anew.
"""

from collections.abc import Iterable, KeysView
from typing import Final

from typing_extensions import override

from stellwerk.snapshot.book import Book
from stellwerk.snapshot.columns import LabelColumn
from stellwerk.snapshot.topology import Topology
from stellwerk_kube.node import NodeInfo

_NO_KEY: Final = ""
"""Stands for every key that no node has; no label is called that."""
_SPARE_VALUES: Final = 1024
"""Label values without a node that a column may name, besides one for each row."""


class NodeLabels(Book):
    """Label columns by key; nodes have many keys, selectors name few of them."""

    def __init__(self) -> None:
        self._nodes: list[NodeInfo | None] = []
        """(N,) the node of each row; None where the row is free."""
        self._node_count = 0
        self._capacity = 0
        self._nodes_with: dict[str, int] = {}
        """The number of nodes with a label, by key; only keys that some node has."""
        self._columns: dict[str, LabelColumn] = {}
        self._topologies: dict[str, Topology] = {}

    def column(self, key: str) -> LabelColumn:
        """The column of a label key, made when first asked for."""
        known = key if key in self._nodes_with else _NO_KEY
        column = self._columns.get(known)
        if column is None:
            column = self._columns[known] = self._made(known)
        return column

    def known(self, keys: KeysView[str]) -> Iterable[str]:
        """Those of the keys that some node has; made-up ones cost nothing."""
        return keys & self._nodes_with.keys()

    def topology(self, key: str) -> Topology:
        """The domains of a topology key; good until a node's labels change."""
        known = key if key in self._nodes_with else _NO_KEY
        topology = self._topologies.get(known)
        if topology is None:
            topology = self._topologies[known] = Topology(
                known, self.column(known), len(self._nodes), self._node_count
            )
        return topology

    @override
    def write_node(self, row: int, before: NodeInfo | None, node: NodeInfo) -> None:
        if before is None:
            self._node_count += 1
            if row >= len(self._nodes):
                self._nodes.extend([None] * (row + 1 - len(self._nodes)))
        self._nodes[row] = node
        if before is not None and before.labels == node.labels:
            return
        for key in node.labels:
            self._nodes_with[key] = self._nodes_with.get(key, 0) + 1
        if before is not None:
            self._forget_keys(before.labels)
        for key, column in self._columns.items():
            column.set(row, node.labels.get(key))
            if len(column.values) > self._capacity + _SPARE_VALUES:
                self._columns[key] = self._made(key)
        self._drop_topologies()

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self._node_count -= 1
        self._nodes[row] = None
        self._forget_keys(node.labels)
        for column in self._columns.values():
            column.set(row, None)
        self._drop_topologies()

    @override
    def grow(self, capacity: int) -> None:
        self._capacity = capacity
        for column in self._columns.values():
            column.grow(capacity)

    @override
    def fork(self) -> "NodeLabels":
        fork = NodeLabels()
        fork._nodes = self._nodes.copy()
        fork._node_count, fork._capacity = self._node_count, self._capacity
        fork._nodes_with = self._nodes_with.copy()
        fork._columns = {key: column.fork() for key, column in self._columns.items()}
        return fork

    def _made(self, key: str) -> LabelColumn:
        """The column of a key from the nodes as they are."""
        column = LabelColumn(self._capacity)
        for row, node in enumerate(self._nodes):
            if node is not None and key in node.labels:
                column.set(row, node.labels[key])
        return column

    def _forget_keys(self, keys: Iterable[str]) -> None:
        """A node has these labels no more; columns that no node is in are dropped."""
        counts = self._nodes_with
        for key in keys:
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
                self._columns.pop(key, None)

    def _drop_topologies(self) -> None:
        """Any label may have changed: every domain may look different now."""
        for topology in self._topologies.values():
            topology.valid = False
        self._topologies.clear()
