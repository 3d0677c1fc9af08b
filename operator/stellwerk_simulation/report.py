"""What a simulation shows: a table of runs, and curves as CSV or JSON.

The command prints and writes with it. Invariant: a file appears under its name when it is whole.
"""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, Final

import orjson

from stellwerk.errors import ConfigurationError
from stellwerk_simulation.curve import CurvePoint, curve
from stellwerk_simulation.simulation import RunResult

_HEAD: Final = (
    "profile",
    "seed",
    "pods",
    "placed",
    "dropped",
    "nodes in use",
    "allocated at 100 %",
    "at the end",
    "fragmented of idle",
)
_FULL_PCT: Final = 100
_COLUMNS: Final = ("arrived_pct", "allocated_pct", "fragmented_pct", "fragmentation_ratio_pct")


def table(results: Sequence[RunResult]) -> str:
    """One line per run; with several seeds, one for the mean and deviation of each profile."""
    lines: list[tuple[str, ...]] = [_HEAD]
    for profile in dict.fromkeys(result.profile for result in results):
        runs = [result for result in results if result.profile == profile]
        lines += [_line(run) for run in runs]
        if len(runs) > 1:
            lines.append(_mean_line(profile, runs))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def write_curves(path: Path, results: Sequence[RunResult], until_pct: int) -> None:
    """Write every run's curve from 0 to a percent, as CSV or JSON by the file's name.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    rows = [row for result in results for row in _rows(result, until_pct)]
    text = orjson.dumps(rows, option=orjson.OPT_INDENT_2) if path.suffix == ".json" else _csv(rows)
    partial = path.with_name(f".{path.name}.partial")
    try:
        try:
            partial.write_bytes(text)
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


def _line(run: RunResult) -> tuple[str, ...]:
    pods = len(run.events)
    counts = (pods, run.placed, pods - run.placed, run.nodes_in_use)
    shares = (f"{share:.2f} %" if share is not None else "-" for share in _shares(run))
    return (run.profile, str(run.seed), *map(str, counts), *shares)


def _mean_line(profile: str, runs: Sequence[RunResult]) -> tuple[str, ...]:
    shares = []
    for column in zip(*map(_shares, runs), strict=True):
        known = [share for share in column if share is not None]
        text = f"{mean(known):.2f} %" if known else "-"
        shares.append(f"{text} ± {stdev(known):.2f}" if len(known) > 1 else text)
    return (profile, "mean", "", "", "", "", *shares)


def _shares(run: RunResult) -> tuple[float | None, float | None, float | None]:
    """Allocated at full load and in the end, and the fragmented share of what is idle."""
    full = curve(run, _FULL_PCT)[_FULL_PCT]
    if not run.events or not run.capacity:
        return (None, None, None)
    last = run.events[-1]
    allocated = 100 * last.used / run.capacity
    return (None if full is None else full.allocated_pct, allocated, last.ratio_pct)
