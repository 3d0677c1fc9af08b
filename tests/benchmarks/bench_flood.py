"""`python -m tests.benchmarks.bench_flood`: what others wait while one namespace floods the queue."""

import argparse
import asyncio
import cProfile
import pstats
from dataclasses import fields

from tests.benchmarks.flood import Load, Waits, run


def show(waits: Waits) -> None:
    """One row."""
    cells = [waits.phase, str(len(waits.wall_seconds))]
    for share in (0.5, 0.99, 1.0):
        cells.append(f"{1000 * waits.percentile(share):.1f}")
    for share in (0.5, 0.99):
        cells.append(f"{1000 * waits.percentile(share, cpu=True):.1f}")
    cells += [f"{waits.attempts:,}", f"{1000 * waits.longest_turn_cpu_seconds:.0f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    """Print a row per phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    for option in fields(Load):
        if option.name == "different":
            parser.add_argument("--different", action="store_true")
        else:
            parser.add_argument(f"--{option.name.replace('_', '-')}", type=type(option.default), default=option.default)
    parser.add_argument("--profile")
    given = vars(parser.parse_args())
    profile = given.pop("profile")
    print("| phase | pods | p50 ms | p99 ms | longest ms | CPU p50 ms | CPU p99 ms | attempts at the flood | longest turn, CPU ms |")
    print("|---|---|---|---|---|---|---|---|---|")
    if profile:
        p = cProfile.Profile()
        p.runcall(asyncio.run, run(Load(**given), show))
        p.dump_stats(profile)
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)
    else:
        asyncio.run(run(Load(**given), show))


if __name__ == "__main__":
    main()
