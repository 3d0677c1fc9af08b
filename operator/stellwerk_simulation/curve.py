"""Curves over the load: what was recorded after each arrival, by whole percents of the capacity.

The command line writes them, tests compare them with published ones. Invariant: the value at a
percent is the mean over the arrivals at which the load, rounded, was that percent.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stellwerk_simulation.account import RunResult


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The cluster at one load; all in percent, of the capacity but for the ratio."""

    arrived_pct: int
    allocated_pct: float
    fragmented_pct: float
    fragmentation_ratio_pct: float
    """Of what is idle."""


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
