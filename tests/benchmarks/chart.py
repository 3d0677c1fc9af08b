"""Line charts as SVG, by hand: enough for figures over the size of a cluster.

`suite` and `study_plugins` draw with it. Both axes are logarithmic unless they are asked to be
linear, because sizes and rates span decades.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Final
from xml.sax.saxutils import escape

from typing_extensions import override

Points = Sequence[tuple[float, float]]

_WIDTH: Final = 720
_HEIGHT: Final = 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 76, 130, 44, 52
_COLORS: Final = (
    "#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f",
)  # fmt: skip
_STEPS: Final = (1, 2, 5)
_LABEL_PIXELS: Final = 14
_MOST_TICKS: Final = 12


class _Axis:
    """A logarithmic axis from one pixel to another."""

    def __init__(self, values: Sequence[float], first_pixel: float, last_pixel: float) -> None:
        self._low, self._high = math.log10(min(values) / 1.15), math.log10(max(values) * 1.15)
        self._first, self._last = first_pixel, last_pixel

    def pixel(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._first + share * (self._last - self._first)

    def ticks(self) -> list[float]:
        decades = range(math.floor(self._low), math.ceil(self._high) + 1)
        candidates = [step * 10.0**decade for decade in decades for step in _STEPS]
        return [value for value in candidates if self._low <= math.log10(value) <= self._high]


class _LinearAxis(_Axis):
    """A linear axis from 0, from one pixel to another."""

    def __init__(self, values: Sequence[float], first_pixel: float, last_pixel: float) -> None:
        self._low, self._high = 0.0, max(values) * 1.05
        self._first, self._last = first_pixel, last_pixel

    @override
    def pixel(self, value: float) -> float:
        return self._first + value / self._high * (self._last - self._first)

    @override
    def ticks(self) -> list[float]:
        step = next(
            step * 10.0**decade
            for decade in range(-3, 9)
            for step in _STEPS
            if self._high / (step * 10.0**decade) <= _MOST_TICKS
        )
        return [step * each for each in range(int(self._high / step) + 1)]


def line_chart(
    title: str, x_label: str, y_label: str, lines: Mapping[str, Points], *, linear: bool = False
) -> str:
    """An SVG document with one line per name."""
    axis = _LinearAxis if linear else _Axis
    points = [point for line in lines.values() for point in line]
    across = axis([x for x, _ in points], _LEFT, _WIDTH - _RIGHT)
    up = axis([y for _, y in points], _HEIGHT - _BOTTOM, _TOP)
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        _text(_LEFT, 24, title, size=15),
        _text(middle, _HEIGHT - 12, x_label, anchor="middle"),
        _text(_LEFT - 60, _TOP - 10, y_label),
    ]
    for value in across.ticks():
        x = across.pixel(value)
        parts.append(_grid(x, _TOP, x, _HEIGHT - _BOTTOM))
        parts.append(_text(x, _HEIGHT - _BOTTOM + 18, _short(value), anchor="middle"))
    for value in up.ticks():
        y = up.pixel(value)
        parts.append(_grid(_LEFT, y, _WIDTH - _RIGHT, y))
        parts.append(_text(_LEFT - 8, y + 4, _short(value), anchor="end"))
    label_at = _apart({name: up.pixel(line[-1][1]) for name, line in lines.items()})
    for (name, line), color in zip(lines.items(), _COLORS, strict=False):
        drawn = " ".join(f"{across.pixel(x):.1f},{up.pixel(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{drawn}" fill="none" stroke="{color}" stroke-width="2"/>')
        parts.append(_text(_WIDTH - _RIGHT + 8, label_at[name] + 4, name, color=color))
    return "\n".join([*parts, "</svg>", ""])


def _apart(wanted: Mapping[str, float]) -> dict[str, float]:
    """Positions for labels near where they belong, none over another."""
    placed: dict[str, float] = {}
    lowest = float("-inf")
    for name, pixel in sorted(wanted.items(), key=lambda item: item[1]):
        lowest = placed[name] = max(pixel, lowest + _LABEL_PIXELS)
    return placed


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    color: str = "#222222",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-family="sans-serif" '
        f'font-size="{size}" fill="{color}">{escape(text)}</text>'
    )


def _grid(x1: float, y1: float, x2: float, y2: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="#dddddd"/>'


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
