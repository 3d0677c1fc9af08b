"""Anonymous peers by the thousand: `python -m tests.flows.port_flood PORT SECONDS LIVE [tls]`.

Of seven connections, one sends headers without end, four nothing at all, and two half a handshake;
each is opened again a second after it was closed. Invariant: they come from four addresses.
"""

import asyncio
import contextlib
import sys
import time

from tests.support.limited_ports import LimitedPort

PEERS = 3500
ADDRESSES = 4
_FIELD = b"X-Y: " + b"y" * 8000 + b"\r\n"
_HALF = b"\x16\x03\x01\x02\x00\x01\x00"


async def flood(port: LimitedPort, seconds: float) -> tuple[int, int]:
    """Return how many connections were tried, and how many came through their handshake."""
    end_seconds = time.monotonic() + seconds
    tried = opened = 0

    async def peer(number: int) -> None:
        nonlocal opened, tried
        kind = number % 7
        while time.monotonic() < end_seconds:
            with contextlib.suppress(OSError):
                tried += 1
                address = f"127.0.1.{number % ADDRESSES + 1}"
                reader, writer = await port.connect(address, handshake=kind < 5)
                opened += 1
                if kind == 0:
                    writer.write(port.get(port.live)[:-2] + _FIELD * 120)
                elif kind > 4:
                    writer.write(_HALF)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(reader.read(), end_seconds - time.monotonic())
                writer.transport.abort()
            await asyncio.sleep(1)

    await asyncio.gather(*map(peer, range(PEERS)))
    return tried, opened


if __name__ == "__main__":
    flooded = LimitedPort(int(sys.argv[1]), tls="tls" in sys.argv[4:], live=sys.argv[3])
    tried, opened = asyncio.run(flood(flooded, float(sys.argv[2])))
    sys.stdout.write(f"peers {PEERS}, connections tried {tried}, opened {opened}\n")
