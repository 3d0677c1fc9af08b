"""Which nodes have the devices for a task: searched once, and again only where something changed.

DynamicResources has one. Invariant: an answer that is kept equals what a search on the node would
find now; every change of a slice, an allocation, a class or the node itself drops the answers that
it may alter.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.node import NodeInfo
from stellwerk.plugins.devices.allocated import Allocated
from stellwerk.plugins.devices.claims import Demand
from stellwerk.plugins.devices.classes import DeviceClasses
from stellwerk.plugins.devices.in_flight import InFlight
from stellwerk.plugins.devices.inventory import EVERY_NODE, Inventory
from stellwerk.plugins.devices.patience import Patience, SearchTimeoutError
from stellwerk.plugins.devices.search import Solution, search
from stellwerk.plugins.devices.slices import DeviceKey
from stellwerk.plugins.devices.task import AllocationError, Part, Task
from stellwerk.snapshot.changes import ChangeCursor, RowCursor
from stellwerk.snapshot.columns import IntColumn, RowColumn
from stellwerk.snapshot.snapshot import Snapshot

TaskKey: TypeAlias = tuple[Demand, ...]

UNKNOWN: Final = 0
FOUND: Final = 1
NONE: Final = 2
"""Not all claims can be allocated."""
INVALID: Final = 3
"""Not all claims can be allocated, and a pool of the node contradicts itself."""
_KEPT_TASKS: Final = 64
_STEPS_OF_ONE_NODE: Final = 50_000
_STEPS_PER_NODE: Final = 200
"""How many devices all searches of one attempt may try: what a claim invents must not stop all."""
BEST_ALTERNATIVE: Final = 8
"""What the first alternative of a request scores."""


@dataclass(slots=True)
class Answers:
    """What is known of one task: a verdict and a score for each row of the snapshot."""

    task: Task
    rows: RowCursor
    pools: ChangeCursor[str]
    devices: ChangeCursor[DeviceKey]
    verdicts: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, UNKNOWN, FOUND, NONE or INVALID."""
    scores: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, at least 0: the better the alternatives taken, the higher."""

    def forget_all(self, size: int) -> None:
        """Nothing is known of any row."""
        self.verdicts, self.scores = np.zeros(size, np.int64), np.zeros(size, np.int64)


class DeviceFinder:
    """Slices, allocations and classes, and the answers that follow from them."""

    def __init__(
        self,
        snapshot: Snapshot,
        objects: ObjectStore,
        now_seconds: Callable[[], float],
        seconds_per_node: float,
    ) -> None:
        """`seconds_per_node`: how long one search may take; 0: as long as its steps allow."""
        self._snapshot = snapshot
        self._now_seconds = now_seconds
        self._seconds_per_node = seconds_per_node
        self.in_flight = InFlight(objects)
        self.inventory = Inventory(objects)
        self.allocated = Allocated(objects)
        self.classes = DeviceClasses(objects)
        self._answers: OrderedDict[TaskKey, Answers] = OrderedDict()
        self._classes_version = 0

    def refresh(self) -> None:
        """Take over what the object store shows now."""
        self.in_flight.settle()
        self.inventory.refresh()
        self.allocated.refresh()
        self.classes.refresh()
        if self.classes.version != self._classes_version:
            self._classes_version = self.classes.version
            self._answers.clear()

    def answers(self, key: TaskKey) -> Answers:
        """What is known of a task, without what has changed since.

        Raises:
            KeyError: a class does not exist.
        """
        found = self._answers.get(key)
        if found is None:
            task = Task(tuple(Part.of(demand, self.classes) for demand in key))
            found = self._answers[key] = Answers(
                task,
                RowCursor(self._snapshot, self._snapshot.node_changes),
                ChangeCursor(self.inventory.changes),
                ChangeCursor(self.allocated.changes),
            )
            if len(self._answers) > _KEPT_TASKS:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
        self._drop_changed(found)
        return found

    def ask(
        self, answers: Answers, names: Sequence[str], rows: RowColumn
    ) -> tuple[IntColumn, dict[int, str]]:
        """(n,) verdicts for some rows, and what went wrong, by position in `rows`.

        A position with an error is UNKNOWN.
        """
        failures: dict[int, str] = {}
        unknown = np.flatnonzero(answers.verdicts[rows] == UNKNOWN)
        if len(unknown):
            patience = self._patience(len(unknown))
            for position in unknown.tolist():
                row = int(rows[position])
                node = self._snapshot.nodes[row]
                if node is None:
                    continue
                text = self._search_row(answers, names, row, node, patience)
                if text:
                    failures[position] = text
        return answers.verdicts[rows], failures

    def node_at(self, row: int) -> NodeInfo | None:
        """The node of a row of the snapshot."""
        return self._snapshot.nodes[row]

    def solution(self, task: Task, names: Sequence[str], node: NodeInfo) -> Solution | None:
        """The devices of a node for a task, as they are now.

        Raises:
            AllocationError, SearchTimeoutError: as the search does.
        """
        pools = self.inventory.pools(node)
        return search(task, names, pools, self.allocated, self._patience(1))

    def _patience(self, nodes: int) -> Patience:
        most_steps = _STEPS_OF_ONE_NODE + _STEPS_PER_NODE * nodes
        return Patience(self._now_seconds, self._seconds_per_node, most_steps)

    def _search_row(
        self,
        answers: Answers,
        names: Sequence[str],
        row: int,
        node: NodeInfo,
        patience: Patience,
    ) -> str:
        """Search a node and keep what was found; returns what went wrong."""
        pools = self.inventory.pools(node)
        try:
            solution = search(answers.task, names, pools, self.allocated, patience)
        except AllocationError as error:
            return str(error)
        except SearchTimeoutError:
            return f"node {node.name}: timed out trying to allocate devices"
        if solution is None:
            answers.verdicts[row] = INVALID if pools.invalid else NONE
            return ""
        answers.verdicts[row] = FOUND
        answers.scores[row] = sum(BEST_ALTERNATIVE - rank for rank in solution.ranks)
        return ""

    def _drop_changed(self, answers: Answers) -> None:
        size = self._snapshot.size
        rows, nodes = answers.rows.advance(), answers.pools.advance()
        devices = answers.devices.advance()
        if rows is None or nodes is None or devices is None:
            answers.forget_all(size)
            return
        pools = {device[:2] for device in devices}
        names = {*nodes, *(name for pool in pools for name in self.inventory.nodes_of(pool))}
        if EVERY_NODE in names:
            answers.forget_all(size)
            return
        answers.verdicts[[*rows, *self._rows_of(names)]] = UNKNOWN

    def _rows_of(self, names: Iterable[str]) -> list[int]:
        row_of = self._snapshot.row_of
        return [row_of[name] for name in names if name in row_of]
