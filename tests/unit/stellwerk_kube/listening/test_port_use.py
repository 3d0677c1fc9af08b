"""What the peers of a port hold: memory that goes back, and descriptors that are few."""

import asyncio
import errno
import logging
import socket

import pytest
from typing_extensions import override

from stellwerk_kube.listening.descriptors import Descriptors
from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.port_use import PortUse

pytestmark = pytest.mark.skips_time


async def test_memory_goes_back_once_most_of_many_connections_have_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    trimmed: list[int] = []
    monkeypatch.setattr("stellwerk_kube.listening.port_use.TRIM_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(PortUse, "_trim", lambda use: trimmed.append(use.connections))
    use = PortUse(Limits(connections=1000, address_connections=None, unidentified_connections=None))
    with socket.socket() as sock:
        for count in (90, 200):
            opened = [use.admit(sock, "192.0.2.1") for _ in range(count)]
            for accepted in opened:
                assert accepted is not None
                use.gone(accepted)
            await asyncio.sleep(0.01)
            assert bool(trimmed) is (count == 200), "few connections leave nothing worth the work"


class Few(Descriptors):
    """As many are missing as a test says."""

    lacking = 0

    @override
    def missing(self) -> int:
        return self.lacking


async def test_where_descriptors_are_few_idle_connections_are_closed_the_oldest_first() -> None:
    few = Few()
    use = PortUse(Limits(), descriptors=few)
    pairs = [socket.socketpair() for _ in range(6)]
    try:
        kept = [use.admit(pair[0], f"192.0.2.{at}") for at, pair in enumerate(pairs[:5])]
        few.lacking = 1
        kept.append(use.admit(pairs[5][0], "192.0.2.9"))
        holds = [each is not None and use.holds(each) for each in kept]
        assert holds == [False, True, True, True, True, True]
        few.lacking = 2
        assert use.free_descriptors()
        holds = [each is not None and use.holds(each) for each in kept]
        assert holds == [False, False, False, True, True, True]
        few.lacking = 0
        assert not use.free_descriptors()
    finally:
        for pair in pairs:
            for each in pair:
                each.close()


async def test_a_lack_of_descriptors_is_reported_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    use = PortUse(Limits())
    first, second = socket.socketpair()
    with first, second:
        assert use.admit(first, "192.0.2.1") is not None
        spent = OSError(errno.EMFILE, "Too many open files")
        assert [use.free_descriptors(spent) for _ in range(20)] == [True] + 19 * [False]
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert len(warnings) == 1
