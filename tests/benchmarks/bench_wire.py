"""`python -m tests.benchmarks.bench_wire`: what shortcuts on a pod's wire would save at most.

Each is tried beside what is done today, in turn, in CPU time a pod: bodies put together as bytes
from a template, the event that confirms a binding read without parsing it, and the binding and the
event in one `send` on one connection. What is written to or read from the wire is the same.
"""

import asyncio
import json
import multiprocessing
import re
import socket
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson
import uvloop
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.benchmarks.workloads import listed_node, listed_pod

_ROUNDS: Final = 9
_TIMES: Final = 2000
_EVENT: Final = (
    b'{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"%b","namespace":"%b"},'
    b'"eventTime":"%b","reportingController":"stellwerk","reportingInstance":"stellwerk-host",'
    b'"action":"Binding","reason":"Scheduled","regarding":{"apiVersion":"v1","kind":"Pod",'
    b'"name":"%b","uid":"%b","namespace":"%b","resourceVersion":"%b"},"note":"%b","type":"Normal"}'
)
_BINDING: Final = (
    b'{"apiVersion":"v1","kind":"Binding","metadata":{"namespace":"%b","name":"%b","uid":"%b"},'
    b'"target":{"kind":"Node","name":"%b"}}'
)
_CONFIRMING: Final = re.compile(
    rb'"uid":"([^"]+)","resourceVersion":"([0-9]+)".*"nodeName":"([^"]+)"', re.DOTALL
)
_BODY: Final = b"x" * 180
_HEAD: Final = b"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 180\r\n\r\n"
_REQUEST: Final = b"POST /api/v1/namespaces/default/pods/pod-1/binding HTTP/1.1\r\n" + _HEAD + _BODY
_ANSWER: Final = b"HTTP/1.1 201 Created\r\nContent-Length: 140\r\n\r\n" + b"x" * 140
_AT_ONCE: Final = 32


def _event_object(pod: PodInfo, note: str, when: str) -> JsonObject:
    """The Scheduled event as `EventRecorder` makes it."""
    regarding = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid}
    regarding |= {"namespace": pod.namespace, "resourceVersion": pod.resource_version}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{pod.name}.1", "namespace": pod.namespace},
        "eventTime": when,
        "reportingController": "stellwerk",
        "reportingInstance": "stellwerk-host",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": regarding,
        "note": note,
        "type": "Normal",
    }


def _event_bytes(pod: PodInfo, note: str, when: str) -> bytes:
    """The same from a template; names, uids and versions of the API need no escapes."""
    name, namespace = pod.name.encode(), pod.namespace.encode()
    uid, version = pod.uid.encode(), pod.resource_version.encode()
    texts = (name + b".1", namespace, when.encode(), name, uid, namespace, version, note.encode())
    return _EVENT % texts


def _binding_object(pod: PodInfo) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
        "target": {"kind": "Node", "name": pod.node_name},
    }


def _binding_bytes(pod: PodInfo) -> bytes:
    texts = (pod.namespace, pod.name, pod.uid, pod.node_name)
    return _BINDING % tuple(map(str.encode, texts))


def _seconds(act: Callable[[], object]) -> float:
    """CPU time of one call."""
    started = time.process_time()
    for _ in range(_TIMES):
        act()
    return (time.process_time() - started) / _TIMES


def _bodies() -> dict[str, tuple[Callable[[], object], Callable[[], object]]]:
    """By title: what is done today, and the shortcut."""
    pod = parse_pod(listed_pod(1, 10))
    note = f"Successfully assigned {pod.key} to {pod.node_name}"
    when = "2026-01-01T00:00:00.000000Z"
    assert _event_bytes(pod, note, when) == orjson.dumps(_event_object(pod, note, when))
    assert _binding_bytes(pod) == orjson.dumps(_binding_object(pod))
    cache = Cache()
    cache.set_node(parse_node(listed_node(1)))
    line = orjson.dumps({"type": "MODIFIED", "object": listed_pod(1, 10)})
    confirming = _CONFIRMING.search(line)
    assert confirming is not None
    assert confirming[1].decode() == pod.uid

    def confirm() -> None:
        cache.set_pod(parse_pod(orjson.loads(line)["object"]))

    def confirm_unparsed() -> None:
        found = _CONFIRMING.search(line)
        assert found is not None
        known = cache.pod(found[1].decode())
        assert known is not None
        known.resource_version = found[2].decode()

    return {
        "the event's body": (
            lambda: orjson.dumps(_event_object(pod, note, when)),
            lambda: _event_bytes(pod, note, when),
        ),
        "the binding's body": (
            lambda: orjson.dumps(_binding_object(pod)),
            lambda: _binding_bytes(pod),
        ),
        "the event that confirms it": (confirm, confirm_unparsed),
    }


# --- one send or two ------------------------------------------------------------------------------


class _Answering(asyncio.Protocol):
    """A server that answers each request of a known length."""

    def __init__(self) -> None:
        self._received = 0

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        while self._received >= len(_REQUEST):
            self._received -= len(_REQUEST)
            self._transport.write(_ANSWER)


def _serve(listener: socket.socket) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Answering, sock=listener)
        await server.serve_forever()

    uvloop.run(serve())


class _Client(asyncio.Protocol):
    """A connection that waits for one or two answers."""

    def __init__(self) -> None:
        self._missing = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: Any = transport

    async def exchange(self, requests: int) -> None:
        """Send so many requests at once, and wait for their answers."""
        self._missing = requests * len(_ANSWER)
        self._done = asyncio.get_running_loop().create_future()
        self._transport.write(_REQUEST * requests)
        await self._done

    @override
    def data_received(self, data: bytes) -> None:
        self._missing -= len(data)
        if not self._missing:
            self._done.set_result(None)


async def _pods(address: tuple[str, int], pods: int, *, at_once: bool) -> float:
    """CPU time a pod, of a binding and an event each."""
    loop = asyncio.get_running_loop()
    clients = [(await loop.create_connection(_Client, *address))[1] for _ in range(_AT_ONCE)]

    async def work(client: _Client) -> None:
        for _ in range(pods // _AT_ONCE):
            if at_once:
                await client.exchange(2)
            else:
                await client.exchange(1)
                await client.exchange(1)

    await work(clients[0])
    started = time.process_time()
    await asyncio.gather(*map(work, clients))
    return (time.process_time() - started) / pods


def main() -> None:
    """Print one JSON line for each shortcut."""
    rows: list[tuple[str, Callable[[], float], Callable[[], float]]] = [
        (title, partial(_seconds, today), partial(_seconds, shortcut))
        for title, (today, shortcut) in _bodies().items()
    ]
    listener = socket.create_server(("127.0.0.1", 0))
    address = listener.getsockname()
    server = multiprocessing.get_context("fork").Process(target=_serve, args=(listener,))
    server.start()

    def sent(*, at_once: bool) -> float:
        return uvloop.run(_pods(address, _TIMES, at_once=at_once))

    rows.append(
        ("binding and event, sent", partial(sent, at_once=False), partial(sent, at_once=True))
    )
    try:
        for title, today, shortcut in rows:
            pairs = [(today(), shortcut()) for _ in range(_ROUNDS)]
            figures = {
                "part": title,
                "today_us": round(1e6 * statistics.median(pair[0] for pair in pairs), 2),
                "shortcut_us": round(1e6 * statistics.median(pair[1] for pair in pairs), 2),
            }
            print(json.dumps(figures), flush=True)
    finally:
        server.terminate()
        server.join()


if __name__ == "__main__":
    main()
