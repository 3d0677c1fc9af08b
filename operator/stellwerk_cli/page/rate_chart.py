"""Throughput, failures and latency over time as lines, in coordinates of an SVG, and as words.

The overview draws it beside the queues (`queue_chart`), whose points it has. Invariant: a rate is
that of the whole stretch between two points, so that the lines do not depend on which samples are
drawn.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import floor, log10
from typing import Final

from stellwerk.answers.queue import QueueSample
from stellwerk_cli.page.queue_chart import HEIGHT, QUEUES, across, drawn

RATES: Final = ("bound", "failed")
LATENCIES: Final = ("p50", "p99")
_MILLISECONDS: Final = 1000


@dataclass(frozen=True, slots=True)
class LineChart:
    """Lines over one axis."""

    highest: float
    """The value at the upper edge: pods per second, or milliseconds."""
    marks: Sequence[tuple[str, float]]
    """Figures of the axis and the heights of their lines, the highest first."""
    lines: Mapping[str, str]
    """Line → its path; a line breaks off where there is no value."""
    latest: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class RateCharts:
    """Both charts, and the values of each point in words."""

    rates: LineChart
    """Pods per second."""
    latencies: LineChart
    """Milliseconds."""
    readings: Sequence[tuple[float, str, str]]
    """(x in the SVG, moment, values in words) of each point, for a pointer and for arrow keys."""


def rate_charts(samples: Sequence[QueueSample], local: Callable[[str], str]) -> RateCharts:
    """Draw the samples, of which there is at least one; `local` writes a moment."""
    chosen = drawn(samples)
    places = across(samples, chosen)
    stretches = [[samples[0]], *(samples[low + 1 : high + 1] for low, high in pairwise(chosen))]
    rates = {name: [_per_second(each, name) for each in stretches] for name in RATES}
    latencies = {
        name: [_longest(each, f"{name}_seconds") for each in stretches] for name in LATENCIES
    }
    readings = [
        (
            round(x, 1),
            samples[at].at,
            _words(samples[at], local, *(values[number] for values in rates.values()))
            + _latency_words(*(values[number] for values in latencies.values())),
        )
        for number, (x, at) in enumerate(zip(places, chosen, strict=True))
    ]
    return RateCharts(_chart(rates, places), _chart(latencies, places), readings)


def _per_second(stretch: Sequence[QueueSample], name: str) -> float | None:
    seconds = sum(each.seconds or 0.0 for each in stretch)
    return sum(getattr(each, name) for each in stretch) / seconds if seconds > 0 else None


def _longest(stretch: Sequence[QueueSample], name: str) -> float | None:
    """The longest latency of a stretch in milliseconds: a short peak is not lost."""
    found = [value for each in stretch if (value := getattr(each, name)) is not None]
    return _MILLISECONDS * max(found) if found else None


def _chart(values: Mapping[str, Sequence[float | None]], places: Sequence[float]) -> LineChart:
    highest = _round_up(max((it for line in values.values() for it in line if it), default=0.0))
    lines = {name: _line(places, line, highest) for name, line in values.items()}
    marks = [(f"{highest * part:g}", HEIGHT - HEIGHT * part) for part in (1, 0.5, 0)]
    return LineChart(highest, marks, lines, {name: line[-1] for name, line in values.items()})


def _round_up(value: float) -> float:
    """The next of 1, 2 and 5 times a power of ten, at least 1: an edge that stays for a while."""
    size = 10.0 ** floor(log10(max(1.0, value)))
    return next(size * factor for factor in (1, 2, 5, 10) if size * factor >= value)


def _line(places: Sequence[float], values: Sequence[float | None], highest: float) -> str:
    path, is_drawing = [], False
    for number, (x, value) in enumerate(zip(places, values, strict=True)):
        if value is None:
            is_drawing = False
            continue
        y = HEIGHT - min(1.0, value / highest) * HEIGHT
        path.append(f"{'L' if is_drawing else 'M'}{x:.1f},{y:.1f}")
        is_last = number + 1 == len(values) or values[number + 1] is None
        if not is_drawing and is_last:
            path.append(f"h{_ALONE}")  # a value between two gaps is a short line
        is_drawing = True
    return " ".join(path)


_ALONE: Final = 3
"""Length of the line of a value that stands alone."""


def _words(
    sample: QueueSample, local: Callable[[str], str], bound: float | None, failed: float | None
) -> str:
    waiting = ", ".join(f"{getattr(sample, queue)} {queue}" for queue in QUEUES)
    rates = "" if bound is None else f"; {bound:.3g} bound and {failed or 0:.3g} failed per s"
    return f"{local(sample.at)}: {waiting}{rates}"


def _latency_words(p50: float | None, p99: float | None) -> str:
    if p50 is None or p99 is None:
        return ""
    return f"; p50 {milliseconds(p50)}, p99 {milliseconds(p99)}"


def milliseconds(value: float) -> str:
    """A latency with its unit."""
    if value < _MILLISECONDS:
        return f"{value:.3g} ms"
    return f"{value / _MILLISECONDS:.3g} s"
