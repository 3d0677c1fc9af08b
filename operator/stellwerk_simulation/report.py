"""The report of a simulation: a table of runs, and curves as CSV or JSON.

The command prints and writes with it. Invariant: a file appears under its name when it is whole.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final, TypeAlias

import orjson

from stellwerk_kube.errors import ConfigurationError
from stellwerk_simulation.answers import (
    ComparedFigure,
    SimulatedPod,
    SimulatedRun,
    SimulationAnswer,
)
from stellwerk_simulation.by_template import controllers_of_many, kinds_of, outcomes, without
from stellwerk_simulation.comparison import Difference, comparison, differences
from stellwerk_simulation.figures import FIGURES, CurvePoint, Figure, curve
from stellwerk_simulation.run_metrics import RunResult
from stellwerk_simulation.trace import TraceNode, TracePod

Lines: TypeAlias = Sequence[Sequence[str]]
"""The lines of a table; the first is its head."""

_PLACED: Final = "placed"
_DECIMALS: Final = 6
_COLUMNS: Final = ("arrived_pct", "allocated_pct", "fragmented_pct", "fragmentation_ratio_pct")


def runs_table(results: Sequence[RunResult]) -> Lines:
    """One line per run; with several seeds, one for the mean and deviation of each profile."""
    shown = [figure for figure in FIGURES if any(figure.of(run) is not None for run in results)]
    lines: list[tuple[str, ...]] = [
        ("profile", "seed", "pods", *(figure.name for figure in shown)),
    ]
    for profile in dict.fromkeys(result.profile for result in results):
        runs = [result for result in results if result.profile == profile]
        for run in runs:
            values = (figure.text(figure.of(run)) for figure in shown)
            lines.append((profile, str(run.seed), str(len(run.events)), *values))
        if len(runs) > 1:
            lines.append((profile, "mean", "", *(_mean(figure, runs) for figure in shown)))
    return lines


def comparison_table(results: Sequence[RunResult], first: str, second: str) -> Lines:
    """The measures in which the second of two profiles is better, and by how much."""
    pairs = [[run for run in results if run.profile == name] for name in (first, second)]
    return comparison(first, second, differences(*pairs))


_MAX_REASONS: Final = 3
"""Reasons that the text names; `-o json` has all."""
_MAX_EXAMPLES: Final = 3
"""Pods that are named for one reason."""


def left_out_lines(results: Sequence[RunResult]) -> Iterator[str]:
    """The pods that each run left out, those of one reason together."""
    for run in results:
        if not run.left_out:
            continue
        number = len(run.left_out)
        left = "1 pod" if number == 1 else f"{number:,} pods"
        yield f"{run.profile}, seed {run.seed}: {left} left out"
        by_reason: dict[str, list[str]] = {}
        for pod, why in run.left_out.items():
            by_reason.setdefault(why, []).append(pod)
        ordered = sorted(by_reason.items(), key=lambda each: -len(each[1]))
        for why, pods in ordered[:_MAX_REASONS]:
            more = f" and {len(pods) - _MAX_EXAMPLES:,} more" if len(pods) > _MAX_EXAMPLES else ""
            yield f"  {', '.join(pods[:_MAX_EXAMPLES])}{more}: {why}"
        if len(ordered) > _MAX_REASONS:
            yield f"  {len(ordered) - _MAX_REASONS:,} more reasons: -o json has all"


def conclusions(results: Sequence[RunResult]) -> Iterator[str]:
    """Conclusions from the runs on each profile beside the first, in sentences."""
    names = list(dict.fromkeys(run.profile for run in results))
    runs = {name: [run for run in results if run.profile == name] for name in names}
    first = names[0]
    for name in names[1:]:
        found = differences(runs[first], runs[name])
        placed = next((each for each in found if each.figure.name == _PLACED), None)
        if placed is not None:
            yield conclusion(first, name, placed)


def conclusion(first: str, second: str, placed: Difference) -> str:
    """Whether the second profile places more pods, in a sentence."""
    if placed.more == 0:
        return f"{second} places as many pods as {first}"
    share = 100 * placed.more / placed.first if placed.first else 0.0
    word = "more" if share > 0 else "fewer"
    if placed.half_width is None:
        return (
            f"{second} placed {abs(share):.1f} % {word} pods than {first}: no difference shown, "
            "one seed shows nothing"
        )
    half = 100 * placed.half_width / placed.first if placed.first else 0.0
    low, high = sorted((abs(share) - half, abs(share) + half))
    interval = f"95 %: {low:.1f} to {high:.1f}"
    if abs(placed.more) <= placed.half_width:
        return f"no difference shown between {first} and {second} ({interval} % {word} pods placed)"
    return f"{second} places {abs(share):.1f} % {word} pods than {first} ({interval})"


def answer_of(
    results: Sequence[RunResult],
    compared: Sequence[tuple[str, str]],
    pods: Sequence[TracePod] = (),
    nodes: Sequence[TraceNode] = (),
) -> SimulationAnswer:
    """Everything that came of some runs, as programs read it.

    `pods`, `nodes`: of the experiment, for the pods of a controller that has very many.
    """
    makers = controllers_of_many(pods)
    kinds = kinds_of(nodes) if makers else {}
    return SimulationAnswer(
        runs=[
            SimulatedRun(
                profile=run.profile,
                seed=run.seed,
                compatibility=run.compatibility,
                placed=run.placed,
                left_out=len(run.left_out),
                figures={
                    figure.name: round(value, _DECIMALS)
                    for figure in FIGURES
                    if (value := figure.of(run)) is not None
                },
                pods=[
                    *(
                        SimulatedPod(pod=pod, node=node)
                        for pod, node in without(run.nodes, makers.keys()).items()
                    ),
                    *(
                        SimulatedPod(pod=pod, reason=why)
                        for pod, why in without(run.left_out, makers.keys()).items()
                    ),
                ],
                templates=outcomes(makers, run.nodes, run.left_out, kinds) or None,
            )
            for run in results
        ],
        comparisons=[
            ComparedFigure(
                first=first,
                second=second,
                figure=each.figure.name,
                first_mean=each.first,
                second_mean=each.second,
                half_width=each.half_width,
                verdict=each.verdict,
            )
            for first, second in compared
            for each in differences(
                *([run for run in results if run.profile == name] for name in (first, second))
            )
        ],
        conclusions=list(conclusions(results)),
    )


def aligned(lines: Lines) -> str:
    """Columns of text, the first one to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _mean(figure: Figure, runs: Sequence[RunResult]) -> str:
    known = [value for run in runs if (value := figure.of(run)) is not None]
    if not known:
        return "-"
    text = figure.text(mean(known))
    return f"{text} ± {stdev(known):.2f}" if len(known) > 1 and figure.decimals else text


