"""`make soak`: the operator under every kind of fault, for long, and the fault matrix of it.

`python -m tests.soak.fault_matrix --minutes N` runs the kinds in turn, each with a new seed, until
the minutes are over or every kind has had its pods; `--document FILE` puts the matrix between the
markers of a page, as soon as enough kinds have had theirs: a short soak leaves the page as it is. A
run can be repeated alone: `--case NAME --seed N --runs 1`. The exit status is 1 if anything was
lost, doubled, over-committed or otherwise wrong.
"""

import argparse
import asyncio
import json
import logging
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.provenance import caption, provenance
from tests.support.fault_cases import CASES, LONG_OUTAGE
from tests.support.fault_load import Load
from tests.support.fault_runs import Case, Outcome, run_case

logger = logging.getLogger(__name__)

LOAD: Final = Load(pods=5000, per_second=250, nodes=100)
_PODS: Final = 10_000
_KINDS: Final = 12
"""So many must have had their pods before a page is written."""
_MINUTES: Final = 30.0
_SEEDS: Final = 1 << 32
_SHOWN_WRONGS: Final = 5
_RESULTS: Final = "fault_matrix.json"
BEGIN: Final = "<!-- fault matrix -->"
END: Final = "<!-- end of fault matrix -->"


@dataclass
class Row:
    """What all runs of a kind have shown."""

    fault: str
    runs: int = 0
    pods: int = 0
    struck: int = 0
    lost: int = 0
    doubled: int = 0
    over_committed: int = 0
    other: int = 0
    """Runs in which something else was wrong: the cache, a probe, an ending."""
    worst_delay_seconds: float = 0.0
    seeds: list[int] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count a run."""
        judged = outcome.judgement
        self.runs += 1
        self.pods += judged.created
        self.struck += sum(outcome.struck.values())
        self.lost += len(judged.unbound)
        self.doubled += len(judged.doubled)
        self.over_committed += len(judged.over_committed)
        self.other += bool(outcome.others)
        self.worst_delay_seconds = max(self.worst_delay_seconds, judged.worst_delay_seconds)
        self.seeds.append(outcome.seed)
        self.wrongs += [f"seed {outcome.seed}: {wrong}" for wrong in outcome.wrongs]

    def add_failure(self, seed: int, failure: Exception) -> None:
        """Count a run that came to no end that could be judged."""
        self.runs += 1
        self.other += 1
        self.seeds.append(seed)
        text = " ".join(str(failure).split())
        self.wrongs.append(f"seed {seed}: it could not be run: {text}")


def matrix(rows: list[Row]) -> str:
    """The table, and what was wrong below it."""
    head = ["fault", "runs", "pods", "strikes", "lost", "doubled", "over-committed", "otherwise"]
    body = [
        [
            *(row.fault, row.runs, f"{row.pods:,}", f"{row.struck:,}", row.lost, row.doubled),
            *(row.over_committed, row.other, f"{row.worst_delay_seconds:.1f} s"),
        ]
        for row in rows
    ]
    lines: list[list[object]] = [[*head, "worst delay"], ["---"] * (len(head) + 1), *body]
    table = "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
    wrongs = [
        f"- {row.fault}: {wrong:.300}" for row in rows for wrong in row.wrongs[:_SHOWN_WRONGS]
    ]
    return "\n\n".join([table, *(["\n".join(wrongs)] if wrongs else [])])


def documented(text: str, section: str) -> str:
    """The page with the section between its markers."""
    made = f"{BEGIN}\n\n{section}\n\n{END}"
    return re.sub(f"{BEGIN}.*?{END}", lambda _: made, text, flags=re.DOTALL)


def _section(rows: list[Row], measured: dict[str, Any]) -> str:
    return f"{matrix(rows)}\n\n{caption(measured)}"


def patient(case: Case, seconds: float) -> Case:
    """The same case with more time to be well again, where others need the processor, too."""
    return replace(
        case,
        recovery_seconds=case.recovery_seconds + seconds,
        audit_seconds=case.audit_seconds + seconds,
    )


def _turns(
    options: argparse.Namespace, rows: dict[str, Row], order: random.Random
) -> Iterator[str]:
    """One kind after the other, so that what time there is makes whole rows."""
    deadline = time.monotonic() + 60 * options.minutes
    names = list(rows)
    # Short soaks see other kinds each time.
    order.shuffle(names)
    # Of a kind that lost pods one run more is enough to see whether it does so again.
    most = options.runs or options.pods // options.pods_a_run + 1
    for name in names:
        for _ in range(most):
            if time.monotonic() > deadline:
                return
            if _wants_more(name, rows[name], options):
                yield name


def _wants_more(name: str, row: Row, options: argparse.Namespace) -> bool:
    if options.runs is not None:
        return bool(row.runs < options.runs)
    # Two minutes each time: one run says it.
    return row.pods < options.pods and not (name == LONG_OUTAGE and row.runs)


async def _soak(options: argparse.Namespace) -> list[Row]:
    seeds = random.Random(options.seed)
    rows = {name: Row(CASES[name].title) for name in options.case or CASES}
    measured = provenance(_command(options))
    if options.resume:
        measured |= _resume(rows, options.out)
    for name in _turns(options, rows, random.Random(options.seed)):
        seed = seeds.randrange(_SEEDS) if options.runs is None else options.seed + rows[name].runs
        load = replace(LOAD, pods=options.pods_a_run)
        case = patient(CASES[name], options.patience)
        with tempfile.TemporaryDirectory() as directory:
            try:
                rows[name].add(await run_case(case, seed, Path(directory), load))
            except AssertionError as failure:
                logger.warning("%s, seed %d could not be run: %s", case.title, seed, failure)
                rows[name].add_failure(seed, failure)
        done = [row for row in rows.values() if row.runs]
        _write(done, measured, options)
    return list(rows.values())


def _resume(rows: dict[str, Row], out: Path) -> dict[str, Any]:
    """Take the rows of an earlier run that showed nothing wrong; return how it was measured."""
    results = json.loads((out / _RESULTS).read_text(encoding="utf-8"))
    kept = {row["fault"]: Row(**row) for row in results["rows"] if not row["wrongs"]}
    for name, row in rows.items():
        rows[name] = kept.get(row.fault, row)
    return dict(results["measured"])


def _write(rows: list[Row], measured: dict[str, Any], options: argparse.Namespace) -> None:
    results = {"measured": measured, "rows": [asdict(row) for row in rows]}
    _keep(results, options.out)
    page = options.document
    if page is not None and _is_worth_a_page(rows, options):
        text = page.read_text(encoding="utf-8")
        page.write_text(documented(text, _section(rows, measured)), encoding="utf-8")
        _keep(results, page.with_suffix(""))


def _keep(results: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _RESULTS).write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def _is_worth_a_page(rows: list[Row], options: argparse.Namespace) -> bool:
    wanted: int = options.pods
    return sum(row.pods >= wanted for row in rows) >= _KINDS


def _command(options: argparse.Namespace) -> str:
    return f"python -m tests.soak.fault_matrix --minutes {options.minutes:g} --seed {options.seed}"


def main() -> int:
    """Run, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=_MINUTES, help="default: %(default)g")
    parser.add_argument("--pods", type=int, default=_PODS, help="of each kind (default: 10,000)")
    parser.add_argument("--pods-a-run", type=int, default=LOAD.pods, help="default: %(default)s")
    parser.add_argument("--case", action="append", choices=CASES, help="default: all of them")
    parser.add_argument("--runs", type=int, help="so many runs of each kind, from the seed on")
    parser.add_argument("--seed", type=int, help="default: a new one, which is printed")
    parser.add_argument(
        "--patience", type=float, default=0.0, help="seconds more until all must be well again"
    )
    parser.add_argument("--out", type=Path, default=Path("build/soak"))
    parser.add_argument(
        "--resume", action="store_true", help="go on with the results in --out that are well"
    )
    parser.add_argument("--document", type=Path, help="a page with markers for the matrix")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(_SEEDS)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", stream=sys.stdout)
    logging.getLogger("aiohttp").setLevel(logging.ERROR)
    logging.info("soak of %g minutes, seed %d", options.minutes, options.seed)  # noqa: LOG015 the program's own
    rows = [row for row in asyncio.run(_soak(options)) if row.runs]
    print(f"\n{matrix(rows)}")
    if options.document is not None and not _is_worth_a_page(rows, options):
        print(f"\n{options.document} is as it was: fewer than {_KINDS} kinds had their pods yet")
    return int(any(row.wrongs for row in rows))


if __name__ == "__main__":
    sys.exit(main())
