"""An HTML page of some runs: tables, and curves as SVG; it opens without a network.

The command writes it. Invariant: everything that comes from files is escaped, and nothing on the
page is loaded from elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import mean
from typing import Final, TypeAlias

from stellwerk_simulation.account import RunResult
from stellwerk_simulation.curve import CurvePoint, curve
from stellwerk_simulation.report import Lines

ValueOf: TypeAlias = Callable[[CurvePoint], float]
Curves: TypeAlias = Mapping[str, Sequence[Sequence[CurvePoint | None]]]
Place: TypeAlias = Callable[[float, float], tuple[float, float]]

_COLOURS: Final = ("#1f5fa8", "#c2501e", "#2e7d4f", "#7a4fa3", "#8a6d1d", "#a8325e", "#4a6572")
_WIDTH: Final = 720
_HEIGHT: Final = 300
_LEFT: Final = 48
_BOTTOM: Final = 34
_TICKS: Final = 5
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #1b1f24; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
td, th { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #dde2e8 }
td:first-child, th:first-child { text-align: left }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto }
text { font: 12px system-ui, sans-serif; fill: #57606a }
"""


def page(results: Sequence[RunResult], tables: Sequence[tuple[str, Lines]], until_pct: int) -> str:
    """The whole document."""
    parts = [
        f"<h2>{escape(title)}</h2><div class=wide>{_table(lines)}</div>" for title, lines in tables
    ]
    by_profile = {
        name: [curve(run, until_pct) for run in results if run.profile == name]
        for name in dict.fromkeys(run.profile for run in results)
    }
    if any(run.capacity for run in results) and until_pct > 1:
        parts.append("<h2>GPUs allocated, % of all, by load asked for</h2>")
        parts.append(_chart(by_profile, lambda point: point.allocated_pct, until_pct))
        parts.append("<h2>Fragments, % of all GPUs, by load asked for</h2>")
        parts.append(_chart(by_profile, lambda point: point.fragmented_pct, until_pct))
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'><title>Stellwerk: simulation</title>"
        f"<style>{_STYLE}</style></head><body><h1>Simulation</h1>{''.join(parts)}</body></html>\n"
    )


def _table(lines: Lines) -> str:
    head, *rows = lines
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _chart(by_profile: Curves, value_of: ValueOf, until_pct: int) -> str:
    """One line for each profile, the mean over its seeds."""
    means = {name: _mean(curves, value_of) for name, curves in by_profile.items()}
    top = max((value for line in means.values() for _, value in line), default=1.0) or 1.0

    def at(percent: float, value: float) -> tuple[float, float]:
        across = _LEFT + percent / until_pct * (_WIDTH - _LEFT - 8)
        return round(across, 1), round(
            _HEIGHT - _BOTTOM - value / top * (_HEIGHT - _BOTTOM - 12), 1
        )

    parts, legend = [_grid(until_pct, top, at)], []
    for index, (name, line) in enumerate(means.items()):
        colour = _COLOURS[index % len(_COLOURS)]
        points = " ".join(f"{x},{y}" for x, y in (at(*point) for point in line))
        parts.append(f"<polyline fill=none stroke='{colour}' stroke-width=2 points='{points}'/>")
        legend.append(f"<span style='color:{colour}'>━</span> {escape(name)}")
    box = f"viewBox='0 0 {_WIDTH} {_HEIGHT}' width={_WIDTH} height={_HEIGHT}"
    drawn = f"<svg role=img xmlns='http://www.w3.org/2000/svg' {box}>{''.join(parts)}</svg>"
    return f"<p>{' &ensp; '.join(legend)}</p>{drawn}"


def _grid(until_pct: int, top: float, at: Place) -> str:
    parts = []
    for tick in range(_TICKS + 1):
        x, base = at(until_pct * tick / _TICKS, 0.0)
        _, y = at(0.0, top * tick / _TICKS)
        parts.append(f"<line x1={_LEFT} x2={_WIDTH - 8} y1={y} y2={y} stroke='#e4e8ec'/>")
        parts.append(
            f"<text x={_LEFT - 6} y={y + 4} text-anchor=end>{top * tick / _TICKS:.3g}</text>"
        )
        label = f"{until_pct * tick / _TICKS:.0f} %"
        parts.append(f"<text x={x} y={base + 20} text-anchor=middle>{label}</text>")
    return "".join(parts)


def _mean(
    curves: Sequence[Sequence[CurvePoint | None]], value_of: ValueOf
) -> list[tuple[float, float]]:
    points = []
    for percent, at_load in enumerate(zip(*curves, strict=True)):
        values = [value_of(point) for point in at_load if point is not None]
        if values:
            points.append((float(percent), mean(values)))
    return points
