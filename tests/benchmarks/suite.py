"""`make bench`: everything that is measured, as one JSON file, tables, and charts.

`python -m tests.benchmarks.suite --out DIRECTORY` writes `results.json` and the charts there and
prints the tables; `--document FILE` puts them into a page as well. Every absolute figure stands
beside its ratio to a target, or to the same workload's figure at another size. A part that is run
alone (`--part`) takes the place of its earlier figures, and leaves the others.
"""

import argparse
import json
import re
import shlex
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import CONSTRAINED, KINDS
from tests.benchmarks import bench_decide, bench_drain, bench_events
from tests.benchmarks.chart import line_chart
from tests.benchmarks.drain import Load, Scheduler
from tests.benchmarks.provenance import caption, provenance

Rows = list[JsonObject]

SIZES: Final = (100, 1000, 5000, 20_000)
_REFERENCE_NODES: Final = 5000
_DECISIONS_PER_SECOND: Final = {
    "basic": 8000,
    "zipf": 4000,
    "unique": 1500,
    **dict.fromkeys(CONSTRAINED, 4000),
}
_EVENTS_PER_SECOND: Final = 30_000
_CPU_MS_PER_POD: Final = {"basic": 0.85}
_USUAL_CPU_MS_PER_POD: Final = 1.1
_PEAK_MIB: Final = 350
_READY_SECONDS: Final = 10.0
_LATENCY_MS: Final = {100.0: (6, 32), 200.0: (13, 179)}
"""kube-scheduler's p50 and p99 from creation to binding, by pods per second."""
_BACKLOG: Final[dict[str, Any]] = {"nodes": _REFERENCE_NODES, "init": 1000, "pods": 4000}
_COMPARED_BACKLOG: Final[dict[str, Any]] = _BACKLOG | {"pods": 2000}


def decisions() -> Rows:
    """Decisions per second of each workload at each size."""
    return [
        bench_decide.measure(kind, nodes, decisions=2000 if nodes >= _REFERENCE_NODES else 1000)
        for nodes in SIZES
        for kind in KINDS
    ]


def events() -> Rows:
    """Watch events per second."""
    return list(bench_events.everything())


def backlogs() -> Rows:
    """A backlog of each workload, from the API server and back."""
    return [bench_drain.measure(Load(kind, **_BACKLOG)) for kind in KINDS]


def paced() -> Rows:
    """Pods that arrive at a steady rate."""
    return [bench_drain.measure(_paced(rate)) for rate in _LATENCY_MS]


def _paced(rate: float) -> Load:
    return Load("basic", nodes=_REFERENCE_NODES, init=1000, pods=int(15 * rate), rate=rate)


_COMPARED: Final = (
    *(
        (Load(kind, **_COMPARED_BACKLOG), goal)
        for kind, goal in {
            "basic": 3.5,
            "zipf": 3.0,
            "unique": 3.5,
            "spread": 8.0,
            "prefspread": 8.0,
            "aff": 11.0,
            "anti": 9.0,
            "prefanti": 9.0,
        }.items()
    ),
    *(
        (Load(kind, **_COMPARED_BACKLOG | {"nodes": 20_000}), goal)
        for kind, goal in {"basic": 6.0, "spread": 11.0}.items()
    ),
    (Load("preempt", nodes=1000, pods=500), 0.35),
    (_paced(100), 0.5),
    (_paced(200), 0.15),
)
"""Loads for two schedulers, with the goal for the ratio of the figure that `_judged_by` names."""


def start() -> Rows:
    """Memory, and time to ready, with 50,000 pods that are listed first."""
    return [bench_drain.measure(Load("basic", nodes=_REFERENCE_NODES, init=50_000, pods=1000))]


def stages() -> Rows:
    """What a pod costs, stage by stage, for a cheap and a dear workload."""
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "stages.json"
        for kind in ("basic", "prefanti"):
            load = Load(kind, nodes=_REFERENCE_NODES, init=1000, pods=4000)
            bench_drain.measure(load, stages=file)
            rows.append({"kind": kind, **json.loads(file.read_text(encoding="utf-8"))})
    return rows


def comparison(kubeconfig: Path, other: Scheduler, rounds: int) -> Iterator[Rows]:
    """Another scheduler and Stellwerk in turn at the same API server: the pairs of each load.

    Round after round; what there is after the first, and then after each pair.
    """
    rows: Rows = [{**asdict(load), "goal": goal, "pairs": []} for load, goal in _COMPARED]
    for number in range(rounds):
        for row, (load, _) in zip(rows, _COMPARED, strict=True):
            row["pairs"].append(list(bench_drain.compare(load, kubeconfig, other, 1)))
            if number:
                yield rows
        yield rows


