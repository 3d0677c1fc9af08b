"""The queues, throughput, failures and latency over time, in rings of a fixed size.

The operator samples it every few seconds (`scheduler.observers.instruments`), its port serves it,
and the page draws it. Invariant: it is as large after a month as after an hour, and a sample looks
at no pod.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stellwerk.answers.queue import QueueHistoryPage, QueueSample
from stellwerk.explain.queue_facts import at
from stellwerk.explain.steps import Steps
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError

SAMPLE_SECONDS: Final = 5.0
"""Seconds between two samples, which is the period of a fine point."""
FINE_POINTS: Final = 600
"""Points of 5 s that are kept: those of the last 50 minutes."""
COARSE_POINTS: Final = 720
"""Points of a minute that are kept: those of the last 12 hours."""
SAMPLES_PER_COARSE_POINT: Final = 12
"""Samples of which a coarse point is made: those of a minute."""
_MAX_POINTS_PER_STEP: Final = 200
"""Points that are written before yielding."""
_QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
_COLUMNS: Final = ("at", "seconds", *_QUEUES, "scheduled", "bound", "failed", "p50", "p99")
Range: TypeAlias = Literal["", "5m", "1h", "all"]
RANGES: Final[dict[str, float]] = {"5m": 300.0, "1h": 3600.0, "all": COARSE_POINTS * 60.0}
"""Ranges that can be asked for, in seconds."""
_Point: TypeAlias = npt.NDArray[np.float64]
"""(11,) float64: one value for each of _COLUMNS. Times are monotonic seconds; p50 and p99 are
seconds, or nan where no pod was bound in the period."""


class _Ring:
    """The last points, the oldest first; memory for all of them is taken at once."""

    def __init__(self, size: int) -> None:
        self._points: npt.NDArray[np.float64] = np.zeros((size, len(_COLUMNS)))
        """(size, 11) float64, see _Point."""
        self._next = 0
        self.count = 0

    def __iter__(self) -> Iterator[_Point]:
        size = len(self._points)
        for number in range(self._next - self.count, self._next):
            yield self._points[number % size]

    @property
    def nbytes(self) -> int:
        """Bytes of all points."""
        return self._points.nbytes

    @property
    def is_full(self) -> bool:
        """Whether the next point takes the place of the oldest one."""
        return self.count == len(self._points)

    def put(self, values: Sequence[float]) -> None:
        """Keep a point, in place of the oldest one where the ring is full."""
        size = len(self._points)
        self._points[self._next] = values
        self._next = (self._next + 1) % size
        self.count = min(self.count + 1, size)


@dataclass(frozen=True, slots=True)
class AttemptTotals:
    """Counters of attempts, which only grow, at one moment."""

    bound: float = 0.0
    """Attempts that ended with a binding."""
    failed: float = 0.0
    """Attempts that ended otherwise."""
    bounds: Sequence[float] = ()
    """Upper bounds in seconds of the buckets of `latency`, but for the last one, which has none."""
    latency: Sequence[int] = ()
    """Bound pods by the time that they took, whatever the number of their attempts."""


class QueueHistory:
    """The points since this replica began to lead, as far back as the rings go."""

    def __init__(
        self,
        world: World,
        totals: Callable[[], AttemptTotals] = AttemptTotals,
        fine_points: int = FINE_POINTS,
        coarse_points: int = COARSE_POINTS,
    ) -> None:
        """Keep what is sampled of a World; `totals` reads the counters of its scheduler."""
        self._world = world
        self._totals = totals
        self._make: Callable[[], tuple[_Ring, _Ring]] = lambda: (
            _Ring(fine_points),
            _Ring(coarse_points),
        )
        self.begin()

    def begin(self) -> None:
        """Forget what was sampled: what a replica saw that did not lead says nothing."""
        self._fine, self._coarse = self._make()
        self._began_seconds = self._world.clock.monotonic()
        self._last = self._minute = (self._began_seconds, self._totals())
        self._most = dict.fromkeys(_QUEUES, 0)
        self._samples = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the rings."""
        return self._fine.nbytes + self._coarse.nbytes

    def sample(self) -> None:
        """Keep how the queues are now, and what happened since the last sample."""
        now = (self._world.clock.monotonic(), self._totals())
        counts, scheduled = self._world.queue.pending(), self._scheduled()
        self._fine.put(self._values(self._last, now, counts, scheduled))
        self._last = now
        self._most = {queue: max(most, counts[queue]) for queue, most in self._most.items()}
        self._samples += 1
        if self._samples % SAMPLES_PER_COARSE_POINT == 0:
            self._coarse.put(self._values(self._minute, now, self._most, scheduled))
            self._minute, self._most = now, dict.fromkeys(_QUEUES, 0)

    def page(self, wanted: str = "") -> Steps[QueueHistoryPage]:
        """The points of a range, oldest first, and the queues at this moment.

        Args:
            wanted: one of RANGES; empty: all fine points.

        Raises:
            ConfigurationError: there is no such range.
        """
        if wanted and wanted not in RANGES:
            raise ConfigurationError(f'a range is one of {", ".join(RANGES)}, not "{wanted}"')
        # Where the fine points go back as far as the coarse ones, they show more.
        is_fine = wanted in {"", "5m"} or not self._fine.is_full
        clock = self._world.clock
        now = clock.monotonic()
        earliest = now - RANGES.get(wanted, math.inf)
        present = self._values(
            self._last, (now, self._totals()), self._world.queue.pending(), self._scheduled()
        )
        ring = self._fine if is_fine else self._coarse
        # Copied: the rings are written between two steps.
        kept = [point.tolist() for point in ring if point[0] > earliest]
        yield
        items = []
        for number, point in enumerate([*kept, present]):
            if number % _MAX_POINTS_PER_STEP == 0:
                yield
            items.append(self._sample(dict(zip(_COLUMNS, point, strict=True))))
        return QueueHistoryPage(
            every_seconds=SAMPLE_SECONDS * (1 if is_fine else SAMPLES_PER_COARSE_POINT),
            items=items,
            began=at(clock, self._began_seconds),
            kept_seconds=RANGES["all"],
        )

    def _sample(self, point: dict[str, float]) -> QueueSample:
        p50, p99 = point["p50"], point["p99"]
        return QueueSample(
            at=at(self._world.clock, point["at"]),
            seconds=round(point["seconds"], 3),
            **{queue: int(point[queue]) for queue in _QUEUES},
            scheduled=int(point["scheduled"]),
            bound=int(point["bound"]),
            failed=int(point["failed"]),
            p50_seconds=None if np.isnan(p50) else round(p50, 6),
            p99_seconds=None if np.isnan(p99) else round(p99, 6),
        )

    def _scheduled(self) -> int:
        profiles = self._world.profiles.served.values()
        return sum(profile.activity.scheduled_pods for profile in profiles)

    def _values(
        self,
        before: tuple[float, AttemptTotals],
        now: tuple[float, AttemptTotals],
        counts: Mapping[str, int],
        scheduled: int,
    ) -> list[float]:
        """A point for the period between two moments, in the order of _COLUMNS."""
        (began, old), (ended, new) = before, now
        earlier = old.latency or (0,) * len(new.latency)
        bound = [count - had for count, had in zip(new.latency, earlier, strict=True)]
        return [
            ended,
            ended - began,
            *(counts[queue] for queue in _QUEUES),
            scheduled,
            new.bound - old.bound,
            new.failed - old.failed,
            quantile(new.bounds, bound, 0.5),
            quantile(new.bounds, bound, 0.99),
        ]


def quantile(bounds: Sequence[float], counts: Sequence[int], share: float) -> float:
    """The value that a share of the observations in buckets stays below; nan: there is none.

    Within a bucket values are taken as evenly spread, as Prometheus' `histogram_quantile` does; in
    the last one, which has no upper bound, the value is the highest bound.
    """
    total = sum(counts)
    if total <= 0:
        return float("nan")
    wanted, seen, lower = share * total, 0.0, 0.0
    for bound, count in zip(bounds, counts, strict=False):
        if count and seen + count >= wanted:
            return lower + (bound - lower) * (wanted - seen) / count
        seen, lower = seen + count, bound
    return bounds[-1]
