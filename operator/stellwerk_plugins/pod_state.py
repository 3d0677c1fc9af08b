"""PodState: nodes with terminating pods before nodes with nominated ones."""

from collections import Counter
from typing import ClassVar, Self

import numpy as np
from typing_extensions import override

from stellwerk.plugin_api import (
    Book,
    CycleState,
    Handle,
    IntColumn,
    NodeInfo,
    NodeView,
    NormalizeScorePlugin,
    PodInfo,
    ScorePlugin,
)
from stellwerk_plugins.spread_scores import SpreadScores


class TerminatingPods(Book):
    """The terminating pods of each row."""

    def __init__(self) -> None:
        self.by_row: Counter[int] = Counter()
        """Their number; only rows that have any."""

    @override
    def free(self, row: int, node: NodeInfo) -> None:
        self.by_row.pop(row, None)

    @override
    def count_pod(self, row: int, pod: PodInfo, change: int) -> None:
        if pod.terminating:
            self.by_row[row] += change
            if not self.by_row[row]:
                del self.by_row[row]

    @override
    def fork(self) -> Self:
        fork = type(self)()
        fork.by_row = self.by_row.copy()
        return fork


class PodState(SpreadScores, ScorePlugin, NormalizeScorePlugin):
    """Scores a node by its terminating pods less its nominated ones, the pod itself included."""

    name: ClassVar[str] = "PodState"

    def __init__(self, handle: Handle, _: None = None) -> None:
        self._handle = handle
        self._terminating = handle.snapshot.book(TerminatingPods)

    @override
    def score(self, _: CycleState, __: PodInfo, nodes: NodeView) -> IntColumn:
        """(n,) int64."""
        balance = Counter(self._terminating.by_row)
        row_of = self._handle.snapshot.row_of
        for node_name, pods in self._handle.nominations.by_node.items():
            row = row_of.get(node_name)
            if row is not None:
                balance[row] -= len(pods)
        return nodes.users(balance) if balance else np.zeros(len(nodes), np.int64)
