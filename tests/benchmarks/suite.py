"""`make bench`: everything that is measured, as one JSON file, tables, and charts.

`python -m tests.benchmarks.suite --out DIRECTORY` writes `results.json` and `tables.md` there, and
the charts beside them. Every absolute figure stands beside its ratio to a target, or to the same
workload's figure at another size. Each part can be run alone (`--part`).
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.benchmarks import bench_decide, bench_drain, bench_events
from tests.benchmarks.chart import line_chart
from tests.benchmarks.drain import Load
from tests.benchmarks.workloads import CONSTRAINED, KINDS

JsonObject = dict[str, Any]
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
    load = {"nodes": _REFERENCE_NODES, "init": 1000, "pods": 4000}
    return [bench_drain.measure(Load(kind, **load)) for kind in KINDS]


def paced() -> Rows:
    """Pods that arrive at a steady rate."""
    return [
        bench_drain.measure(
            Load("basic", nodes=_REFERENCE_NODES, init=1000, pods=int(15 * rate), rate=rate)
        )
        for rate in _LATENCY_MS
    ]


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
        ["path", "into", "events/s", "µs", "of the target"],
        [
            [
                row["path"],
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


_TABLES: Final[dict[str, Callable[[Rows], str]]] = {
    "decisions": _decision_table,
    "events": _event_table,
    "backlogs": _backlog_table,
    "paced": _paced_table,
    "start": _start_table,
    "stages": _stage_table,
}


def _table(head: Sequence[str], body: Sequence[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *body]
    return "\n".join("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)


# --- charts ---------------------------------------------------------------------------------------


def charts(results: JsonObject) -> dict[str, str]:
    """SVG documents by file name."""
    rows: Rows = results["parts"].get("decisions", [])
    if not rows:
        return {}
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


def machine() -> JsonObject:
    """Where and when the figures were made."""
    model = "unknown"
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def write(results: JsonObject, directory: Path) -> None:
    """Write what was measured, and what it looks like."""
    (directory / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    text = "".join(
        f"## {part}\n\n{_TABLES[part](rows)}\n\n" for part, rows in results["parts"].items()
    )
    (directory / "tables.md").write_text(text, encoding="utf-8")
    for name, document in charts(results).items():
        (directory / name).write_text(document, encoding="utf-8")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all of them")
    parser.add_argument("--out", type=Path, default=Path("build/bench"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results: JsonObject = {"machine": machine(), "command": sys.argv[1:], "parts": {}}
    for part in options.part or PARTS:
        results["parts"][part] = PARTS[part]()
        print(f"\n{part}\n\n{_TABLES[part](results['parts'][part])}", flush=True)
        write(results, options.out)


if __name__ == "__main__":
    main()
