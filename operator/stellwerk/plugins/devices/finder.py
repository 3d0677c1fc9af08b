"""Which nodes have the devices for a task: searched once, and again only where something changed.

DynamicResources has one. Invariant: an answer that is kept equals what a search on the node would
find now; every change of a slice, an allocation, a class or the node itself drops the answers that
it may alter.
"""

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import numpy as np

from stellwerk.framework.services import ObjectStore
from stellwerk.models.node import NodeInfo
from stellwerk.models.resource_slice import DeviceKey
from stellwerk.plugins.devices.allocated import Allocated
from stellwerk.plugins.devices.claims import Demand
from stellwerk.plugins.devices.classes import DeviceClasses
from stellwerk.plugins.devices.in_flight import InFlight
from stellwerk.plugins.devices.inventory import EVERY_NODE, Inventory
from stellwerk.plugins.devices.outlines import Outline, Outlines
from stellwerk.plugins.devices.patience import Patience, SearchTimeoutError
from stellwerk.plugins.devices.pools import NodePools
from stellwerk.plugins.devices.search import Solution, search
from stellwerk.plugins.devices.task import AllocationError, Part, Task
from stellwerk.snapshot.columns import ChangeCursor, IntColumn, RowColumn, RowCursor
from stellwerk.snapshot.snapshot import Snapshot

TaskKey: TypeAlias = tuple[Demand, ...]

UNKNOWN: Final = 0
FOUND: Final = 1
NONE: Final = 2
"""Not all claims can be allocated."""
INVALID: Final = 3
"""Not all claims can be allocated, and a pool of the node contradicts itself."""
FAILED: Final = 4
"""There is no answer: `failures` says why."""
_KEPT_TASKS: Final = 64
_KEPT_OUTLINES: Final = 8192
_STEPS_OF_ONE_NODE: Final = 50_000
_STEPS_PER_NODE: Final = 200
"""How many devices all searches of one attempt may try: what a claim invents must not stop all."""
_LATE_SECONDS: Final = 0.5
"""What took too long is tried again after this, at the earliest: not in the same attempt."""
BEST_ALTERNATIVE: Final = 8
"""What the first alternative of a request scores."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a search came to."""

    verdict: int
    score: int = 0
    """The better the alternatives taken, the higher."""
    failure: AllocationError | None = None


@dataclass(slots=True)
class Answers:
    """What is known of one task: a verdict and a score for each row of the snapshot."""

    task: Task
    outlines: Outlines
    rows: RowCursor
    pools: ChangeCursor[str]
    devices: ChangeCursor[DeviceKey]
    by_outline: dict[Outline, Answer] = field(default_factory=dict)
    verdicts: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, UNKNOWN, FOUND, NONE, INVALID or FAILED."""
    scores: IntColumn = field(default_factory=lambda: np.zeros(0, np.int64))
    """(N,) int64, at least 0: the better the alternatives taken, the higher."""
    failures: dict[int, AllocationError] = field(default_factory=dict)
    """By row, where the verdict is FAILED."""
    late: set[int] = field(default_factory=set)
    """Rows of which it took too long to find out; another attempt may try again."""
    late_seconds: float = 0.0
    """When that was."""

    def forget_all(self, size: int) -> None:
        """Nothing is known of any row."""
        self.verdicts, self.scores = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.failures.clear()
        self.late.clear()

    def write(self, row: int, answer: Answer) -> None:
        """Keep what was found for a row."""
        self.verdicts[row], self.scores[row] = answer.verdict, answer.score
        if answer.failure is not None:
            self.failures[row] = answer.failure


class DeviceFinder:
    """Slices, allocations and classes, and the answers that follow from them."""

    def __init__(
        self,
        snapshot: Snapshot,
        objects: ObjectStore,
        now_seconds: Callable[[], float],
        filter_seconds: float,
    ) -> None:
        """`filter_seconds`: how long an attempt may search; 0: as long as its steps allow."""
        self._snapshot = snapshot
        self.now_seconds = now_seconds
        self._filter_seconds = filter_seconds
        self.in_flight = InFlight(objects)
        self.inventory = Inventory(objects, snapshot)
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
                Outlines(task, self.allocated),
                RowCursor(self._snapshot, self._snapshot.node_changes),
                ChangeCursor(self.inventory.changes),
                ChangeCursor(self.allocated.changes),
            )
            if len(self._answers) > _KEPT_TASKS:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(key)
        self._drop_changed(found)
        if found.late and self.now_seconds() > found.late_seconds + _LATE_SECONDS:
            found.verdicts[list(found.late)] = UNKNOWN
            found.late.clear()
        return found

    def ask(
        self, answers: Answers, names: Sequence[str], rows: RowColumn
    ) -> tuple[IntColumn, dict[int, str]]:
        """(n,) verdicts for some rows, and what went wrong, by position in `rows`."""
        for _ in self.searched(answers, rows):
            pass
        verdicts = answers.verdicts[rows]
        failed = np.flatnonzero(verdicts == FAILED).tolist()
        return verdicts, {each: answers.failures[int(rows[each])].text(names) for each in failed}

    def searched(self, answers: Answers, rows: RowColumn) -> Generator[None, None, None]:
        """Search the rows of which nothing is known; yields after each, and now and then within."""
        unknown = rows[answers.verdicts[rows] == UNKNOWN]
        if not len(unknown):
            return
        patience = self._patience(len(unknown))
        for row in unknown.tolist():
            node = self._snapshot.nodes[row]
            if node is None:
                continue
            try:
                answer = yield from self._answer(answers, self.inventory.pools(node), patience)
            except SearchTimeoutError:
                text = f"node {node.name}: timed out trying to allocate devices"
                answer = Answer(FAILED, failure=AllocationError(text, of_node=True))
                answers.late.add(row)
                answers.late_seconds = self.now_seconds()
            answers.write(row, answer)
            yield

    def node_at(self, row: int) -> NodeInfo | None:
        """The node of a row of the snapshot."""
        return self._snapshot.nodes[row]

    def solution(self, task: Task, node: NodeInfo) -> Solution | None:
        """The devices of a node for a task, as they are now.

        Raises:
            AllocationError, SearchTimeoutError: as the search does.
        """
        searching = search(task, self.inventory.pools(node), self.allocated, self._patience(1))
        while True:
            try:
                next(searching)
            except StopIteration as ended:
                solution: Solution | None = ended.value
                return solution

    def _patience(self, nodes: int) -> Patience:
        most_steps = _STEPS_OF_ONE_NODE + _STEPS_PER_NODE * nodes
        return Patience(self.now_seconds, self._filter_seconds, most_steps)

    def _answer(
        self, answers: Answers, pools: NodePools, patience: Patience
    ) -> Generator[None, None, Answer]:
        """What is known of an equal node, or what a search finds."""
        outline = answers.outlines.of(pools)
        found = answers.by_outline.get(outline)
        if found is not None:
            return found
        answer = yield from self._search(answers.task, pools, patience)
        if answer.failure is None or not answer.failure.of_node:
            if len(answers.by_outline) >= _KEPT_OUTLINES:
                answers.by_outline.clear()
            answers.by_outline[outline] = answer
        return answer

    def _search(
        self, task: Task, pools: NodePools, patience: Patience
    ) -> Generator[None, None, Answer]:
        try:
            solution = yield from search(task, pools, self.allocated, patience)
        except AllocationError as error:
            return Answer(FAILED, failure=error)
        if solution is None:
            return Answer(INVALID if pools.invalid else NONE)
        return Answer(FOUND, sum(BEST_ALTERNATIVE - rank for rank in solution.ranks))

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
