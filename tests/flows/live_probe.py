"""Probes of an operator's port, one after the other: `python -m tests.flows.live_probe PORT PID`.

It runs until it is ended, and writes a line for each probe: the seconds that it took, and those of
them in which the operator's loop, or this process, was ready to run and had no CPU. Invariant: it
does nothing else, so that the two never wait at the same time.
"""

import socket
import ssl
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.machine_speed import without_cpu_seconds

ADDRESS: Final = "127.0.0.2"
_PAUSE_SECONDS: Final = 0.05
_REQUEST: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@dataclass(frozen=True)
class Probe:
    """One answer."""

    seconds: float
    without_cpu_seconds: float

    @property
    def own_seconds(self) -> float:
        """What it would have taken on a machine that has a CPU for each process."""
        return self.seconds - self.without_cpu_seconds


def probes_in(log: Path) -> list[Probe]:
    """What a process of this module has written."""
    lines = [line.split() for line in log.read_text(encoding="utf-8").splitlines()]
    return [Probe(*map(float, words)) for words in lines if len(words) == 2]


def _answer(port: int, context: ssl.SSLContext) -> bytes:
    found = b""
    with (
        socket.create_connection(("127.0.0.1", port), 20, (ADDRESS, 0)) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(_REQUEST)
        while piece := connection.recv(4096):
            found += piece
    return found


def main() -> None:
    """Probe until the process is ended, or an answer is not the right one."""
    port, operator = int(sys.argv[1]), sys.argv[2]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    while True:
        waited = without_cpu_seconds(operator) + without_cpu_seconds()
        began = time.monotonic()
        answer = _answer(port, context)
        seconds = time.monotonic() - began
        waited = without_cpu_seconds(operator) + without_cpu_seconds() - waited
        assert answer.startswith(b"HTTP/1.1 200 "), answer
        sys.stdout.write(f"{seconds:.6f} {waited:.6f}\n")
        sys.stdout.flush()
        time.sleep(_PAUSE_SECONDS)


if __name__ == "__main__":
    main()
