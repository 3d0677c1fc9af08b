"""Whatever users, nodes and the API do: gangs are whole, and no place that counts is left free."""

from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.scheduler import time_slice
from stellwerk_kube.clock import VirtualClock
from tests.properties.scheduler.gang_history import GANGS, NODES, GangHistory, play
from tests.support.skipped_time import run_skipping

GANG = st.integers(0, GANGS - 1)
SIZE = st.integers(1, 4)
CALM = (
    st.tuples(st.just("add_node"), st.integers(0, NODES - 1), st.integers(1, 6)),
    st.tuples(st.just("add_gang"), GANG, SIZE, st.integers(1, 2)),
    st.tuples(st.just("add_pods"), GANG, SIZE),
    st.tuples(st.just("delete_pod"), GANG),
    st.tuples(st.just("end_gang"), GANG),
    st.tuples(st.just("wait"), st.sampled_from((0.01, 0.5, 5.0, 15.0))),
    st.tuples(st.just("restart")),
    st.tuples(st.just("ask_back"), GANG),
    st.tuples(st.just("hurry"), st.integers(0, 12)),
)
REFUSALS = st.tuples(st.just("refuse"), GANG)


def histories(*steps: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.one_of(*steps), min_size=4, max_size=24)


def played(steps: list[tuple[Any, ...]], *, whole: bool) -> None:
    async def flow(clock: VirtualClock) -> None:
        history = GangHistory(clock)
        try:
            await play(history, steps, whole=whole)
        finally:
            await history.stop()

    # A slice for each member: what happens in a hurry happens between any two of them.
    with patch.object(time_slice, "TIME_SLICE_SECONDS", 0.0):
        run_skipping(flow)


@settings(max_examples=12)
@given(steps=histories(*CALM))
def test_no_gang_is_partly_bound_and_none_waits_that_fits(steps: list[tuple[Any, ...]]) -> None:
    played(steps, whole=True)


@settings(max_examples=8)
@given(steps=histories(*CALM, REFUSALS))
def test_no_room_is_lost_where_bindings_are_refused(steps: list[tuple[Any, ...]]) -> None:
    played(steps, whole=False)


HALF_BOUND: list[tuple[Any, ...]] = [
    ("add_node", 0, 6),
    ("add_gang", 0, 3, 1),
    ("add_pods", 0, 3),
    ("ask_back", 0),
    ("delete_pod", 0),
]
MEANWHILE = (
    st.tuples(st.just("wait"), st.sampled_from((0.5, 5.0, 15.0))),
    st.tuples(st.just("restart")),
    st.tuples(st.just("refuse"), GANG),
    st.tuples(st.just("add_gang"), st.integers(1, 2), SIZE, st.integers(1, 2)),
    st.tuples(st.just("add_pods"), st.integers(1, 2), SIZE),
    st.tuples(st.just("add_node"), st.integers(1, 2), SIZE),
)


@settings(max_examples=6)
@given(steps=st.lists(st.one_of(*MEANWHILE), max_size=10))
def test_what_is_bound_in_part_is_given_back_in_time(steps: list[tuple[Any, ...]]) -> None:
    played([*HALF_BOUND, *steps], whole=False)
