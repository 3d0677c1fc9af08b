"""A target pattern for each node: what it should hold beside what it holds, planned as a whole.

A linear programme over patterns (HiGHS), whose columns are generated as prices ask for them, then
an integer one over the columns found. Plugins submit it as background work, which is why everything
here can be pickled. Invariant: the same problem gives the same plan; time limits end a search only
where it would take many times as long as measured.
"""

import importlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from stellwerk.plugins.gpu.fragmentation import FloatColumn
from stellwerk.plugins.gpu.pattern_pricing import NodeShape, PatternPricing, PlannedKind, Slot

_CPU_WORTH: Final = 0.004
"""Worth of a millicore, in thousandths of a device, so that pods without GPUs are planned as
well."""
_DEVIATIONS: Final = np.array([-2.0, -1.0, -0.33, 0.33, 1.0, 2.0])
_CHANCES: Final = np.array([1.0, 0.93, 0.75, 0.5, 0.25, 0.07])
"""The likelihood of a demand for a slot below so many deviations from the mean."""
_DRIFT: Final = 0.1
"""The deviation of the demand for a kind, as a share of it, beside that of chance."""
_MEMORY_PRICES: Final = (0.0, 0.003, 0.008, 0.02, 0.05)
"""Prices of a MiB in thousandths of a device: the first under which the best pattern fits is
used."""
_MAX_ROUNDS: Final = 150
"""Rounds of finding patterns for new prices, after which the plan of the last one is taken."""
_CLOSE_ENOUGH: Final = 5e-4
_INTEGER_GAP: Final = 1e-3
_MAX_SOLVER_NODES: Final = 40
"""Nodes of the solver's search tree for whole numbers of patterns."""
_MIN_GAIN: Final = 1e-3
"""Sizes and gains up to this are rounding."""
_NEW_PRICES: Final = 0.6
"""Prices are mixed with those of the round before, which swings less."""


@dataclass(frozen=True, slots=True)
class PlanProblem:
    """The question to a plan: the demand for pods, and the nodes by shape."""

    kinds: Sequence[PlannedKind]
    demand: Sequence[float]
    """The number of pods of each kind that is expected."""
    shapes: Sequence[NodeShape]
    counts: Sequence[int]
    """The number of nodes of that shape."""
    begun: Sequence[tuple[int, tuple[Slot, ...]]] = ()
    """Patterns to begin with, each with the number of its shape."""


@dataclass(frozen=True, slots=True)
class PatternPlan:
    """The patterns to aim at."""

    patterns: Sequence[Sequence[tuple[int, tuple[Slot, ...]]]]
    """By shape: on how many of its nodes, which slots."""
    prices: Sequence[float]
    """By kind: what one more pod of it would be worth."""
    worth: float
    """Worth of the patterns together, in thousandths of a device, by the chance that they are
    filled."""
    bound: float
    """No plan is worth more."""


def plan_patterns(problem: PlanProblem, seconds: float) -> PatternPlan:
    """The plan for a problem; a search that lasts longer gives the best that it has found."""
    return _Search(problem).run(seconds)


@dataclass(slots=True)
class _Columns:
    """The patterns found so far."""

    shapes: list[int] = field(default_factory=list)
    slots: list[tuple[Slot, ...]] = field(default_factory=list)
    known: set[tuple[int, tuple[tuple[int, int], ...]]] = field(default_factory=set)


