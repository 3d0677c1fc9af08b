"""The figures of a run, by name: what tables show and comparisons compare.

Invariant: a figure that a run does not have (no GPUs, no prices) is None, never a made-up zero.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from stellwerk.models.pod_resources import CPU, MEMORY
from stellwerk_simulation.account import GPU, RunResult
from stellwerk_simulation.curve import curve

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
    Figure("preempted", lambda run: float(run.preempted), more_is_better=False),
    Figure("cost", lambda run: run.cost or None, more_is_better=False, decimals=2),
)


def named(run: RunResult) -> Mapping[str, float | None]:
    """All figures of a run."""
    return {figure.name: figure.of(run) for figure in FIGURES}
