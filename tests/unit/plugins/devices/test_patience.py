"""A search for devices ends: by the clock for each node, by its steps for all of an attempt."""

from contextlib import suppress

import pytest

from stellwerk.plugins.devices.patience import Patience, SearchTimeoutError


def test_the_steps_of_all_searches_are_counted_together() -> None:
    patience = Patience(lambda: 0.0, 0.0, 100)
    for _ in range(4):
        patience.begin()
        for _ in range(25):
            patience.step()
    patience.begin()
    with pytest.raises(SearchTimeoutError):
        patience.step()


def test_each_node_has_its_time_by_the_clock() -> None:
    now = 0.0
    patience = Patience(lambda: now, 10.0, 1_000_000)
    for _ in range(3):
        patience.begin()
        for _ in range(200):
            patience.step()
        now += 9.0
    patience.begin()
    now += 10.5
    until_the_next_look = 64
    with suppress(SearchTimeoutError):
        for _ in range(until_the_next_look):
            patience.step()
        pytest.fail("the clock is not looked at")
