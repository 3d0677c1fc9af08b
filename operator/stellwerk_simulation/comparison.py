"""Two profiles over the same seeds: which is better at what, and by how much.

Invariant: runs are paired by seed, so that what differs between lists of pods cancels out; what the
interval does not tell apart from nothing is called no difference.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Final

from stellwerk_simulation.figures import FIGURES, Figure
from stellwerk_simulation.run_metrics import RunResult

_STUDENT_95: Final = (
    12.71,
    4.30,
    3.18,
    2.78,
    2.57,
    2.45,
    2.36,
    2.31,
    2.26,
    2.23,
    2.20,
    2.18,
    2.16,
    2.14,
    2.13,
    2.12,
    2.11,
    2.10,
    2.09,
    2.09,
    2.08,
    2.07,
    2.07,
    2.06,
    2.06,
    2.06,
    2.05,
    2.05,
    2.05,
    2.04,
)
"""The two-sided 95 % quantile of Student's distribution by degrees of freedom, from 1 on."""
_NORMAL_95: Final = 1.96


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one figure between the second profile and the first."""

    figure: Figure
    first: float
    second: float
    """Means over the seeds."""
    half_width: float | None
    """Half the width of the 95 % interval of the difference; None: one seed gives none."""

    @property
    def more(self) -> float:
        """The second's figure less the first's."""
        return self.second - self.first

    @property
    def verdict(self) -> str:
        """Whether the second is better."""
        if self.more == 0:
            return "equal"
        if self.half_width is None:
            return "one seed shows nothing"
        if abs(self.more) <= self.half_width:
            return "no difference shown"
        return "better" if (self.more > 0) == self.figure.more_is_better else "worse"


def differences(first: Sequence[RunResult], second: Sequence[RunResult]) -> list[Difference]:
    """Every figure that all runs have; runs are given in the order of the same seeds."""
    found = []
    for figure in FIGURES:
        before = [figure.of(run) for run in first]
        after = [figure.of(run) for run in second]
        known = [(a, b) for a, b in zip(before, after, strict=True) if None not in {a, b}]
        pairs = [(a, b) for a, b in known if a is not None and b is not None]
        if len(pairs) == len(before):
            found.append(_difference(figure, pairs))
    return found


def comparison(first: str, second: str, found: Sequence[Difference]) -> list[tuple[str, ...]]:
    """Lines of a table, the first its head."""
    lines: list[tuple[str, ...]] = [
        ("figure", first, second, "difference", "95 % interval", f"{second} is"),
    ]
    for each in found:
        figure = each.figure
        interval = "-"
        if each.half_width is not None:
            low, high = each.more - each.half_width, each.more + each.half_width
            interval = f"{_signed(figure, low)} to {_signed(figure, high)}"
        lines.append(
            (
                figure.name,
                figure.text(each.first),
                figure.text(each.second),
                _signed(figure, each.more),
                interval,
                each.verdict,
            )
        )
    return lines


def half_width_95(deviation: float, number: int) -> float:
    """Half the 95 % interval of the mean of so many values, at least two, with this deviation."""
    freedom = number - 1
    quantile = _STUDENT_95[freedom - 1] if freedom <= len(_STUDENT_95) else _NORMAL_95
    return quantile * deviation / math.sqrt(number)


def _difference(figure: Figure, pairs: Sequence[tuple[float, float]]) -> Difference:
    gains = [after - before for before, after in pairs]
    half_width = half_width_95(stdev(gains), len(gains)) if len(gains) > 1 else None
    first, second = mean(before for before, _ in pairs), mean(after for _, after in pairs)
    return Difference(figure, first, second, half_width)


def _signed(figure: Figure, value: float) -> str:
    decimals = max(1, figure.decimals)
    return f"{value:+.{decimals}f}{figure.unit}"
