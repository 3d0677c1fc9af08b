"""An HTML page of some runs: tables, bars and curves; it opens without a network.

The command writes it, documents show the curves (`plot`). Invariant: everything that comes from
files is escaped, and nothing is loaded from elsewhere; the same runs give the same bytes.
"""

import html
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Final, NamedTuple, TypeAlias

from stellwerk_kube.untrusted_text import printable_lines
from stellwerk_simulation.figures import FIGURES, CurvePoint, Figure, curve
from stellwerk_simulation.report import Lines
from stellwerk_simulation.run_metrics import RunResult

Line: TypeAlias = Sequence[tuple[int, float]]
"""(percent of load, value)."""

_COLOURS: Final = (
    ("#1f5fa8", "#79b8ff"),
    ("#c2501e", "#ff9e64"),
    ("#2e7d4f", "#7ee2a8"),
    ("#7a4fa3", "#c9a6ff"),
    ("#8a6d1d", "#e3c566"),
    ("#a8325e", "#ff8fb8"),
    ("#4a6572", "#a9c1cc"),
)
"""In light and in dark."""
_DASHES: Final = ("", "6 3", "2 3")
"""For more profiles than colours."""
_WIDTH_PIXELS: Final = 820
"""Width of a figure, which fits a page without scrolling."""
_PANEL_PIXELS: Final = 300
"""Height of one panel of a figure."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 120, 40, 34
_NAME_STEP_PIXELS: Final = 15
"""Distance that the names of two lines keep, so that both can be read."""
_SHORT_PCT: Final = 2.0
"""Percent by which a profile allocates less than was asked for when profiles begin to differ."""
_MAX_TICKS: Final = 7
"""Ticks of an axis: more would write over each other."""
_STEPS: Final = tuple(digit * 10.0**power for power in range(-3, 4) for digit in (1, 2, 5))


class _Panel(NamedTuple):
    title: str
    lines: Mapping[str, Line]
    top: int
    """Its upper edge, in pixels."""

    @property
    def values(self) -> list[float]:
        return [value for line in self.lines.values() for _, value in line]


def escape(text: str) -> str:
    """A text within HTML or SVG, without the control characters that XML has no place for."""
    return html.escape(printable_lines(text))


def plot(results: Sequence[RunResult], until_pct: int) -> str:
    """The image; of several seeds the mean."""
    curves = {
        name: [curve(run, until_pct) for run in results if run.profile == name]
        for name in dict.fromkeys(run.profile for run in results)
    }
    return drawn(curves, until_pct)


def drawn(curves: Mapping[str, Sequence[Sequence[CurvePoint | None]]], until_pct: int) -> str:
    """The image of the curves of each profile's runs."""
    allocated = _means(curves, lambda point: point.allocated_pct)
    fragmented = _means(curves, lambda point: point.fragmented_pct)
    begin = _where_they_part(allocated, until_pct)
    titles = (
        (f"GPUs allocated, % of all, by load asked for (from {begin} % on)", allocated),
        ("Fragments: idle GPUs that typical pods cannot use, % of all", fragmented),
    )
    panels = [
        _Panel(title, {name: line[begin:] for name, line in lines.items()}, number * _PANEL_PIXELS)
        for number, (title, lines) in enumerate(titles)
    ]
    height = _PANEL_PIXELS * len(panels)
    body = "\n".join(_panel(panel, begin, until_pct) for panel in panels)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH_PIXELS} {height}" '
        f'role="img" width="{_WIDTH_PIXELS}" height="{height}">\n<title>{titles[0][0]}</title>\n'
        f'<style>{_style(len(curves))}</style>\n<rect width="100%" height="100%" rx="8"/>\n'
        f"{body}\n</svg>\n"
    )


def _style(profiles: int) -> str:
    """Colours in light, and over them those in dark."""
    used = range(min(profiles, len(_COLOURS)))

    def colours(of: int) -> str:
        return "".join(
            f".c{number}{{stroke:{_COLOURS[number][of]}}}text.c{number}"
            f"{{fill:{_COLOURS[number][of]};stroke:none}}"
            for number in used
        )

    return (
        "text{font:12px system-ui,sans-serif;fill:#57606a}.t{font-weight:600;fill:#1f2328}"
        "rect{fill:#fff}.g{stroke:#d8dee4}path{fill:none;stroke-width:1.8}"
        f"{colours(0)}@media(prefers-color-scheme:dark){{text{{fill:#9198a1}}.t{{fill:#f0f6fc}}"
        f"rect{{fill:#0d1117}}.g{{stroke:#2f3742}}{colours(1)}}}"
    )


