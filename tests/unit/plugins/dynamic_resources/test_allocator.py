"""The searches of an attempt end: by the clock and by their steps."""

from contextlib import suppress

import pytest

from stellwerk.plugins.dynamic_resources.allocator import FilterTimeout, FilterTimeoutError


def test_steps_are_counted() -> None:
    timeout = FilterTimeout(lambda: 0.0, 0.0, 100)
    for _ in range(100):
        timeout.step()
    with pytest.raises(FilterTimeoutError):
        timeout.step()


def test_now_and_then_it_is_time_for_a_pause() -> None:
    timeout = FilterTimeout(lambda: 0.0, 0.0, 1000)
    pauses = sum(timeout.step() for _ in range(640))
    assert 5 <= pauses <= 64


def test_all_searches_have_their_time_by_the_clock() -> None:
    now = 0.0
    timeout = FilterTimeout(lambda: now, 10.0, 1_000_000)
    for _ in range(3):
        for _ in range(200):
            timeout.step()
        now += 3.0
    now += 1.5
    until_the_next_look = 64
    with suppress(FilterTimeoutError):
        for _ in range(until_the_next_look):
            timeout.step()
        pytest.fail("the clock is not looked at")
