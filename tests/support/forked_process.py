"""`python -m MODULE` as a process of its own, without the second that its imports take.

A server that has imported the program forks for each start: the process has an id, signals, files
and an exit status of its own, and ends as an interpreter does. What comes before `main`, what an
interpreter reads from its environment, as PYTHONPATH, and that a command imports what it needs is
for processes that start from nothing (`is_forked=False`).
Invariant: nothing of the program has run in the server, which ends with the process of the tests.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import BinaryIO, Final

from tests.support.repository import ROOT

_IMPORTED: Final = (
    "stellwerk_cli.cli",
    "stellwerk.app",
    "stellwerk_cli.reading.local_port",
    "stellwerk_cli.embedded_cluster",
    "uvloop",
)
"""With what they import, all but a few modules of `stellwerk run` and `stellwerk cluster`."""
_LONGEST_REQUEST: Final = 1 << 20
_FDS: Final = 2
_NUMBER: Final = struct.Struct("!i")


class ForkedProcess:
    """What `asyncio.subprocess.Process` offers, as far as tests ask for it."""

    def __init__(self, pid: int, status: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._status = status
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = self._loop.create_future()
        self._loop.add_reader(status, self._on_end)

    async def wait(self) -> int:
        """Its exit status; of one that a signal has ended, less than zero."""
        return await asyncio.shield(self._ended)

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def _on_end(self) -> None:
        self._loop.remove_reader(self._status)
        with self._status:
            self.returncode = _received(self._status.recv(_NUMBER.size))
        if not self._ended.done():
            self._ended.set_result(self.returncode)


async def start_forked(
    module: str,
    arguments: Sequence[str],
    output: BinaryIO,
    environment: Mapping[str, str] | None = None,
) -> ForkedProcess:
    """`python -m MODULE ARGUMENTS` in this directory, and this environment with some more."""
    request = {
        "module": module,
        "arguments": list(arguments),
        "directory": str(Path.cwd()),
        "environment": {**os.environ, **(environment or {})},
    }
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with theirs:
        fds = [theirs.fileno(), output.fileno()]
        socket.send_fds(_server(), [json.dumps(request).encode()], fds)
    ours.settimeout(0)
    pid = _received(await asyncio.get_running_loop().sock_recv(ours, _NUMBER.size))
    return ForkedProcess(pid, ours)


def _received(number: bytes) -> int:
    (received,) = _NUMBER.unpack(number)
    return int(received)


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            cwd=ROOT,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- the server ---------------------------------------------------------------------------------


def serve(requests: socket.socket) -> tuple[str, list[str]] | None:
    """Fork for each request; returns in the process that is to run it, and at the end with None.

    Between the server and that process is one more, which waits for it and reports its status.
    """
    # One that reports needs nobody that waits for it; who presses Ctrl-C means the tests.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _FDS)
        if not message:
            return None
        status, output = fds
        if os.fork() == 0:
            requests.close()
            break
        os.close(status)
        os.close(output)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    request = json.loads(message)
    started = os.fork()
    if started == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.close(status)
        _take_over(output, request["directory"], request["environment"])
        return request["module"], request["arguments"]
    os.close(output)
    os.write(status, _NUMBER.pack(started))
    _, ended = os.waitpid(started, 0)
    os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os._exit(0)


def _take_over(output: int, directory: str, environment: dict[str, str]) -> None:
    os.dup2(output, sys.stdout.fileno())
    os.dup2(output, sys.stderr.fileno())
    os.close(output)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)


if __name__ == "__main__":
    for _each in _IMPORTED:
        importlib.import_module(_each)
    # What stays for ever is not looked through by every collection of every process.
    gc.collect()
    gc.freeze()
    _asked = serve(socket.socket(fileno=int(sys.argv[1])))
    if _asked is not None:
        _module, sys.argv[1:] = _asked
        runpy.run_module(_module, run_name="__main__", alter_sys=True)
