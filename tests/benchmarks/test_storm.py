"""What event handling and scheduling cost while 10,000 pods wait and every node keeps changing."""

from random import Random
from statistics import median

import pytest

from tests.benchmarks.storm import SPECS, run_storm

CPU_SHARE = 0.2
"""Of a core."""
ROOM_FOR_NOISE = 2.5
"""The test runs beside others; the benchmark judges."""


@pytest.mark.benchmark
def test_ten_thousand_waiting_pods_leave_four_fifths_of_a_core() -> None:
    storm = run_storm(pods=10_000, seconds=10, random=Random(1))
    share = median(storm.cpu_seconds)
    print(
        f"\n10,000 waiting pods, {SPECS} specs, 1,000 node updates/s: {share:.1%} of a core "
        f"(seconds from {min(storm.cpu_seconds):.1%} to {max(storm.cpu_seconds):.1%}), "
        f"{storm.hints // 10} hints/s, {storm.attempts // 10} attempts/s"
    )
    assert share < CPU_SHARE


@pytest.mark.long
def test_a_storm_of_node_updates_asks_specs_and_wakes_few() -> None:
    few = run_storm(pods=SPECS, seconds=2, random=Random(1))
    many = run_storm(pods=4 * SPECS, seconds=2, random=Random(1))
    assert many.hints == few.hints, "hints are asked per spec, not per pod"
    assert many.hints <= 2 * 100 * SPECS * 2
    assert few.attempts <= 2
    assert many.attempts <= 4 * 2
    assert min(many.cpu_seconds) < CPU_SHARE * ROOM_FOR_NOISE
