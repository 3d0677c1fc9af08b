"""The guard names the stage that does more than before, and is quiet about what is within 5 %."""

import pytest

from stellwerk.backend.cache import Cache
from tests.benchmarks.guard import Meter, complaints


def test_more_than_5_percent_in_a_stage_is_named() -> None:
    before = {
        "filter": {"calls": 100.0, "bytes": 10_000.0},
        "score": {"calls": 10.0, "bytes": 400.0},
    }
    now = {
        "filter": {"calls": 105.0, "bytes": 10_600.0},
        "score": {"calls": 11.9, "bytes": 900.0},
        "queue": {"calls": 3.0, "bytes": 0.0},
    }
    assert complaints("basic", now, before) == [
        "basic: filter: 10,600.0 bytes a pod, 10,000.0 before, +6.0 %",
        "basic: queue: 3.0 calls a pod, 0.0 before",
    ]


@pytest.mark.parametrize("memory", [False, True])
def test_what_a_stage_calls_and_holds_is_its_own(*, memory: bool) -> None:
    cache, meter = Cache(), Meter(memory=memory)
    meter.start()
    cache.update_snapshot()
    meter.stop()
    assert set(meter.counts) - {"rest"} == {"update snapshot"}
    assert meter.counts["update snapshot"] >= 1