def write_curves(path: Path, results: Sequence[RunResult], until_pct: int) -> None:
    """Write every run's curve from 0 to a percent, as CSV or JSON by the file's name.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    rows = [row for result in results for row in _rows(result, until_pct)]
    text = orjson.dumps(rows, option=orjson.OPT_INDENT_2) if path.suffix == ".json" else _csv(rows)
    write_whole(path, text)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file, which appears under its name when it is whole.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            partial.write_bytes(content)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(f"cannot write {path}: {error.strerror}") from error


def _rows(result: RunResult, until_pct: int) -> list[dict[str, Any]]:
    run = {"profile": result.profile, "seed": result.seed}
    return [
        dict(zip(_COLUMNS, _values(percent, point), strict=True)) | run
        for percent, point in enumerate(curve(result, until_pct))
    ]


def _values(percent: int, point: CurvePoint | None) -> tuple[int | float | None, ...]:
    if point is None:
        return (percent, None, None, None)
    return (percent, point.allocated_pct, point.fragmented_pct, point.fragmentation_ratio_pct)


def _csv(rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, (*_COLUMNS, "profile", "seed"), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


BEGINNINGS: Final = {
    ".html": b"<!doctype html><html lang=en><head><meta charset=utf-8>"
    b"<meta name=viewport content='width=device-width'><title>Stellwerk: ",
    ".svg": b'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 ',
    ".csv": f"{','.join(_COLUMNS)},profile,seed\n".encode(),
    ".json": f'[\n  {{\n    "{_COLUMNS[0]}": '.encode(),
}
"""By the end of its name: the beginning of each file that is written here."""
