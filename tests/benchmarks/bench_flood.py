"""`python -m tests.benchmarks.bench_flood`: what others wait while one namespace floods the queue.

The operator in process, without API server. CPU times are those of the process between a pod's
event and its binding: on a machine that does nothing else the wall times would be the same.
"""

import argparse
import asyncio
from dataclasses import fields

from tests.benchmarks.flood import Load, Waits, run

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


def main() -> None:
    """Print a row per phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--different", action="store_true", help="no two pods of the flood alike")
    for option in fields(Load):
        if option.name != "different":
            name, default = option.name.replace("_", "-"), option.default
            parser.add_argument(f"--{name}", type=type(default), default=default)
    print(f"| {' | '.join(_COLUMNS)} |")
    print("|---" * len(_COLUMNS) + "|")
    asyncio.run(run(Load(**vars(parser.parse_args())), show))


if __name__ == "__main__":
    main()
