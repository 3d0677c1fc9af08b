"""A slice of the loop of a stream: short, and longer for as long as the stream is behind."""

import asyncio
import time

from stellwerk.handlers.delivery import MAX_EVENTS_PER_SLICE
from stellwerk.handlers.reflector import MAX_SLICE_FACTOR, STREAM_SLICE_SECONDS, StreamSlice


def handled(slice_: StreamSlice) -> int:
    """How many events of no duration fit into the slice."""
    count = 1
    while not slice_.used_up(time.monotonic() + 60):
        count += 1
    return count


async def test_slices_of_a_stream_that_is_behind_double_up_to_a_bound() -> None:
    slice_ = StreamSlice()
    lengths = []
    for _ in range(4):
        lengths.append(handled(slice_))
        await asyncio.sleep(0)
    assert lengths == [n * MAX_EVENTS_PER_SLICE for n in (1, 2, MAX_SLICE_FACTOR, MAX_SLICE_FACTOR)]


async def test_a_stream_that_has_waited_for_news_has_an_ordinary_slice() -> None:
    slice_ = StreamSlice()
    handled(slice_)
    await asyncio.sleep(0)
    assert not slice_.used_up(time.monotonic() + 60)
    await asyncio.sleep(0)
    assert handled(slice_) == MAX_EVENTS_PER_SLICE


async def test_news_that_come_one_by_one_use_up_no_slice() -> None:
    slice_ = StreamSlice()
    for _ in range(2 * MAX_EVENTS_PER_SLICE):
        assert not slice_.used_up(time.monotonic() + 60)
        await asyncio.sleep(0)


async def test_few_events_that_take_long_use_up_a_slice() -> None:
    slice_ = StreamSlice()
    assert slice_.used_up(time.monotonic() - STREAM_SLICE_SECONDS)
    await asyncio.sleep(0)
    assert not slice_.used_up(time.monotonic() + 60), "the next one is longer"
