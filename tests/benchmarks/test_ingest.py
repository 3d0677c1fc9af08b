"""Events per second through kopf's handlers: dispatch alone, and over HTTP on both paths."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import kopf
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from typing_extensions import override

from stellwerk.client.credentials import load_credentials
from stellwerk.handlers import fastlane
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.lifecycle import OperatorOptions, Sessions, build_registry, run_operator
from stellwerk.handlers.watched import WATCHED
from stellwerk.metrics import Metrics
from tests.support.fake_api import client_of, kubeconfig
from tests.support.fake_watch import FakeKind, FakeWatchApi

pytestmark = pytest.mark.benchmark

PODS = WATCHED[0]
EVENTS = 50_000
TARGET_PER_SECOND = 30_000


def pod(number: int) -> dict[str, Any]:
    """Return a pod of 3.8 KB, as a cluster with injected sidecars has them."""
    container = {
        "name": "web",
        "image": "registry.example/team/web:1.2.3",
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        "env": [{"name": f"VARIABLE_{n}", "value": "x" * 32} for n in range(22)],
        "volumeMounts": [
            {"name": f"volume-{n}", "mountPath": f"/var/run/secrets/{n}", "readOnly": True}
            for n in range(8)
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
        "spec": {"containers": [container], "schedulerName": "stellwerk"},
        "status": {"phase": "Pending", "qosClass": "Burstable"},
    }


class Counting:
    """The least a sink can do; sets an event at the last pod."""

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last
        self.done = asyncio.Event()

    def on_pod(self, event_type: str | None, obj: dict[str, Any]) -> None:
        assert obj
        assert event_type
        self.count += 1
        if self.count == self._last:
            self.done.set()

    def on_node(self, event_type: str | None, obj: dict[str, Any]) -> None:
        raise AssertionError((event_type, obj))

    def on_object(self, kind: str, event_type: str | None, obj: dict[str, Any]) -> None:
        raise AssertionError((kind, event_type, obj))

    def on_synced(self, kind: str) -> None:
        assert kind == "Pod"


async def test_dispatch_without_parsing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "kubeconfig"
    path.write_bytes(orjson.dumps(kubeconfig("http://127.0.0.1:1")))
    counting = Counting(EVENTS)
    delivery = Delivery(PODS, counting, Metrics(), lambda *_: None)
    registry = build_registry([delivery], Sessions(await load_credentials(str(path))).open)
    handlers = [handler.fn for handler in registry._watching.get_all_handlers()]  # noqa: SLF001
    events = [{"type": "ADDED", "object": pod(number)} for number in range(EVENTS)]

    async def parsed(**_: Any) -> AsyncIterator[Any]:
        for event in events:
            yield event

    monkeypatch.setattr("kopf._cogs.clients.watching.continuous_watch", parsed)
    stream = fastlane._Stream(delivery, handlers)  # noqa: SLF001
    started = time.process_time()
    await stream.run(kopf.OperatorSettings(), SimpleNamespace(), None, asyncio.Future())  # type: ignore[arg-type]
    seconds = time.process_time() - started
    report("dispatch alone", EVENTS, seconds)
    assert counting.count == EVENTS
    assert EVENTS / seconds >= TARGET_PER_SECOND


@pytest.mark.parametrize(
    ("fast", "count"),
    [pytest.param(True, 30_000, id="fast lane"), pytest.param(False, 3_000, id="kopf's own path")],
)
async def test_watch_events_over_http(tmp_path: Path, *, fast: bool, count: int) -> None:
    lines = [
        orjson.dumps({"type": "ADDED", "object": pod(number)}) + b"\n" for number in range(count)
    ]

    def blocks() -> Iterator[bytes]:
        for start in range(0, count, 64):
            yield b"".join(lines[start : start + 64])

    class Api(FakeWatchApi):
        @override
        async def _watch(self, kind: FakeKind, request: web.Request) -> web.StreamResponse:
            kind.watches += 1
            response = web.StreamResponse()
            await response.prepare(request)
            for block in blocks():
                await response.write(block)
            await asyncio.Event().wait()
            return response

    api = Api((PODS,))
    server = TestServer(api.app())
    await server.start_server()
    api.url = str(server.make_url("")).rstrip("/")
    path = tmp_path / "kubeconfig"
    path.write_bytes(orjson.dumps(kubeconfig(api.url)))
    counting = Counting(count)
    options = OperatorOptions(fast_lane=fast, watched=(PODS,))
    async with client_of(api, tmp_path) as client:
        started = time.process_time()
        task = asyncio.create_task(
            run_operator(
                events=counting,
                client=client,
                credentials=await load_credentials(str(path)),
                metrics=Metrics(),
                jitter=lambda: 0.0,
                on_signal=lambda: None,
                options=options,
            )
        )
        await asyncio.wait_for(counting.done.wait(), timeout=100)
        report(
            f"{'fast lane' if fast else 'kopf'}, whole, server included",
            count,
            time.process_time() - started,
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await server.close()
    assert counting.count == count


def report(what: str, events: int, seconds: float) -> None:
    print(f"\n{what}: {events / seconds:,.0f} events/s, {seconds / events * 1e6:.1f} µs CPU each")
