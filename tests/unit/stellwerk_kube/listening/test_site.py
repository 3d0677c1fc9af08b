"""What the accept loop makes of a peer: the address it is counted by, its handshake."""

import asyncio
import contextlib
import errno
import gc
import socket
import ssl
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from stellwerk.serving.self_signed import self_signed
from stellwerk_kube.listening.site import _peer
from tests.support.echoing_port import GET, SHORT, answer_to, listening

pytestmark = pytest.mark.skips_time


async def test_half_a_handshake_is_closed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (tmp_path / "pem").write_bytes(self_signed("localhost", datetime.now(UTC)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "pem")
    async with listening(SHORT, context) as port:
        for begun in (b"", b"\x16\x03\x01\x02\x00\x01\x00"):
            answer, seconds = await answer_to(port, begun)
            assert (answer, seconds < 2) == (b"", True)
    (line, *_) = [each.getMessage() for each in caplog.records if "by reason" in each.message]
    assert line == "the port refused peers or broke with them, by reason: handshake 1"


def test_addresses_of_one_machine_count_together() -> None:
    assert _peer("10.0.0.1") == "10.0.0.1"
    assert _peer("::ffff:10.0.0.1") == "10.0.0.1"
    assert _peer("2001:db8::1%eth0") == _peer("2001:db8::ffff:2") == "2001:db8::/64"
    assert _peer("2001:db8:0:1::1") == "2001:db8:0:1::/64"


@pytest.mark.parametrize("turns", range(4))
async def test_a_connection_that_comes_as_the_port_stops_is_closed(turns: int) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", ResourceWarning)
        async with listening(SHORT) as port:
            await asyncio.sleep(0.01)
            peer = socket.create_connection(("127.0.0.1", port))
            for _ in range(turns):
                await asyncio.sleep(0)
        gc.collect()
        with peer, contextlib.suppress(ConnectionResetError):  # it was not accepted any more
            peer.settimeout(1)
            assert peer.recv(1) == b""
    assert [str(each.message) for each in warned] == []


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "epoll is full"), ValueError("unusual")])
async def test_a_port_that_could_not_wait_for_connections_waits_again(error: Exception) -> None:
    loop = asyncio.get_running_loop()
    tries = iter([error])

    def add_reader(*args: Any) -> None:
        for each in tries:
            raise each
        type(loop).add_reader(loop, *args)

    with patch.object(loop, "add_reader", add_reader):
        async with listening(SHORT) as port:
            await asyncio.sleep(0)
            answer, _ = await answer_to(port, GET)
    assert answer.startswith(b"HTTP/1.1 200 OK")
