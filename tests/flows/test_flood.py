"""One namespace floods the queue with pods that fit nowhere; others are served all the same.

What is judged is the order: how many attempts at pods of the flood come between the event of
another pod and its binding. `python -m tests.benchmarks.bench_flood` shows what that takes in time.
"""

import asyncio

import pytest

from stellwerk.backend.scheduling_queue import UNDELAYED_PODS
from tests.benchmarks.flood import Load, run

FLOOD = 2_000
FEW = 5 * UNDELAYED_PODS
"""Those that count as having come when they came, and what is decided until the others' turns."""


@pytest.mark.parametrize(
    "different",
    [
        pytest.param(False, marks=pytest.mark.long, id="a few templates"),
        pytest.param(True, id="no two alike"),
    ],
)
def test_pods_that_fit_wait_for_few_of_those_that_do_not(*, different: bool) -> None:
    load = Load(
        nodes=100,
        flood=FLOOD,
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
