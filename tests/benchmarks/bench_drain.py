"""`python -m tests.benchmarks.bench_drain`: the whole way of a pod, against an API server.

By default the embedded cluster's API in a process of its own, by HTTPS; `--kubeconfig` leads to
another one, whose nodes, and pods in "default", are DELETED. With `--other-cmd` a second scheduler
is measured in turn with Stellwerk, and the ratios are printed. One JSON line per run.
"""

import argparse
import json
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import uvloop

from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import LOW_PODS_PER_NODE
from tests.benchmarks.drain import Load, Scheduler, drain
from tests.benchmarks.embedded_api import embedded_api

_RATIOS: Final = ("pods_per_s", "cpu_ms_per_pod", "peak_mib", "total_s", "p50_ms", "p99_ms")


def stellwerk(kubeconfig: Path, stages: Path | None = None) -> Scheduler:
    """`stellwerk run` as replicas are run; with `stages`, its cost by stage is written there."""
    address = free_address()
    module = ["stellwerk_cli"] if stages is None else ["tests.benchmarks.stages", str(stages)]
    command = [sys.executable, "-m", *module, "run", "--kubeconfig", str(kubeconfig)]
    command += ["--bind-address", address, "--leader-elect", "--log-level", "warning"]
    return Scheduler(shlex.join(command), ready_url=f"https://{address}/readyz")


def free_address() -> str:
    """An address of loopback with a port that is free."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def cluster(kubeconfig: Path | None, directory: Path, load: Load) -> Iterator[Path]:
    """The kubeconfig of the cluster to use: a given one, or of an embedded cluster made for it."""
    if kubeconfig is not None:
        yield kubeconfig
        return
    kind, pods = "basic", load.init
    if load.kind == "preempt":
        kind, pods = "low", LOW_PODS_PER_NODE * load.nodes
    stored = pods if load.is_prepared else 0
    with embedded_api(
        directory, load.nodes, stored, kind=kind, tls=True, kubelet=load.runs
    ) as embedded:
        yield embedded.kubeconfig


def measure(load: Load, kubeconfig: Path | None = None, stages: Path | None = None) -> JsonObject:
    """Stellwerk's figures for one load, on a cluster of its own unless one is given.

    Raises:
        RuntimeError: not every pod was bound in time, so that the figures mean nothing.
    """
    with (
        tempfile.TemporaryDirectory() as name,
        cluster(kubeconfig, Path(name), load) as config,
    ):
        return _run(config, stellwerk(config, stages), load, Path(name) / "scheduler.log")


def compare(load: Load, kubeconfig: Path, other: Scheduler, rounds: int) -> Iterator[JsonObject]:
    """Stellwerk's and another scheduler's figures in turn, each pair with its ratios."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "scheduler.log"
        for _ in range(rounds):
            theirs = _run(kubeconfig, other, load, log)
            yield {"scheduler": "other", **theirs}
            ours = _run(kubeconfig, stellwerk(kubeconfig), load, log)
            ratios = {
                key: round(ours[key] / theirs[key], 3)
                for key in _RATIOS
                if ours.get(key) and theirs.get(key)
            }
            yield {"scheduler": "stellwerk", **ours, "ratio": ratios}


def _run(kubeconfig: Path, scheduler: Scheduler, load: Load, log: Path) -> JsonObject:
    figures = uvloop.run(drain(kubeconfig, scheduler, load, log))
    if figures["bound"] < load.pods:
        tail = log.read_text(encoding="utf-8", errors="replace")[-2000:]
        raise RuntimeError(f"only {figures['bound']} of {load.pods} pods were bound\n{tail}")
    return figures


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, help="a scratch cluster; default: embedded")
    parser.add_argument("--kind", action="append", help="workload; default: basic")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--init", type=int, default=1000, help="pods already bound")
    parser.add_argument(
        "--stored", action="store_true", help="those are put into the embedded cluster's store"
    )
    parser.add_argument("--pods", type=int, default=4000)
    parser.add_argument("--rate", type=float, default=0, help="pods per second; 0: a backlog")
    parser.add_argument(
        "--running",
        action="store_true",
        help="measure until pods run, on hollow nodes: with --rate, perf-tests' "
        "scheduler-throughput",
    )
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("--stages", type=Path, help="write the cost by stage there as JSON")
    parser.add_argument("--other-cmd", help="command line of another scheduler, run in turn")
    parser.add_argument("--other-name", default="default-scheduler", help="its schedulerName")
    parser.add_argument("--rounds", type=int, default=1, help="how often each pair is run")
    options = parser.parse_args()
    if options.other_cmd and not options.kubeconfig:
        parser.error("--other-cmd needs --kubeconfig")
    if options.stored and options.kubeconfig:
        parser.error("--stored is for the embedded cluster")
    for kind in options.kind or ["basic"]:
        load = Load(
            kind,
            nodes=options.nodes,
            init=options.init,
            pods=options.pods,
            rate=options.rate,
            runs=options.running,
            timeout_seconds=options.timeout,
            is_prepared=options.stored,
        )
        if options.other_cmd:
            other = Scheduler(options.other_cmd, options.other_name)
            for line in compare(load, options.kubeconfig, other, options.rounds):
                print(json.dumps(line), flush=True)
        else:
            for _ in range(options.rounds):
                figures = measure(load, options.kubeconfig, options.stages)
                print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
