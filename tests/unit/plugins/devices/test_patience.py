"""The searches of an attempt end: by the clock and by their steps."""

from contextlib import suppress

import pytest

from stellwerk.plugins.devices.patience import Patience, SearchTimeoutError


def test_steps_are_counted() -> None:
    patience = Patience(lambda: 0.0, 0.0, 100)
    for _ in range(100):
        patience.step()
    with pytest.raises(SearchTimeoutError):
        patience.step()


def test_now_and_then_it_is_time_for_a_pause() -> None:
    patience = Patience(lambda: 0.0, 0.0, 1000)
    pauses = sum(patience.step() for _ in range(640))
    assert 5 <= pauses <= 64


def test_all_searches_have_their_time_by_the_clock() -> None:
    now = 0.0
    patience = Patience(lambda: now, 10.0, 1_000_000)
    for _ in range(3):
        for _ in range(200):
            patience.step()
        now += 3.0
    now += 1.5
    until_the_next_look = 64
    with suppress(SearchTimeoutError):
        for _ in range(until_the_next_look):
            patience.step()
        pytest.fail("the clock is not looked at")
