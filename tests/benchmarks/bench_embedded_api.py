"""`python -m tests.benchmarks.bench_embedded_api`: writes a second of the embedded API, and memory.

Pods of 2 KB are created over HTTP and bound, while ten watches of all pods are open, first into an
empty cluster and then into one that holds many. What counts is the CPU time of the serving process,
so that the rate is that of one core; its resident memory stands beside it. Objects that are only
there to be many are created the same way, unmeasured. With `--limits` the calls of functions are
counted instead that a request makes in the server and in this client, with the limits of the port
and with aiohttp's own site: the same on every machine.
"""

import argparse
import asyncio
import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias
from unittest.mock import patch

import orjson
import uvloop
import yaml
from aiohttp import web

from stellwerk_cluster import cluster
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import node_name, posted_node
from tests.benchmarks.embedded_api import embedded_api
from tests.support.tenants import counted_calls

_NODES: Final = 100
_WATCHES: Final = 10
_CONNECTIONS: Final = 16
_WARM: Final = 50
_COUNTED: Final = 200
_TICK_SECONDS: Final = 1 / os.sysconf("SC_CLK_TCK")
_PODS: Final = "/api/v1/namespaces/default/pods"
Request: TypeAlias = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class Rate:
    """What one phase cost the serving process, and what it holds at its end."""

    title: str
    stored: int
    per_cpu_second: float
    resident_bytes: int


def pod_of_2_kb(index: int) -> JsonObject:
    """A pod whose JSON, once it is stored, has some 2,000 bytes."""
    container = {
        "name": "web",
        "image": "registry.example/team/web:1.2.3",
        "resources": {"requests": {"cpu": "100m", "memory": "500Mi"}},
        "env": [{"name": f"VARIABLE_{number}", "value": "x" * 24} for number in range(8)],
        "ports": [{"containerPort": 80}],
        "volumeMounts": [{"name": "scratch", "mountPath": "/var/scratch"}],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"pod-{index:06d}",
            "namespace": "default",
            "labels": {"app": f"app-{index % 300}", "tier": f"tier-{index % 7}"},
        },
        "spec": {
            "schedulerName": "stellwerk",
            "containers": [container],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    }


def creation(index: int) -> Request:
    """The request that creates pod number `index`."""
    return _PODS, orjson.dumps(pod_of_2_kb(index))


def binding(index: int) -> Request:
    """The request that binds pod number `index`."""
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": f"pod-{index:06d}", "namespace": "default"},
        "target": {"kind": "Node", "name": node_name(index % _NODES)},
    }
    return f"{_PODS}/pod-{index:06d}/binding", orjson.dumps(body)


class _Connection:
    """One connection that posts request after request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def post(self, path: str, body: bytes) -> None:
        """Send one request, and read its answer."""
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        size = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
        content = await self._reader.readexactly(size)
        if b" 201 " not in answer[:16]:
            raise RuntimeError(content.decode())


class _Watch:
    """Reads one watch, and only counts its bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET /api/v1/pods?watch=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        self.size = 0
        self._writer = writer
        self._task = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while piece := await reader.read(1 << 20):
            self.size += len(piece)


class Rod:
    """Measures phases of requests against one serving process."""

    def __init__(self, pid: int, host: str, port: int) -> None:
        """Measure the process that serves there."""
        self._pid, self._host, self._port = pid, host, port
        self._watches: list[_Watch] = []

    async def open_watches(self) -> None:
        """Open the watches; they stay open."""
        for _ in range(_WATCHES):
            streams = await asyncio.open_connection(self._host, self._port)
            self._watches.append(_Watch(*streams))

    async def send(self, requests: list[Request]) -> None:
        """Post all requests over a few connections."""
        pending = iter(requests)
        await asyncio.gather(*(self._send_some(pending) for _ in range(_CONNECTIONS)))
        await self._quiet()

    async def measure(self, title: str, stored: int, requests: list[Request]) -> Rate:
        """Post all requests; returns how many a second of CPU time would be served."""
        before = self._cpu_seconds()
        await self.send(requests)
        cpu = self._cpu_seconds() - before
        return Rate(title, stored, len(requests) / cpu, self.resident_bytes())

    def resident_bytes(self) -> int:
        """The resident memory of the process."""
        pages = Path(f"/proc/{self._pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    async def _send_some(self, pending: Iterator[Request]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        connection = _Connection(reader, writer)
        for path, body in pending:
            await connection.post(path, body)
        writer.close()

    async def _quiet(self) -> None:
        """Wait until the watches have read everything."""
        size = -1
        while size != (now := sum(watch.size for watch in self._watches)):
            size = now
            await asyncio.sleep(0.1)

    def _cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self._pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) * _TICK_SECONDS


