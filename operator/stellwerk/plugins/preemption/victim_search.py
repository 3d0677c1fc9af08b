"""The search for the smallest loss: which of the pods in the way have to go, and for which nodes.

CrossNodePreemption runs it. A set of victims is judged by asking the whole profile whether the pod
would find a node without them, so an answer holds for every node at once. Invariant: among few pods
(`EXHAUSTIVE_POOL`) no better set exists than the one found; among more, none exists unless taking
more pods away can make a node worse, or the time was up (`cut_short`).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, TypeAlias

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.preemption.victim_order import by_importance, priority_sum
from stellwerk.snapshot.columns import Mask, RowColumn

EXHAUSTIVE_POOL: Final = 8
"""Up to so many pods every set is considered."""

Loss: TypeAlias = tuple[int, int, int, int]
"""(budget violations, highest priority, sum of priorities above 0, number of victims)."""
Victims: TypeAlias = tuple[PodInfo, ...]


@dataclass(frozen=True, slots=True)
class VictimSet:
    """Victims, the most important first, with what their going costs."""

    victims: Victims
    loss: Loss

    @property
    def pdb_violations(self) -> int:
        """How many budgets their going overdraws, pod by pod."""
        return self.loss[0]


@dataclass(frozen=True, slots=True)
class Target:
    """Nodes for which the same pods are in the way."""

    rows: RowColumn
    pool: Sequence[PodInfo]
    """The most important first."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a set of victims, and the search for it, must keep to."""

    max_victims: int
    may_violate_budgets: bool
    time_is_up: Callable[[], bool]


class VictimSearch:
    """One search, for one pod."""

    def __init__(
        self,
        fits_without: Callable[[Victims], Mask],
        violations: Callable[[Sequence[PodInfo]], int],
        limits: Limits,
    ) -> None:
        """`fits_without` returns (N,) bool: the rows that take the pod when these are gone."""
        self._fits_without = fits_without
        self._violations = violations
        self._limits = limits
        self._known: dict[frozenset[str], Mask] = {}
        self.best: VictimSet | None = None
        self.best_rows: list[int] = []
        """The rows that the best set makes room on."""
        self.cut_short = False

    def run(self, targets: Iterable[Target]) -> None:
        """Look for the best set over all targets; what may cost least comes first."""
        doubtful = []
        for target in sorted(targets, key=_least_loss):
            if self._out_of_time():
                return
            if not self._fitting(tuple(target.pool), target.rows):
                doubtful.append(target)
            elif len(target.pool) > EXHAUSTIVE_POOL:
                self._branch(target, (), tuple(target.pool))
            else:
                self._try_all(target)
        for target in doubtful:
            # Fewer absences help where more do not only with spread constraints over two keys.
            if len(target.pool) <= EXHAUSTIVE_POOL:
                self._try_all(target)

    # --- every set ------------------------------------------------------------------------------

    def _try_all(self, target: Target) -> None:
        """Every set of the pool, the smallest loss first, until one makes room."""
        for candidate in sorted(self._sets(target.pool), key=lambda each: each.loss):
            if not self._improves(candidate) or self._out_of_time():
                return
            rows = self._fitting(candidate.victims, target.rows)
            if rows:
                self._keep(candidate, rows)
                return

    def _sets(self, pool: Sequence[PodInfo]) -> Iterator[VictimSet]:
        for size in range(1, min(len(pool), self._limits.max_victims) + 1):
            for victims in combinations(pool, size):
                candidate = self._valued(victims)
                if self._allowed(candidate):
                    yield candidate

    # --- branch and bound -----------------------------------------------------------------------

    def _branch(self, target: Target, chosen: Victims, undecided: Victims) -> None:
        """Sets of `chosen` and some of `undecided`; the most important stay if they can."""
        if self._out_of_time():
            return
        if chosen:
            so_far = self._valued(chosen)
            # Every further victim only adds to the loss.
            if not self._allowed(so_far) or not self._improves(so_far):
                return
            rows = self._fitting(chosen, target.rows)
            if rows:
                self._keep(so_far, rows)
                return
        if not undecided or not self._fitting((*chosen, *undecided), target.rows):
            return
        self._branch(target, chosen, undecided[1:])
        self._branch(target, (*chosen, undecided[0]), undecided[1:])

    # --- judging a set --------------------------------------------------------------------------

    def _valued(self, victims: Victims) -> VictimSet:
        highest = max(pod.priority for pod in victims)
        loss = (self._violations(victims), highest, priority_sum(victims), len(victims))
        return VictimSet(victims, loss)

    def _allowed(self, candidate: VictimSet) -> bool:
        limits = self._limits
        return len(candidate.victims) <= limits.max_victims and (
            limits.may_violate_budgets or not candidate.pdb_violations
        )

    def _improves(self, candidate: VictimSet) -> bool:
        return self.best is None or candidate.loss < self.best.loss

    def _fitting(self, victims: Victims, rows: RowColumn) -> list[int]:
        """Those of the rows that take the pod when the victims are gone."""
        key = frozenset(pod.uid for pod in victims)
        fits = self._known.get(key)
        if fits is None:
            fits = self._known[key] = self._fits_without(victims)
        return [row for row in rows.tolist() if fits[row]]

    def _keep(self, candidate: VictimSet, rows: list[int]) -> None:
        self.best = VictimSet(tuple(by_importance(candidate.victims)), candidate.loss)
        self.best_rows = rows

    def _out_of_time(self) -> bool:
        self.cut_short = self.cut_short or self._limits.time_is_up()
        return self.cut_short


def _least_loss(target: Target) -> tuple[int, int]:
    """What the cheapest single victim of a target would cost, and how long the search may take."""
    return (min(pod.priority for pod in target.pool), len(target.pool))