class _Search:
    def __init__(self, problem: PlanProblem) -> None:
        highspy: Any = importlib.import_module("highspy")  # an extra, and slow to load
        self._problem = problem
        self._shapes, self._kinds = len(problem.shapes), len(problem.kinds)
        self._worth: FloatColumn = np.array(
            [kind.total_milli + _CPU_WORTH * kind.cpu_millis for kind in problem.kinds]
        )
        self._memory: FloatColumn = np.array([kind.memory_mib for kind in problem.kinds])
        self._steps = _demand_steps(np.array(problem.demand, np.float64))
        self._columns = _Columns()
        self._admitted = {
            model: tuple(
                number
                for number, kind in enumerate(problem.kinds)
                if not kind.models or model in kind.models
            )
            for model in {shape.model for shape in problem.shapes}
        }
        self._most_cpu = max(shape.cpu_millis for shape in problem.shapes)
        self._infinity = highspy.kHighsInf
        self._integer = highspy.HighsVarType.kInteger
        self._solver: Any = highspy.Highs()
        self._demand_columns = self._lay_out()
        for shape, slots in problem.begun:
            self._add(shape, slots)

    def run(self, seconds: float) -> PatternPlan:
        solver = self._solver
        solver.setOptionValue("time_limit", seconds / 2)
        prices, bound = self._generate(seconds / 2)
        solver.setOptionValue("time_limit", solver.getRunTime() + seconds / 2)
        solver.setOptionValue("mip_rel_gap", _INTEGER_GAP)
        solver.setOptionValue("mip_max_nodes", _MAX_SOLVER_NODES)
        first = self._demand_columns
        for column in range(len(self._columns.slots)):
            solver.changeColIntegrality(first + column, self._integer)
        solver.run()
        times = np.rint(np.array(solver.getSolution().col_value)[first:]).astype(int)
        patterns: list[list[tuple[int, tuple[Slot, ...]]]] = [[] for _ in range(self._shapes)]
        for shape, slots, count in zip(
            self._columns.shapes, self._columns.slots, times.tolist(), strict=True
        ):
            if count > 0:
                patterns[shape].append((count, slots))
        worth = -float(solver.getInfo().objective_function_value)
        return PatternPlan(patterns, prices.tolist(), worth, bound)

    # --- the linear programme ---------------------------------------------------------------------

    def _lay_out(self) -> int:
        """Rows: nodes of each shape, slots of each kind; returns how many columns demand takes."""
        solver = self._solver
        solver.setOptionValue("output_flag", False)  # noqa: FBT003 the solver's interface
        solver.setOptionValue("threads", 1)
        empty = np.zeros(0, np.int32)
        for count in self._problem.counts:
            solver.addRow(-self._infinity, float(count), 0, empty, np.zeros(0))
        for _ in range(self._kinds):
            solver.addRow(0.0, self._infinity, 0, empty, np.zeros(0))
        columns = 0
        for kind in range(self._kinds):
            row = np.array([self._shapes + kind], np.int32)
            for size, chance in zip(self._steps[kind].tolist(), _CHANCES.tolist(), strict=True):
                if size > _MIN_GAIN:
                    gain = float(chance * self._worth[kind])
                    solver.addCol(-gain, 0.0, size, 1, row, np.array([-1.0]))
                    columns += 1
        return columns

    def _add(self, shape: int, slots: Sequence[Slot]) -> bool:
        """Take a pattern in; returns whether it is new."""
        counts = sorted(Counter(slot.kind for slot in slots).items())
        key = (shape, tuple(counts))
        if not counts or key in self._columns.known:
            return False
        self._columns.known.add(key)
        self._columns.shapes.append(shape)
        self._columns.slots.append(tuple(slots))
        rows = np.array([shape, *(self._shapes + kind for kind, _ in counts)], np.int32)
        values = np.array([1.0, *(float(number) for _, number in counts)])
        self._solver.addCol(0.0, 0.0, self._infinity, len(rows), rows, values)
        return True

    def _generate(self, seconds: float) -> tuple[FloatColumn, float]:
        """Add patterns until none would be worth more; returns prices and an upper bound."""
        prices, rents, reached = self._worth, np.zeros(self._shapes), 0.0
        mixed: FloatColumn | None = None
        bound = np.inf
        for _ in range(_MAX_ROUNDS):
            if self._columns.slots:
                prices, rents, reached = self._solved()
            mixed = prices if mixed is None else _NEW_PRICES * prices + (1 - _NEW_PRICES) * mixed
            added, above = self._round(mixed, prices, rents)
            bound = min(bound, above)
            if bound - reached < _CLOSE_ENOUGH * bound or self._solver.getRunTime() > seconds:
                break
            if not added:
                if np.allclose(mixed, prices):
                    break
                mixed = None
        if self._columns.slots:
            prices, _, _ = self._solved()
        return prices, float(bound)

    def _solved(self) -> tuple[FloatColumn, FloatColumn, float]:
        """Prices of kinds, rents of shapes, and what the patterns are worth."""
        self._solver.run()
        duals = np.array(self._solver.getSolution().row_dual)
        reached = -float(self._solver.getInfo().objective_function_value)
        return duals[self._shapes :], -duals[: self._shapes], reached

    def _round(
        self, mixed: FloatColumn, prices: FloatColumn, rents: FloatColumn
    ) -> tuple[int, float]:
        """Price every shape; returns how many patterns are new, and an upper bound."""
        gains = np.maximum(0.0, _CHANCES * self._worth[:, None] - mixed[:, None])
        bound, added = float((gains * self._steps).sum()), 0
        pricing: dict[tuple[tuple[int, ...], float], PatternPricing] = {}
        for number, shape in enumerate(self._problem.shapes):
            worth, slots = self._priced(shape, mixed, pricing)
            bound += worth * self._problem.counts[number]
            gain = sum(float(prices[slot.kind]) for slot in slots) - rents[number]
            if gain > _MIN_GAIN:
                added += self._add(number, slots)
        return added, bound

    def _priced(
        self,
        shape: NodeShape,
        prices: FloatColumn,
        pricing: dict[tuple[tuple[int, ...], float], PatternPricing],
    ) -> tuple[float, list[Slot]]:
        """The worth of the best pattern, memory aside, and the best one found that fits memory."""
        admitted = self._admitted[shape.model]
        best = 0.0
        for memory_price in _MEMORY_PRICES:
            key = (admitted, memory_price)
            if key not in pricing:
                kinds: Mapping[int, PlannedKind] = {n: self._problem.kinds[n] for n in admitted}
                worth = (prices - memory_price * self._memory).tolist()
                pricing[key] = PatternPricing(kinds, worth, self._most_cpu)
            worth_of_best, slots = pricing[key].best(shape)
            best = worth_of_best if not memory_price else best
            if sum(float(self._memory[slot.kind]) for slot in slots) <= shape.memory_mib:
                return best, slots
        return best, []


def _demand_steps(demand: FloatColumn) -> FloatColumn:
    """(K, 6) how many slots of each kind are asked for with each of the chances."""
    deviation = np.sqrt(demand + (_DRIFT * demand) ** 2)
    ends = np.maximum(0.0, demand[:, None] + deviation[:, None] * _DEVIATIONS)
    steps: FloatColumn = np.diff(ends, axis=1, prepend=0.0)
    return steps