def _where_they_part(lines: Mapping[str, Line], until_pct: int) -> int:
    """The load from which on profiles differ, a multiple of five."""
    short = [load for line in lines.values() for load, value in line if value < load - _SHORT_PCT]
    return max(0, min(min(short, default=0), until_pct - 10) // 5 * 5)


class _Scale(NamedTuple):
    """The scales of loads and values in a panel."""

    begin: int
    until: int
    values: Sequence[float]
    """Those that get a line, lowest first."""
    top: int

    def x(self, load: float) -> int:
        across = (load - self.begin) / max(1, self.until - self.begin)
        return round(_LEFT + across * (_WIDTH_PIXELS - _LEFT - _RIGHT))

    def y(self, value: float) -> float:
        up = (value - self.values[0]) / (self.values[-1] - self.values[0])
        return round(self.top + _PANEL_PIXELS - _BOTTOM - up * (_PANEL_PIXELS - _TOP - _BOTTOM), 1)


def _ticks(low: float, high: float) -> list[float]:
    """Round values around all others, at most seven of them."""
    for step in _STEPS:
        first, last = math.floor(low / step), math.ceil(high / step)
        if last - first < _MAX_TICKS:
            break
    return [round(number * step, 3) for number in range(first, max(last, first + 1) + 1)]


def _panel(panel: _Panel, begin: int, until_pct: int) -> str:
    values = _ticks(min(panel.values, default=0.0), max(panel.values, default=1.0))
    scale = _Scale(begin, until_pct, values, panel.top)
    title = f'<text class="t" x="{_LEFT}" y="{panel.top + 22}">{escape(panel.title)}</text>'
    parts = [title, *_grid(scale)]
    ends = {name: scale.y(line[-1][1]) for name, line in panel.lines.items() if line}
    heights = _apart(ends)
    for number, (name, line) in enumerate(panel.lines.items()):
        if line:
            way = "L".join(f"{scale.x(load)} {scale.y(value)}" for load, value in line)
            colour, dash = number % len(_COLOURS), _DASHES[number // len(_COLOURS) % len(_DASHES)]
            dashed = f' stroke-dasharray="{dash}"' if dash else ""
            parts.append(f'<path class="c{colour}"{dashed} d="M{way}"/>')
            where = f'x="{_WIDTH_PIXELS - _RIGHT + 8}" y="{heights[name] + 4:.1f}"'
            parts.append(f'<text class="c{colour}" {where}>{escape(name)}</text>')
    return "\n".join(parts)


def _grid(scale: _Scale) -> list[str]:
    right, base = _WIDTH_PIXELS - _RIGHT, scale.top + _PANEL_PIXELS - _BOTTOM
    parts = []
    for value in scale.values:
        y = scale.y(value)
        parts.append(f'<path class="g" d="M{_LEFT} {y}H{right}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>')
    for load in _ticks(scale.begin, scale.until):
        if scale.begin <= load <= scale.until:
            where = f'x="{scale.x(load)}" y="{base + 20}"'
            parts.append(f'<text {where} text-anchor="middle">{load:g} %</text>')
    return parts


def _apart(ends: Mapping[str, float]) -> dict[str, float]:
    """Heights for the names of lines, near their ends and not over one another."""
    placed: dict[str, float] = {}
    lowest = float("-inf")
    for name, end in sorted(ends.items(), key=lambda each: each[1]):
        lowest = placed[name] = max(end, lowest + _NAME_STEP_PIXELS)
    return placed


def _means(
    curves: Mapping[str, Sequence[Sequence[CurvePoint | None]]],
    value_of: Callable[[CurvePoint], float],
) -> dict[str, Line]:
    """By profile: the mean over its runs at each load that one of them has."""
    means: dict[str, Line] = {}
    for name, of_runs in curves.items():
        line: list[tuple[int, float]] = []
        for load, at_load in enumerate(zip(*of_runs, strict=True)):
            values = [value_of(point) for point in at_load if point is not None]
            if values:
                line.append((load, mean(values)))
        means[name] = line
    return means


_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem;
  color: #1b1f24; background: #fff }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
td, th { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid #d8dee4 }
td { white-space: nowrap }
td:first-child, th:first-child { text-align: left }
.wide { overflow-x: auto } svg { max-width: 100%; height: auto }
dl { display: grid; gap: 1rem 2rem;
  grid-template-columns: repeat(auto-fill, minmax(min(22rem, 100%), 1fr)) }
dt { font-weight: 600 } dd { margin: .2rem 0; font-size: 13px }
meter { width: 55%; height: .8rem; vertical-align: middle }
.name { display: inline-block; width: 25%; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; vertical-align: middle }
@media (prefers-color-scheme: dark) { body { color: #f0f6fc; background: #0d1117 }
  td, th { border-color: #2f3742 } }
"""


def page(
    results: Sequence[RunResult],
    tables: Sequence[tuple[str, Lines]],
    until_pct: int,
    about: Sequence[str] = (),
    facts: Sequence[tuple[str, str]] = (),
    left_out: Sequence[str] = (),
    compared: Mapping[str, Mapping[str, float]] | None = None,
    heading: str = "Simulation",
) -> str:
    """The whole document.

    `about`: what was simulated and what it shows; `facts`: what a reader needs to run it again;
    `left_out`: which pods got no node, and why; `compared`: title → name → what is drawn as a bar.
    """
    parts = [f"<p>{escape(each)}</p>" for each in about]
    parts += [
        f"<h2>{escape(title)}</h2><div class=wide>{_table(lines)}</div>" for title, lines in tables
    ]
    bars = "".join(_bars(figure, results) for figure in FIGURES)
    for title, values in (compared or {}).items():
        bars += _bar_list(title, values, "{:,.0f}".format)
    if bars:
        what = "Comparison" if compared else "Profiles compared"
        parts.append(f"<h2>{what}</h2><dl>{bars}</dl>")
    if any(run.capacity for run in results) and until_pct > 1:
        parts.append(f"<h2>By load asked for</h2>{plot(results, until_pct)}")
    if left_out:
        lines = escape("\n".join(left_out))
        parts.append(f"<h2>Pods left out</h2><pre class=wide>{lines}</pre>")
    if facts:
        rows = "".join(
            f"<tr><td>{escape(name)}</td><td>{escape(value)}</td></tr>" for name, value in facts
        )
        parts.append(f"<h2>How it was made</h2><div class=wide><table>{rows}</table></div>")
    return (
        "<!doctype html><html lang=en><head><meta charset=utf-8>"
        "<meta name=viewport content='width=device-width'>"
        f"<title>Stellwerk: {escape(heading.lower())}</title>"
        f"<style>{_STYLE}</style></head><body><h1>{escape(heading)}</h1>{''.join(parts)}</body></html>\n"
    )


def _table(lines: Lines) -> str:
    head, *rows = lines
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


def _bars(figure: Figure, results: Sequence[RunResult]) -> str:
    """The mean of a figure for each profile; empty: all are 0, or there is one profile alone."""
    values: dict[str, list[float]] = {}
    for run in results:
        value = figure.of(run)
        if value is not None:
            values.setdefault(run.profile, []).append(value)
    means = {name: mean(of_runs) for name, of_runs in values.items()}
    if len(means) <= 1:
        return ""
    return _bar_list(figure.name, means, figure.text)


def _bar_list(title: str, means: Mapping[str, float], text_of: Callable[[float], str]) -> str:
    """A bar for each name; empty: all are 0."""
    most = max(means.values(), default=0.0)
    if most <= 0:
        return ""
    lines = "".join(
        f"<dd><span class=name title='{escape(name)}'>{escape(name)}</span> "
        f"<meter max={most:.6g} value={value:.6g}></meter> {escape(text_of(value))}</dd>"
        for name, value in means.items()
    )
    return f"<div><dt>{escape(title)}</dt>{lines}</div>"
