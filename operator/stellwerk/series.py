"""The time series that metrics are made of: counters, gauges, histograms, and families of them.

`stellwerk.metrics` declares the families, `serving.exposition` reads them. Invariant: values are
only changed on the event loop's thread, so that counting needs no lock.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Return `count` upper bounds, the first `start`, each `factor` times the one before.

    Multiplied step by step, as Go's client does: a power would differ in the last digit, and the
    bounds are label values.
    """
    bounds = [start]
    while len(bounds) < count:
        bounds.append(bounds[-1] * factor)
    return tuple(bounds)


class Counter:
    """One time series that only grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`, which must not be negative."""
        self.value += amount


class Gauge:
    """One time series that goes up and down, set by hand or read at each scrape."""

    __slots__ = ("_read", "value")

    def __init__(self) -> None:
        self.value = 0.0
        self._read: Callable[[], float] | None = None

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value

    def inc(self, amount: float = 1.0) -> None:
        """Add `amount`."""
        self.value += amount

    def set_function(self, read: Callable[[], float]) -> None:
        """Read the value at each scrape: what is cheap to read need not be counted."""
        self._read = read

    def current(self) -> float:
        """Return the value to expose."""
        return self.value if self._read is None else self._read()


class Histogram:
    """One distribution: observations per bucket, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is +Inf
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count one observation; a value on a bound belongs below it."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def observe_repeated(self, value: float, times: int) -> None:
        """Count the same observation several times, for what was measured as a batch."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)


SeriesT = TypeVar("SeriesT", Counter, Gauge, Histogram)


class Family(Generic[SeriesT]):
    """All series of one metric name, by their label values."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], make: Callable[[], SeriesT]
    ) -> None:
        self.name = name
        self.text = text
        self.label_names = tuple(labels)
        self._make: Callable[[], SeriesT] = make
        self._series: dict[tuple[str, ...], SeriesT] = {}

    def labels(self, *values: str) -> SeriesT:
        """Return the series of these label values, made on first use; keep it where it is hot.

        Raises:
            ValueError: not as many values as the family has labels.
        """
        series = self._series.get(values)
        if series is None:
            if len(values) != len(self.label_names):
                raise ValueError(f"{self.name} has labels {self.label_names}, not {values}")
            series = self._series[values] = self._make()
        return series

    @property
    def size(self) -> int:
        """The number of series."""
        return len(self._series)

    def has(self, *values: str) -> bool:
        """Return whether there is a series of these label values."""
        return values in self._series

    def remove(self, *values: str) -> None:
        """Drop a series, for a label value that will not come back."""
        self._series.pop(values, None)

    def items(self) -> Iterable[tuple[tuple[str, ...], SeriesT]]:
        """Return the label values and series that exist now."""
        return list(self._series.items())


class CounterFamily(Family[Counter]):
    """A counter for each combination of label values."""


class GaugeFamily(Family[Gauge]):
    """A gauge for each combination of label values."""


class HistogramFamily(Family[Histogram]):
    """A histogram for each combination of label values; all have the same buckets."""
