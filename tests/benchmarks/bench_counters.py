"""`python -m tests.benchmarks.bench_counters`: our counters beside prometheus_client's.

One observation of a histogram and one increment of a counter, each series bound to its labels, with
the buckets of a family of ours. The time of an empty call is taken off.
"""

import time
import timeit
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from stellwerk.metrics import Metrics

_CALLS = 5_000
_REPEATS = 200
"""Many and short, so that some run while nothing else has the core."""


def nanoseconds(act: Callable[[], object]) -> float:
    """The least time of one call, of several repeats."""
    return min(timeit.repeat(act, time.process_time, number=_CALLS, repeat=_REPEATS)) / _CALLS * 1e9


def main() -> None:
    """Print the nanoseconds of both, and their ratio."""
    metrics, registry = Metrics(), CollectorRegistry()
    histogram = metrics.rest_client_request_duration.labels("POST", "host")
    counter = metrics.rest_client_requests.labels("201", "POST", "host")
    their_histogram = Histogram(
        "histogram", "text", ["verb", "host"], registry=registry, buckets=histogram.bounds
    ).labels("POST", "host")
    their_counter = Counter(
        "counter", "text", ["code", "method", "host"], registry=registry
    ).labels("201", "POST", "host")
    empty = nanoseconds(lambda: None)
    for name, ours, theirs in (
        ("observe", lambda: histogram.observe(0.02), lambda: their_histogram.observe(0.02)),
        ("inc", lambda: counter.inc(), lambda: their_counter.inc()),  # noqa: PLW0108 as above
    ):
        our, their = nanoseconds(ours) - empty, nanoseconds(theirs) - empty
        print(f"{name:8} {our:5.0f} ns   prometheus_client {their:5.0f} ns   {their / our:.1f}")


if __name__ == "__main__":
    main()
