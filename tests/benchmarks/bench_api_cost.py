"""`python -m tests.benchmarks.bench_api_cost`: what two schedulers cost the same API server.

Starts etcd and kube-apiserver from binaries that the user names, and measures kube-scheduler and
Stellwerk on them in pairs, each pair in the opposite order of the one before. Prints a JSON line
for each run, and then a table of medians. Ratios are Stellwerk's figure divided by kube-scheduler's
within a pair; ratios of CPU time are corrected by the machine's speed (`api_cost.MachineSpeed`).
"""

import argparse
import json
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import uvloop

from stellwerk_kube.json_values import JsonObject
from tests.benchmarks import bench_drain
from tests.benchmarks.api_cost import ApiProcesses
from tests.benchmarks.drain import Load, Scheduler, drain
from tests.benchmarks.provenance import caption, provenance
from tests.benchmarks.real_api import Binaries, RealApi, real_api

_QPS: Final = 5000
"""Requests a second that kube-scheduler allows itself, as in scheduler_perf; 50 by default."""
_ROWS: Final = {
    "api_cpu_ms_per_pod": "kube-apiserver: CPU ms/pod",
    "etcd_cpu_ms_per_pod": "etcd: CPU ms/pod",
    "sent_bytes_per_pod": "sent bytes/pod",
    "received_bytes_per_pod": "received bytes/pod",
    "cpu_ms_per_pod": "scheduler: CPU ms/pod",
    "peak_mib": "scheduler: peak MiB",
    "pods_per_s": "pods/s",
    "total_s": "seconds until the last binding",
    "p50_ms": "p50 ms",
    "p99_ms": "p99 ms",
}

_CPU: Final = "cpu_ms_per_pod"
"""The end of the name of a figure that is CPU time."""

Pair = tuple[JsonObject, JsonObject]
"""Figures of kube-scheduler and of Stellwerk."""


def pairs(api: RealApi, load: Load, other: Scheduler, rounds: int) -> Iterator[Pair]:
    """Measure both schedulers in turn, `rounds` times.

    Raises:
        RuntimeError: a scheduler did not bind every pod in time.
    """
    for number in range(rounds):
        order = ("other", "stellwerk") if number % 2 == 0 else ("stellwerk", "other")
        figures = {}
        for name in order:
            scheduler = other if name == "other" else bench_drain.stellwerk(api.kubeconfig)
            figures[name] = _measured(api, scheduler, load)
            print(json.dumps({"scheduler": name, **figures[name]}), flush=True)
        yield figures["other"], figures["stellwerk"]


def table(measured: Sequence[tuple[str, Sequence[Pair]]]) -> str:
    """Return a Markdown table: for each load and figure both medians and the median ratio."""
    lines = [
        "| workload | figure | kube-scheduler | Stellwerk | ratio of each pair | median ratio |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for load, of in measured:
        for key, title in _ROWS.items():
            both = [(theirs[key], ours[key]) for theirs, ours in of if theirs.get(key)]
            if not both:
                continue
            ratios = [
                ours[key] / theirs[key] / (_slowdown(theirs, ours) if key.endswith(_CPU) else 1.0)
                for theirs, ours in of
                if theirs.get(key)
            ]
            theirs, ours = (statistics.median(each) for each in zip(*both, strict=True))
            cells = [load, title, f"{theirs:g}", f"{ours:g}"]
            cells += [", ".join(f"{each:.2f}" for each in ratios)]
            lines.append("| " + " | ".join([*cells, f"{statistics.median(ratios):.2f}"]) + " |")
    return "\n".join(lines)


def _slowdown(theirs: JsonObject, ours: JsonObject) -> float:
    """How much slower the machine was in Stellwerk's run, by work that was the same in both."""
    return float(ours["pass_ms"] / theirs["pass_ms"])


def requests_table(measured: Sequence[tuple[str, Sequence[Pair]]]) -> str:
    """Return a Markdown table: requests per pod by kind, medians over the pairs."""
    lines = [
        "| workload | request | kube-scheduler, a pod | Stellwerk, a pod |",
        "| --- | --- | --- | --- |",
    ]
    for load, of in measured:
        kinds = {kind for pair in of for each in pair for kind in each["requests_per_pod"]}
        for kind in sorted(kinds):
            medians = [
                statistics.median(pair[side]["requests_per_pod"].get(kind, 0.0) for pair in of)
                for side in (0, 1)
            ]
            if max(medians) >= 0.01:
                lines.append(f"| {load} | {kind} | {medians[0]:.2f} | {medians[1]:.2f} |")
    return "\n".join(lines)


def _measured(api: RealApi, scheduler: Scheduler, load: Load) -> JsonObject:
    processes = ApiProcesses(api.api_server_pid, api.etcd_pid)
    log = api.kubeconfig.parent / "scheduler.log"
    figures = uvloop.run(drain(api.kubeconfig, scheduler, load, log, processes))
    if figures["bound"] < load.pods:
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"only {figures['bound']} of {load.pods} pods were bound\n{tail}")
    return figures


