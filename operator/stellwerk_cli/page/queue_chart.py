"""The queues over time as areas on top of each other, in coordinates of an SVG.

The overview draws it. Invariant: an area has at most as many points as are seen, and the highest
sample of each stretch is one of them: a short peak is not lost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import accumulate, pairwise
from typing import Final

from stellwerk.answers.queue import QueueSample
from stellwerk_kube.clock import parse_moment

WIDTH: Final = 1000
HEIGHT: Final = 200
QUEUES: Final = ("active", "backoff", "unschedulable", "gated")
_MAX_POINTS: Final = 180
"""Points of a line: more would lie closer than a pixel on a small screen."""


@dataclass(frozen=True, slots=True)
class QueueChart:
    """The chart as it is drawn."""

    highest: int
    """Pods at the upper edge."""
    marks: Sequence[tuple[int, float]]
    """Figures of the axis: pods, and the height of their line in the SVG, the highest first."""
    middle: str
    """The moment in the middle."""
    since: str
    """The moment at the left edge."""
    until: str
    areas: Mapping[str, str]
    """Queue → the path of its area."""
    edges: Mapping[str, str]
    """Queue → the path of the upper edge of its area, which parts it from the next."""
    latest: Mapping[str, int]
    scheduled: int
    """Since the process started."""
    pods_per_second: float
    """Over the last minute, or as much of it as there is."""
    rows: Sequence[QueueSample]
    """A few samples, for a table."""


def queue_chart(samples: Sequence[QueueSample]) -> QueueChart:
    """Draw the samples, of which there is at least one."""
    times = [parse_moment(each.at).timestamp() for each in samples]
    first, last = samples[0], samples[-1]
    chosen = drawn(samples)
    highest = _round_up(max(_total(each) for each in samples))
    places = across(samples, chosen)
    if len(chosen) == 1:
        chosen, places = [*chosen, *chosen], [0.0, float(WIDTH)]
    stacks = [list(accumulate(_waiting(samples[at]))) for at in chosen]
    heights = [[0] * len(chosen), *([stack[q] for stack in stacks] for q in range(len(QUEUES)))]
    areas = {
        queue: _area(places, heights[number], heights[number + 1], highest)
        for number, queue in enumerate(QUEUES)
    }
    edges = {
        queue: f"M{' L'.join(_edge(places, heights[number + 1], highest))}"
        for number, queue in enumerate(QUEUES)
        if heights[number] != heights[number + 1]
    }
    middle = datetime.fromtimestamp((times[0] + times[-1]) / 2, UTC).isoformat()
    every = max(1, len(samples) // 12)
    return QueueChart(
        highest,
        _marks(highest),
        middle,
        first.at,
        last.at,
        areas,
        edges,
        dict(zip(QUEUES, _waiting(last), strict=True)),
        last.scheduled,
        _rate(samples, times),
        [*samples[::-every]][:12],
    )


def _total(sample: QueueSample) -> int:
    return sum(_waiting(sample))


def _waiting(sample: QueueSample) -> tuple[int, int, int, int]:
    """Pods by queue, in the order of QUEUES."""
    return sample.active, sample.backoff, sample.unschedulable, sample.gated


def drawn(samples: Sequence[QueueSample]) -> list[int]:
    """Positions of the highest sample of each stretch, and of the first and the last one."""
    if len(samples) <= _MAX_POINTS:
        return list(range(len(samples)))
    bounds = [number * len(samples) // _MAX_POINTS for number in range(_MAX_POINTS + 1)]
    highest = {
        max(range(begin, end), key=lambda at: _total(samples[at]))
        for begin, end in pairwise(bounds)
    }
    return sorted(highest | {0, len(samples) - 1})


def across(samples: Sequence[QueueSample], chosen: Sequence[int]) -> list[float]:
    """The x coordinates of some samples."""
    times = [parse_moment(samples[at].at).timestamp() for at in (0, *chosen, len(samples) - 1)]
    begin, end = times[0], times[-1]
    return [(time - begin) / max(1e-9, end - begin) * WIDTH for time in times[1:-1]]


def _round_up(value: int) -> int:
    """The next number of one digit and zeros: an upper edge that stays for a while."""
    size = int(10 ** (len(str(max(1, value))) - 1))
    return max(5, -(-value // size) * size)


def _marks(highest: int) -> list[tuple[int, float]]:
    """The upper edge, the ground, and quarters or halves between them that are whole numbers."""
    parts = next(parts for parts in (4, 2, 5, 3, 1) if highest % parts == 0)
    return [
        (highest * part // parts, HEIGHT - HEIGHT * part / parts) for part in range(parts, -1, -1)
    ]


def _edge(across: Sequence[float], heights: Sequence[int], highest: int) -> list[str]:
    """The points of a line."""
    return [
        f"{x:.1f},{HEIGHT - value / highest * HEIGHT:.1f}"
        for x, value in zip(across, heights, strict=True)
    ]


def _area(across: Sequence[float], below: Sequence[int], above: Sequence[int], highest: int) -> str:
    edge, back = _edge(across, above, highest), _edge(across, below, highest)
    return f"M{' L'.join(edge)} L{' L'.join(reversed(back))} Z"


def _rate(samples: Sequence[QueueSample], times: Sequence[float]) -> float:
    begin = next(at for at, time in enumerate(times) if time >= times[-1] - 60)
    seconds = times[-1] - times[begin]
    pods = samples[-1].scheduled - samples[begin].scheduled
    return max(0.0, pods / seconds) if seconds > 0 else 0.0
