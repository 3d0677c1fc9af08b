"""Lines come out whole, whatever the pieces are, and none is held that is longer than any event."""

import asyncio
import time

import pytest
from aiohttp import StreamReader
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from stellwerk.client import transport
from stellwerk.client.transport import lines_of
from stellwerk_kube.errors import AnswerTooLarge


class Pieces(StreamReader):
    """A stream that gives its pieces one by one."""

    def __init__(self, pieces: list[bytes]) -> None:
        self._pieces = iter(pieces)

    @override
    async def readany(self) -> bytes:
        return next(self._pieces, b"")


async def lines(pieces: list[bytes]) -> list[bytes]:
    return [line async for line in lines_of(Pieces([piece for piece in pieces if piece]))]


@given(st.lists(st.binary(max_size=6) | st.just(b"\n") | st.just(b"a\nb")))
def test_lines_are_those_of_the_whole_text(pieces: list[bytes]) -> None:
    whole = b"".join(pieces).split(b"\n")
    assert asyncio.run(lines(pieces)) == [line for line in whole if line]


async def test_a_line_that_is_longer_than_any_event_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transport, "MAX_STREAM_LINE_BYTES", 1 << 20)
    with pytest.raises(AnswerTooLarge, match="a line has more than 1 MiB"):
        await lines([b"x" * 1000] * 5000)


async def test_a_line_in_single_bytes_costs_no_more_for_each_than_a_short_one() -> None:
    """kopf's own function looks through the whole line at each piece."""

    async def cpu_seconds(size: int) -> float:
        began = time.process_time()
        assert await lines([b"x"] * size) == [b"x" * size]
        return time.process_time() - began

    await cpu_seconds(1 << 10)
    assert await cpu_seconds(1 << 18) < 4 * 16 * await cpu_seconds(1 << 14)
