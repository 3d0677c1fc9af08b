"""The figures of a run, by name, as tables show and comparisons compare them; curves over the load.

The command line writes curves, tests compare them with published ones. Invariants: a figure that
a run does not have (no GPUs, no prices) is None, never a made-up zero; a curve's value at a percent
is the mean over the arrivals at which the load, rounded, was that percent.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from stellwerk_kube.resource_amounts import CPU, MEMORY
from stellwerk_simulation.run_metrics import GPU, RunResult


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The cluster at one load; all in percent, of the capacity but for the ratio."""

    arrived_pct: int
    allocated_pct: float
    fragmented_pct: float
    fragmentation_ratio_pct: float
    """The share of fragments in what is idle."""


def curve(result: RunResult, until_pct: int) -> list[CurvePoint | None]:
    """The points from 0 to a percent; None where no arrival was near."""
    if not result.events or not result.capacity:
        return [None] * (until_pct + 1)
    events = np.array(result.events, np.float64)
    one_percent = result.capacity / 100
    load = np.rint(events[:, 0] / one_percent)
    allocated = np.round(events[:, 1] / one_percent, 2)
    columns = (allocated, events[:, 2] / one_percent, events[:, 3])
    return [_point(percent, load, columns) for percent in range(until_pct + 1)]


def _point(
    percent: int, load: npt.NDArray[np.float64], columns: Sequence[npt.NDArray[np.float64]]
) -> CurvePoint | None:
    at = load == percent
    if not at.any():
        at = abs(load - percent) <= 1
    if not at.any():
        return None
    return CurvePoint(percent, *(round(float(column[at].mean()), 2) for column in columns))


_FULL_PCT: Final = 100


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that a run is judged by."""

    name: str
    of: Callable[[RunResult], float | None]
    more_is_better: bool
    unit: str = ""
    decimals: int = 0

    def text(self, value: float | None) -> str:
        """The value as a table shows it."""
        return "-" if value is None else f"{value:.{self.decimals}f}{self.unit}"


def _share(resource: str) -> Callable[[RunResult], float | None]:
    def share(run: RunResult) -> float | None:
        value = run.allocated.get(resource)
        return None if value is None else 100 * value

    return share


def _at_full_load(run: RunResult) -> float | None:
    point = curve(run, _FULL_PCT)[_FULL_PCT]
    return None if point is None else point.allocated_pct


def _fragmented(run: RunResult) -> float | None:
    return run.events[-1].ratio_pct if run.events and run.capacity else None


FIGURES: Final = (
    Figure("placed", lambda run: float(run.placed), more_is_better=True),
    Figure(
        "waiting p50",
        lambda run: run.waiting_seconds[0],
        more_is_better=False,
        unit=" s",
        decimals=1,
    ),
    Figure(
        "waiting p99",
        lambda run: run.waiting_seconds[1],
        more_is_better=False,
        unit=" s",
        decimals=1,
    ),
    Figure("nodes in use", lambda run: float(run.nodes_in_use), more_is_better=False),
    Figure("cpu", _share(CPU), more_is_better=True, unit=" %", decimals=2),
    Figure("memory", _share(MEMORY), more_is_better=True, unit=" %", decimals=2),
    Figure("gpu", _share(GPU), more_is_better=True, unit=" %", decimals=2),
    Figure("gpu at 100 %", _at_full_load, more_is_better=True, unit=" %", decimals=2),
    Figure("fragmented of idle", _fragmented, more_is_better=False, unit=" %", decimals=2),
    Figure("hottest", lambda run: run.hottest_pct, more_is_better=False, unit=" %", decimals=1),
    Figure("hot", lambda run: run.hot_share_pct, more_is_better=False, unit=" %", decimals=2),
    Figure("preempted", lambda run: float(run.preempted), more_is_better=False),
    Figure("cost", lambda run: run.cost or None, more_is_better=False, decimals=2),
)


def named(run: RunResult) -> Mapping[str, float | None]:
    """All figures of a run."""
    return {figure.name: figure.of(run) for figure in FIGURES}