async def measure(pid: int, host: str, port: int, sizes: list[int], block: int) -> list[Rate]:
    """Creations and bindings at each number of stored pods, in order, and the memory."""
    rod = Rod(pid, host, port)
    rates, index = [], count()
    stored = 0
    await rod.open_watches()
    for size in sizes:
        if size > stored:
            await rod.send([creation(next(index)) for _ in range(size - stored)])
            stored = size
        made = [next(index) for _ in range(block)]
        stored += block
        rates.append(await rod.measure("creations", stored, [creation(each) for each in made]))
        rates.append(await rod.measure("bindings", stored, [binding(each) for each in made]))
    return rates


class _PlainSite(web.TCPSite):
    """What stands in place of a `LimitedSite`: no limits but aiohttp's."""

    def __init__(self, runner: web.BaseRunner, host: str, port: int, _: object, **_tls: object):
        super().__init__(runner, host, port)


async def _calls_of_a_request() -> dict[str, float]:
    """Calls that are made for a creation and for a binding, in server and client."""
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    found = {}
    async with EmbeddedCluster([posted_node(0)], options=options) as served:
        host, _, port = served.url.rpartition("/")[2].partition(":")
        connection = _Connection(*await asyncio.open_connection(host, int(port)))
        for index in range(_WARM):
            await connection.post(*creation(index))
        for title, request in (("creating a pod", creation), ("binding a pod", binding)):
            with counted_calls() as calls:
                before = calls()
                for index in range(_WARM, _WARM + _COUNTED):
                    await connection.post(*request(index))
                found[title] = (calls() - before) / _COUNTED / 2  # calls and returns
    return found


def _print_calls() -> None:
    limited = uvloop.run(_calls_of_a_request())
    with patch.object(cluster, "LimitedSite", _PlainSite):
        plain = uvloop.run(_calls_of_a_request())
    for title, calls in limited.items():
        print(f"{title}: {calls:,.0f} calls with limits, {plain[title]:,.0f} without")


def main() -> None:
    """Print a line for each phase."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stored", type=int, nargs="*", default=[0, 10_000, 50_000])
    parser.add_argument("--block", type=int, default=3_000)
    parser.add_argument("--limits", action="store_true")
    arguments = parser.parse_args()
    if arguments.limits:
        _print_calls()
        return
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        served = stack.enter_context(embedded_api(directory, _NODES))
        config = yaml.safe_load(served.kubeconfig.read_text(encoding="utf-8"))
        address = config["clusters"][0]["cluster"]["server"].rpartition("/")[2]
        host, _, port = address.partition(":")
        empty = Rod(served.pid, host, int(port)).resident_bytes()
        rates = uvloop.run(measure(served.pid, host, int(port), arguments.stored, arguments.block))
    print(f"empty: {empty / 1e6:.0f} MB resident")
    for rate in rates:
        per_pod = (rate.resident_bytes - empty) / max(1, rate.stored)
        print(
            f"{rate.title}, {rate.stored:,} pods stored at the end, {_WATCHES} watches: "
            f"{rate.per_cpu_second:,.0f}/s of CPU time; {rate.resident_bytes / 1e6:.0f} MB "
            f"resident, {per_pod / 1000:.1f} KB a pod"
        )


if __name__ == "__main__":
    main()
