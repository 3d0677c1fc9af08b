"""One namespace floods the queue with pods that fit nowhere; others are served all the same.

What is judged is the order: how many attempts at pods of the flood come between the event of
another pod and its binding. `python -m tests.benchmarks.bench_flood` shows what that takes in time.
"""

import asyncio

import pytest

from stellwerk.backend.namespace_fairness import MAX_PODS_IN_ARRIVAL_ORDER
from tests.benchmarks.flood import Load, run

FEW = 5 * MAX_PODS_IN_ARRIVAL_ORDER
"""Those that count as having come when they came, and what is decided until the others' turns."""


@pytest.mark.parametrize(
    ("flood", "different"),
    [
        pytest.param(500, True, id="some"),
        pytest.param(2_000, False, marks=pytest.mark.long, id="many of a few templates"),
        pytest.param(2_000, True, marks=pytest.mark.long, id="many, no two alike"),
    ],
)
def test_pods_that_fit_wait_for_few_of_those_that_do_not(flood: int, *, different: bool) -> None:
    load = Load(
        nodes=100,
        flood=flood,
        different=different,
        flood_per_second=20_000,
        others_per_second=25,
        lifetime_seconds=0.2,
        phase_seconds=1,
    )
    phases = asyncio.run(run(load))
    for waits in phases:
        assert len(waits.wall_seconds) >= load.others_per_second * load.phase_seconds - 2
        assert max(waits.rejected_meanwhile) <= FEW, waits.phase
    assert phases[-1].attempts, "the flood is tried meanwhile"
