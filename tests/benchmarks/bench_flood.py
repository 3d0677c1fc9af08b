"""`python -m tests.benchmarks.bench_flood`: what others wait while one namespace floods the queue.

The operator in process, without API server. CPU times are those of the process between a pod's
event and its binding: on a machine that does nothing else the wall times would be the same.
With `--http` the operator is a process of its own, the embedded API another, and both floods are
measured one after the other, by wall clock; less than four minutes.
"""

import argparse
import asyncio
import tempfile
from dataclasses import fields, replace
from pathlib import Path

import uvloop

from tests.benchmarks import flood_http
from tests.benchmarks.bench_drain import stellwerk
from tests.benchmarks.embedded_api import embedded_api
from tests.benchmarks.flood import Load, Waits, run
from tests.benchmarks.provenance import caption, provenance

_COLUMNS = (
    "phase",
    "pods",
    "p50 ms",
    "p99 ms",
    "longest ms",
    "CPU p50 ms",
    "CPU p99 ms",
    "attempts at the flood",
    "longest turn, CPU ms",
)


def show(waits: Waits) -> None:
    """One row."""
    cells = [waits.phase, str(len(waits.wall_seconds))]
    cells += [f"{1000 * waits.percentile(share):.1f}" for share in (0.5, 0.99, 1.0)]
    cells += [f"{1000 * waits.percentile(share, cpu=True):.1f}" for share in (0.5, 0.99)]
    cells += [f"{waits.attempts:,}", f"{1000 * waits.longest_turn_cpu_seconds:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def over_http(load: Load) -> None:
    """Print both floods, the phases side by side, with the caption for docs/reliability-runs.md."""
    measured = provenance()
    print(f"| {load.flood:,} pods | | undisturbed | while it comes | while it waits |")
    print("|---" * 5 + "|", flush=True)
    became = []
    for name, different in (("of six templates", False), ("no two alike", True)):
        with (
            tempfile.TemporaryDirectory() as directory,
            embedded_api(Path(directory), load.nodes) as api,
        ):
            log = Path(directory) / "operator.log"
            one = replace(load, different=different)
            flood = uvloop.run(flood_http.run(api.kubeconfig, stellwerk(api.kubeconfig), one, log))
        for cells in flood_http.rows(name, flood):
            print(f"| {' | '.join(cells)} |", flush=True)
        became.append(
            f"{name}: {flood.created:,} in {flood.created_seconds:.0f} s, "
            f"{flood.reported:,} reported"
        )
    print(f"\n{'; '.join(became)}. {caption(measured)}")


def main() -> None:
    """Print a row per phase, or over HTTP the phases side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--http", action="store_true", help="over HTTP, in processes of their own")
    parser.add_argument("--different", action="store_true", help="no two pods of the flood alike")
    for option in fields(Load):
        if option.name != "different":
            name, default = option.name.replace("_", "-"), option.default
            parser.add_argument(f"--{name}", type=type(default), default=default)
    given = vars(parser.parse_args())
    if given.pop("http"):
        over_http(Load(**given))
        return
    print(f"| {' | '.join(_COLUMNS)} |")
    print("|---" * len(_COLUMNS) + "|")
    asyncio.run(run(Load(**given), show))


if __name__ == "__main__":
    main()
