"""What the fence costs a binding, by itself and on the way of the requests that it guards.

Run as `python -m tests.benchmarks.bench_fence`: everything that the fence adds to a pod, call by
call; the best of many rounds. With `--pairs 7` bindings are sent over loopback to a process that
answers each at once, in turns with the fence of a leader and with one that does nothing. CPU time
of this process; that the fence can be taken out is the benchmark's doing alone.
"""

import argparse
import asyncio
import multiprocessing
import random
import socket
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final

import orjson
import uvloop
from typing_extensions import override

from stellwerk.client.connection import Fence, open_fence
from stellwerk.client.credentials import load_credentials
from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.metrics import Metrics
from stellwerk_kube.clock import SuspendAwareClock, SystemClock
from tests.support.fake_api import kubeconfig

CALLS = 20_000
ROUNDS = 50
BATCH: Final = 200
BATCHES: Final = 60
AT_ONCE: Final = 64
_ANSWER: Final = b'{"kind":"Status","apiVersion":"v1","status":"Success","code":201}'
_HEAD: Final = (
    b"HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


class NoFence(Fence):
    """Asked as often as any other, and looks at nothing."""

    @override
    def check(self, act: str) -> None:
        """Everything passes."""

    @override
    def admits_event(self, type_: str) -> bool:
        return True

    @override
    def within_lease(self, timeout_seconds: float) -> float:
        return timeout_seconds

    @override
    def begin(self) -> None:
        """Nothing is counted."""

    @override
    def end(self, *, answered: bool) -> None:
        """Nothing is counted."""


def guarding() -> Fence:
    """A fence as the holder of a lease has it."""
    fence = Fence(SuspendAwareClock().monotonic, guarding=True, margin_seconds=5)
    fence.extend(SuspendAwareClock().monotonic() + 3600)
    return fence


def pass_binding(fence: Fence) -> None:
    """All that a binding and its event ask of the fence."""
    fence.check("bind")
    fence.begin()
    fence.within_lease(30.0)
    fence.check("bind")
    fence.end(answered=True)
    fence.admits_event("Normal")


def pass_nothing(_: Fence) -> None:
    """The call alone."""


def microseconds(passing: Callable[[Fence], None], fence: Fence) -> float:
    """CPU time of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(CALLS):
            passing(fence)
        best = min(best, time.process_time() - started)
    return best / CALLS * 1e6


# --- over loopback --------------------------------------------------------------------------------


class _Answers(asyncio.Protocol):
    """Answers each request with the same words."""

    def __init__(self) -> None:
        self._rest = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._rest += data
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            if len(self._rest) < end + 4 + length:
                return
            self._rest = self._rest[end + 4 + length :]
            self._transport.write(_HEAD % len(_ANSWER) + _ANSWER)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Answers, "127.0.0.1", port)
    await server.serve_forever()


def _serve_forever(port: int) -> None:
    asyncio.run(_serve(port))


@contextmanager
def api() -> Iterator[Path]:
    """A process that answers; yields the kubeconfig that leads to it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    process = multiprocessing.get_context("spawn").Process(target=_serve_forever, args=(port,))
    process.start()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "kubeconfig"
        path.write_bytes(orjson.dumps(kubeconfig(f"http://127.0.0.1:{port}")))
        try:
            _wait_for(port)
            yield path
        finally:
            process.terminate()
            process.join()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


async def _bind_all(client: KubernetesClient, fence: Fence, count: int) -> None:
    remaining = iter(range(count))

    async def work() -> None:
        for number in remaining:
            await client.bind("default", f"pod-{number}", f"uid-{number}", "node-1")
            fence.admits_event("Normal")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


@asynccontextmanager
async def _client(path: Path, fence: Fence) -> AsyncIterator[KubernetesClient]:
    async with KubernetesClient(
        await load_credentials(str(path)),
        clock=SystemClock(),
        metrics=Metrics(),
        jitter=random.Random(1).random,
        fence=fence,
    ) as client:
        await _bind_all(client, fence, BATCH)
        yield client


async def _pair(path: Path) -> tuple[float, float]:
    """CPU microseconds of a binding without and with a fence, in turns of a few milliseconds."""
    without, fenced = NoFence(lambda: 0.0, guarding=False), guarding()
    seconds = {id(without): 0.0, id(fenced): 0.0}
    async with _client(path, without) as first, _client(path, fenced) as second:
        turns = [(first, without), (second, fenced)]
        for number in range(BATCHES):
            for client, fence in turns if number % 2 == 0 else reversed(turns):
                started = time.process_time()
                await _bind_all(client, fence, BATCH)
                seconds[id(fence)] += time.process_time() - started
    each = 1e6 / (BATCH * BATCHES)
    return seconds[id(without)] * each, seconds[id(fenced)] * each


def run_pairs(pairs: int) -> None:
    """Print each pair and the median difference."""
    differences: list[float] = []
    with api() as path:
        for _ in range(pairs):
            without, fenced = uvloop.run(_pair(path))
            differences.append(fenced - without)
            print(f"without {without:.1f} µs, with {fenced:.1f} µs a binding", flush=True)
    print(f"median of {pairs} pairs: {statistics.median(differences):+.2f} µs")


def main() -> None:
    """Print what a binding pays."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=0)
    pairs = parser.parse_args().pairs
    if pairs:
        run_pairs(pairs)
        return
    empty = microseconds(pass_nothing, open_fence())
    for text, fence in (("without", open_fence()), ("with", guarding())):
        print(f"{text} leader election: {microseconds(pass_binding, fence) - empty:.2f} µs a pod")


if __name__ == "__main__":
    main()
