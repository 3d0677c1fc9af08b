"""`python -m tests.benchmarks.bench_preemption_storm`: attempts of preemptors whose victims linger.

With the hint that spares preemptors the ends of others' victims, and without; in skipped time, so
that only the counts mean something.
"""

import argparse

from tests.support.preemption_storm import as_kube_scheduler, preemption_storm


def main() -> None:
    """Print a row for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--preemptors", type=int, default=500)
    given = parser.parse_args()
    print("| a victim's end wakes | rejections | bound | victims | seconds |")
    print("|---|---|---|---|---|")
    for name, storm in (
        ("every preemptor", as_kube_scheduler),
        ("those that it may help", preemption_storm),
    ):
        found = storm(given.nodes, given.preemptors)
        cells = (name, found.attempts, found.bound, found.victims, round(found.seconds))
        print(f"| {' | '.join(map(str, cells))} |", flush=True)


if __name__ == "__main__":
    main()
