"""An HTML page of some runs: tables, bars and curves; it opens without a network.

The command writes it. Invariant: everything that comes from files is escaped, and nothing on the
page is loaded from elsewhere.
"""

from collections.abc import Sequence
from html import escape
from statistics import mean
from typing import Final

from stellwerk_simulation.figures import FIGURES, Figure
from stellwerk_simulation.plot import plot
from stellwerk_simulation.report import Lines
from stellwerk_simulation.run_metrics import RunResult

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
    about: str = "",
) -> str:
    """The whole document; `about` says what was simulated."""
    parts = [f"<p>{escape(about)}</p>"] if about else []
    parts += [
        f"<h2>{escape(title)}</h2><div class=wide>{_table(lines)}</div>" for title, lines in tables
    ]
    bars = "".join(_bars(figure, results) for figure in FIGURES)
    if bars:
        parts.append(f"<h2>Profiles beside one another</h2><dl>{bars}</dl>")
    if any(run.capacity for run in results) and until_pct > 1:
        parts.append(f"<h2>By load asked for</h2>{plot(results, until_pct)}")
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


def _bars(figure: Figure, results: Sequence[RunResult]) -> str:
    """The mean of a figure for each profile; empty: all are 0, or there is one profile alone."""
    values: dict[str, list[float]] = {}
    for run in results:
        value = figure.of(run)
        if value is not None:
            values.setdefault(run.profile, []).append(value)
    means = {name: mean(of_runs) for name, of_runs in values.items()}
    most = max(means.values(), default=0.0)
    if len(means) <= 1 or most <= 0:
        return ""
    lines = "".join(
        f"<dd><span class=name title='{escape(name)}'>{escape(name)}</span> "
        f"<meter max={most:.6g} value={value:.6g}></meter> {escape(figure.text(value))}</dd>"
        for name, value in means.items()
    )
    return f"<div><dt>{escape(figure.name)}</dt>{lines}</div>"
