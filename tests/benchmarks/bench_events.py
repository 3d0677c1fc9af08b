"""`python -m tests.benchmarks.bench_events`: watch events per second, from the socket to the cache.

Pods of 3.8 KB come over HTTP from a server in a thread of its own; what is counted is the CPU time
of the operator's thread. Once into a sink that only counts, and once into the
scheduler's cache.
"""

import argparse
import asyncio
import json
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import orjson
import uvloop
from aiohttp import web
from typing_extensions import override

from stellwerk.client.credentials import load_credentials
from stellwerk.framework.watch_handlers import WatchHandlers
from stellwerk.garbage import collect_seldom
from stellwerk.handlers.lifecycle import OperatorOptions, run_operator
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.metrics import Metrics
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import node_name
from tests.benchmarks.workloads import make_node
from tests.support.fake_api import client_of, kubeconfig
from tests.support.fake_watch import FakeKind, FakeWatchApi
from tests.support.in_process import InProcess

_PODS: Final = WATCHED[0]
_NODES: Final = 1000
_BLOCK: Final = 64
_TIMEOUT_SECONDS: Final = 300.0


def large_pod(number: int) -> JsonObject:
    """A bound pod of 3.8 KB, as a cluster with injected sidecars has them."""
    container = {
        "name": "web",
        "image": "registry.example/team/web:1.2.3",
        "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}},
        "env": [{"name": f"VARIABLE_{index}", "value": "x" * 32} for index in range(22)],
        "volumeMounts": [
            {"name": f"volume-{index}", "mountPath": f"/var/run/secrets/{index}", "readOnly": True}
            for index in range(8)
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"web-{number}",
            "namespace": "default",
            "uid": f"0e6c2a2e-0000-4000-8000-{number:012d}",
            "resourceVersion": str(1000 + number),
            "labels": {"app": "web", "pod-template-hash": "6d4cf56db6"},
            "annotations": {"checksum/config": "f" * 64},
        },
        "spec": {
            "containers": [container],
            "schedulerName": "stellwerk",
            "priority": 0,
            "nodeName": node_name(number % _NODES),
        },
        "status": {"phase": "Running", "qosClass": "Burstable"},
    }


class _Counting(WatchHandlers):
    """Counts pods, hands them on, and notes the thread's CPU time at the first and the last."""

    def __init__(self, last: int, sink: WatchHandlers | None) -> None:
        self.count = 0
        self.done = asyncio.Event()
        self.cpu_seconds = 0.0
        self._last, self._sink = last, sink
        self._started = 0.0

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> None:
        if self.count == 0:
            self._started = time.thread_time()
        self.count += 1
        if self._sink is not None:
            self._sink.on_pod(event_type, obj)
        if self.count == self._last:
            self.cpu_seconds = time.thread_time() - self._started
            self.done.set()

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((event_type, obj))

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        raise AssertionError((kind, event_type, obj))

    @override
    def on_synced(self, kind: str) -> None:
        assert kind == _PODS.kind


class _Api(FakeWatchApi):
    """Sends every pod once to whoever watches."""

    def __init__(self, count: int) -> None:
        super().__init__((_PODS,))
        lines = [
            orjson.dumps({"type": "ADDED", "object": large_pod(number)}) + b"\n"
            for number in range(count)
        ]
        self._blocks = [
            b"".join(lines[start : start + _BLOCK]) for start in range(0, count, _BLOCK)
        ]

    @override
    async def _watch(self, kind: FakeKind, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for block in self._blocks:
            await response.write(block)
        await asyncio.Event().wait()
        return response


@contextmanager
def _served(api: _Api) -> Iterator[None]:
    """Serve from a thread of its own while the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(api.start(), loop).result()
        yield
        asyncio.run_coroutine_threadsafe(api.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _receive(api: _Api, counting: _Counting) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "kubeconfig"
        path.write_bytes(orjson.dumps(kubeconfig(api.url)))
        async with client_of(api, Path(name)) as client:
            watching = asyncio.create_task(
                run_operator(
                    events=counting,
                    client=client,
                    credentials=await load_credentials(str(path)),
                    metrics=Metrics(),
                    jitter=lambda: 0.0,
                    on_signal=lambda: None,
                    options=OperatorOptions(watched=(_PODS,)),
                )
            )
            await asyncio.wait_for(counting.done.wait(), timeout=_TIMEOUT_SECONDS)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


async def _measure(count: int, *, into_cache: bool) -> float:
    """CPU seconds of the receiving thread."""
    sink = None
    if into_cache:
        world = InProcess()
        sink = world.operator.handlers
        for index in range(_NODES):
            sink.on_node("ADDED", make_node(index))
    counting = _Counting(count, sink)
    api = _Api(count)
    with _served(api):
        await _receive(api, counting)
    assert counting.count == count
    return counting.cpu_seconds


def measure(count: int, *, into_cache: bool) -> JsonObject:
    """Events per second of CPU time, with the operator's settings of the garbage collector."""
    collect_seldom()
    seconds = uvloop.run(_measure(count, into_cache=into_cache))
    return {
        "into": "cache and queue" if into_cache else "a counter",
        "events": count,
        "per_second": round(count / seconds),
        "microseconds": round(1e6 * seconds / count, 1),
    }


def everything(events: int = 30_000) -> Iterator[JsonObject]:
    """The events into each of the two sinks."""
    for into_cache in (False, True):
        yield measure(events, into_cache=into_cache)


def main() -> None:
    """Print one JSON line per sink."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=30_000)
    options = parser.parse_args()
    for figures in everything(options.events):
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