def _judged_by(row: JsonObject) -> str:
    if row["rate"]:
        return "p99_ms"
    return "total_s" if row["kind"] == "preempt" else "pods_per_s"


PARTS: Final[dict[str, Callable[[], Rows]]] = {
    "decisions": decisions,
    "events": events,
    "backlogs": backlogs,
    "paced": paced,
    "start": start,
    "stages": stages,
}


# --- tables ---------------------------------------------------------------------------------------


def _decision_table(rows: Rows) -> str:
    at = {(row["kind"], row["nodes"]): row["per_second"] for row in rows}
    body = []
    for kind in KINDS:
        reference = at[kind, _REFERENCE_NODES]
        target = _DECISIONS_PER_SECOND[kind]
        cells = [f"{at[kind, nodes]:,}" for nodes in SIZES]
        share = at[kind, SIZES[-1]] / reference
        body.append([kind, *cells, f"{reference / target:.2f}", f"{share:.2f}"])
    head = [
        "workload",
        *(f"{nodes:,} nodes" for nodes in SIZES),
        f"{_REFERENCE_NODES:,}: of the target",
        f"{SIZES[-1]:,} : {_REFERENCE_NODES:,}",
    ]
    return _table(head, body)


def _event_table(rows: Rows) -> str:
    return _table(
        ["into", "events/s", "µs", "of the target"],
        [
            [
                row["into"],
                f"{row['per_second']:,}",
                row["microseconds"],
                f"{row['per_second'] / _EVENTS_PER_SECOND:.2f}",
            ]
            for row in rows
        ],
    )


def _backlog_table(rows: Rows) -> str:
    body = []
    for row in rows:
        target = _CPU_MS_PER_POD.get(row["kind"], _USUAL_CPU_MS_PER_POD)
        share = row["cpu_ms_per_pod"] / target
        body.append(
            [row["kind"], row["pods_per_s"], row["cpu_ms_per_pod"], f"{share:.2f}", row["peak_mib"]]
        )
    return _table(["workload", "pods/s", "CPU ms/pod", "of the target", "peak MiB"], body)


def _paced_table(rows: Rows) -> str:
    body = []
    for row in rows:
        p50_ms, p99_ms = _LATENCY_MS[row["rate"]]
        body.append(
            [
                f"{row['rate']:.0f}",
                row["p50_ms"],
                f"{row['p50_ms'] / p50_ms:.2f}",
                row["p99_ms"],
                f"{row['p99_ms'] / p99_ms:.2f}",
                row["cpu_ms_per_pod"],
            ]
        )
    return _table(
        ["pods/s", "p50 ms", "of the target", "p99 ms", "of the target", "CPU ms/pod"], body
    )


def _start_table(rows: Rows) -> str:
    return _table(
        ["nodes", "pods", "ready s", "of the target", "peak MiB", "of the target"],
        [
            [
                f"{row['nodes']:,}",
                f"{row['init'] + row['pods']:,}",
                row["ready_s"],
                f"{row['ready_s'] / _READY_SECONDS:.2f}",
                row["peak_mib"],
                f"{row['peak_mib'] / _PEAK_MIB:.2f}",
            ]
            for row in rows
        ],
    )


def _stage_table(rows: Rows) -> str:
    names = list(dict.fromkeys(stage for row in rows for stage in row["us_per_pod"]))
    head = ["stage, µs a pod"]
    for row in rows:
        head += [row["kind"], "share"]
    body = []
    for stage in names:
        cells: list[Any] = [stage]
        for row in rows:
            spent = row["us_per_pod"].get(stage, 0.0)
            cells += [spent, f"{spent / row['total_us']:.0%}"]
        body.append(cells)
    total: list[Any] = ["all"]
    for row in rows:
        total += [row["total_us"], "100%"]
    return _table(head, [*body, total])


def _comparison_table(rows: Rows) -> str:
    body = []
    for row in rows:
        pairs, key = row["pairs"], _judged_by(row)
        what, digits, goal = f"{row['kind']}, pods/s", 0, f"at least {row['goal']:g}"
        if row["rate"]:
            what, goal = f"{row['rate']:.0f} pods/s, p99 ms", f"at most {row['goal']:g}"
        elif row["kind"] == "preempt":
            what, digits, goal = "preempt, s", 1, f"at most {row['goal']:g}"
        if row["nodes"] > _REFERENCE_NODES:
            what = f"{row['nodes']:,} nodes: {what}"
        theirs, ours = zip(*pairs, strict=True)
        cpu = [statistics.median(map(_cpu_ms_per_pod, each)) for each in (theirs, ours)]
        body.append(
            [
                what,
                *(", ".join(f"{each[key]:,.{digits}f}" for each in of) for of in (theirs, ours)),
                ", ".join(f"{our[key] / their[key]:.2f}" for their, our in pairs),
                goal,
                *(f"{each:.2f}" for each in cpu),
                f"{cpu[1] / cpu[0]:.2f}",
                ", ".join(f"{max(each['peak_mib'] for each in of)}" for of in (theirs, ours)),
            ]
        )
    head = ["workload", "other", "Stellwerk", "ratio of each pair", "goal"]
    head += ["other: CPU ms/pod", "Stellwerk: CPU ms/pod", "ratio", "MiB of both"]
    return _table(head, body)


