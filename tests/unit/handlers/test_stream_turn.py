"""A stream's turn of the loop: short, and longer for as long as the stream is behind."""

import asyncio
import time

from stellwerk.handlers.stream_turn import EVENTS_PER_TURN, LONGEST_TURN, TURN_SECONDS, StreamTurn


def handled(turn: StreamTurn) -> int:
    """How many events of no duration fit into the turn."""
    count = 1
    while not turn.used_up(time.monotonic() + 60):
        count += 1
    return count


async def test_turns_of_a_stream_that_is_behind_double_up_to_a_bound() -> None:
    turn = StreamTurn()
    lengths = []
    for _ in range(4):
        lengths.append(handled(turn))
        await asyncio.sleep(0)
    assert lengths == [n * EVENTS_PER_TURN for n in (1, 2, LONGEST_TURN, LONGEST_TURN)]


async def test_a_stream_that_has_waited_for_news_has_an_ordinary_turn() -> None:
    turn = StreamTurn()
    handled(turn)
    await asyncio.sleep(0)
    assert not turn.used_up(time.monotonic() + 60)
    await asyncio.sleep(0)
    assert handled(turn) == EVENTS_PER_TURN


async def test_news_that_come_one_by_one_use_up_no_turn() -> None:
    turn = StreamTurn()
    for _ in range(2 * EVENTS_PER_TURN):
        assert not turn.used_up(time.monotonic() + 60)
        await asyncio.sleep(0)


async def test_few_events_that_take_long_use_up_a_turn() -> None:
    turn = StreamTurn()
    assert turn.used_up(time.monotonic() - TURN_SECONDS)
    await asyncio.sleep(0)
    assert not turn.used_up(time.monotonic() + 60), "the next one is longer"