def _kube_scheduler(program: Path, api: RealApi) -> Scheduler:
    """kube-scheduler with its defaults, but without its limit of requests a second."""
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(api.kubeconfig), "qps": _QPS, "burst": _QPS},
        "leaderElection": {"leaderElect": False},
    }
    file = api.kubeconfig.parent / "kube-scheduler.json"
    file.write_text(json.dumps(configuration), encoding="utf-8")
    address = bench_drain.free_address()
    port = address.rpartition(":")[2]
    command = [
        str(program),
        f"--config={file}",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
    ]
    return Scheduler(shlex.join(command), "default-scheduler", f"https://{address}/readyz")


def _name(load: Load) -> str:
    if load.rate:
        return f"{load.kind}, {load.rate:g} pods/s" + ", until they run" * load.runs
    return f"{load.kind}, {load.nodes:,} nodes"


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    for program in ("kube-apiserver", "etcd", "kube-scheduler"):
        parser.add_argument(f"--{program}", type=Path, required=True, help="path of the binary")
    parser.add_argument("--kind", action="append", help="workload; default: basic")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--init", type=int, default=1000, help="pods already bound")
    parser.add_argument("--pods", type=int, default=2000)
    parser.add_argument("--rate", type=float, default=0, help="pods per second; 0: a backlog")
    parser.add_argument(
        "--warm", type=float, default=8, help="with a rate: seconds between ready and the first pod"
    )
    parser.add_argument(
        "--running",
        action="store_true",
        help="measure until pods run: with --rate, perf-tests' scheduler-throughput",
    )
    parser.add_argument("--rounds", type=int, default=5, help="pairs of each workload")
    parser.add_argument("--timeout", type=float, default=600)
    options = parser.parse_args()
    measured = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        with real_api(Binaries(options.kube_apiserver, options.etcd), directory) as api:
            other = _kube_scheduler(options.kube_scheduler, api)
            began = provenance(_command())
            for kind in options.kind or ["basic"]:
                load = Load(
                    kind,
                    nodes=options.nodes,
                    init=options.init,
                    pods=options.pods,
                    rate=options.rate,
                    warm_seconds=options.warm,
                    runs=options.running,
                    timeout_seconds=options.timeout,
                )
                measured.append((_name(load), list(pairs(api, load, other, options.rounds))))
    print(f"\n{table(measured)}\n\n{requests_table(measured)}\n\n{caption(began)}")


def _command() -> str:
    """How to measure it again, without the paths of this machine."""
    paths = ("--kube-apiserver", "--etcd", "--kube-scheduler")
    words = iter(sys.argv[1:])
    shown = []
    for word in words:
        if word in paths:
            next(words)
        elif not word.startswith(paths):
            shown.append(word)
    return " ".join(["python -m tests.benchmarks.bench_api_cost …", *shown])


if __name__ == "__main__":
    main()