def _cpu_ms_per_pod(figures: JsonObject) -> float:
    if figures["kind"] == "preempt":
        # The first one is bound late: what was spent before belongs to it.
        return float(1000 * figures["cpu_s"] / figures["bound"])
    return float(figures["cpu_ms_per_pod"])


_TABLES: Final[dict[str, Callable[[Rows], str]]] = {
    "decisions": _decision_table,
    "events": _event_table,
    "backlogs": _backlog_table,
    "paced": _paced_table,
    "start": _start_table,
    "stages": _stage_table,
    "comparison": _comparison_table,
}


def _table(head: Sequence[str], body: Sequence[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


# --- charts ---------------------------------------------------------------------------------------


def charts(results: JsonObject) -> dict[str, str]:
    """SVG documents by file name."""
    if "decisions" not in results:
        return {}
    rows: Rows = results["decisions"]["rows"]
    made = {}
    for name, key, title, label in (
        ("decisions.svg", "per_second", "Decisions per second of CPU time", "per second"),
        ("decision-cost.svg", "microseconds", "CPU time per decision", "µs"),
    ):
        lines = {
            kind: [(row["nodes"], row[key]) for row in rows if row["kind"] == kind]
            for kind in KINDS
        }
        made[name] = line_chart(title, "nodes", label, lines)
    return made


# --- all of it ------------------------------------------------------------------------------------


def section(part: str, result: JsonObject) -> str:
    """A part's table, with where it comes from."""
    return f"{_TABLES[part](result['rows'])}\n\n{caption(result['measured'])}"


def documented(text: str, results: JsonObject) -> str:
    """The page with each part's section between its pair of markers."""
    for part, result in results.items():
        begin, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        made = f"{begin}\n\n{section(part, result)}\n\n{end}"
        text = re.sub(f"{begin}.*?{end}", made.replace("\\", r"\\"), text, flags=re.DOTALL)
    return text


def write(results: JsonObject, directory: Path, documents: Sequence[Path]) -> None:
    """Write what was measured, and what it looks like."""
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, drawing in charts(results).items():
        (directory / name).write_text(drawing, encoding="utf-8")
    for document in documents:
        text = document.read_text(encoding="utf-8")
        document.write_text(documented(text, results), encoding="utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all of them")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    parser.add_argument(
        "--document", type=Path, nargs="+", default=[], help="pages with markers for the tables"
    )
    parser.add_argument("--other-cmd", help="another scheduler: measure the comparison only")
    parser.add_argument("--other-name", default="default-scheduler", help="its schedulerName")
    parser.add_argument("--kubeconfig", type=Path, help="a scratch cluster for the comparison")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of each load for it")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    earlier = options.out / "results.json"
    results: JsonObject = json.loads(earlier.read_text("utf-8")) if earlier.exists() else {}

    def keep(part: str, measured: JsonObject, rows: Rows) -> None:
        results[part] = {"measured": measured, "rows": rows}
        write(results, options.out, options.document)

    if options.other_cmd:
        if options.kubeconfig is None:
            parser.error("--other-cmd needs --kubeconfig")
        other = Scheduler(options.other_cmd, options.other_name)
        measured = provenance(_command("comparison", options.other_cmd))
        for rows in comparison(options.kubeconfig, other, options.rounds):
            keep("comparison", measured, rows)
        parts = ["comparison"]
    else:
        parts = options.part or list(PARTS)
        for part in parts:
            measured = provenance(_command(part, None))
            keep(part, measured, PARTS[part]())
    for part in parts:
        print(f"\n{part}\n\n{section(part, results[part])}", flush=True)


def _command(part: str, other: str | None) -> str:
    """How to measure the part again, without the paths of this machine."""
    if other is None:
        return f"python -m tests.benchmarks.suite --part {part}"
    program = Path(shlex.split(other)[0]).name
    return f"python -m tests.benchmarks.suite --kubeconfig … --other-cmd {program}"


if __name__ == "__main__":
    main()
