"""`python -m tests.benchmarks.bench_read_cluster`: the cost of an explanation without an operator.

CPU time and memory of one `stellwerk explain --local`. An API server of this file, in a process of
its own, serves the lists from memory: 5,000 nodes, and 100,000 pods of 8 KB with managed fields, as
a real one sends them; `--nodes 3 --pods 30` is a small cluster. One JSON line. Invariant: the
server answers GET alone, so that a command that writes fails.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

POD_BYTES = 8 << 10
"""Bytes of a pod: a container with probes and an environment, its status, and managed fields."""
_ANNOTATION_BYTES = 2 << 10
WAITING = "waits"
"""The pod that is explained; it fits nowhere."""
PODS_PER_WORKLOAD = 50


class Lists:
    """The lists of the cluster, written page by page when they are asked for."""

    def __init__(self, nodes: int, pods: int) -> None:
        """Write the two objects that all others are copies of."""
        self._counts = {"nodes": nodes, "pods": pods + 1}
        node = json.dumps(make_node("NODE-NAME", cpu="64", memory="256Gi", zone="zone-ZONE"))
        self._node = node.encode()
        pod = make_pod(
            "POD-NAME", cpu="500m", memory="1Gi", node_name="NODE-NAME", labels={"app": "APP"}
        )
        pod["metadata"] |= {"resourceVersion": "1"}
        pod["spec"]["containers"][0]["env"] = [
            {"name": f"SETTING_{number}", "value": "a value of a few words"} for number in range(24)
        ]
        pod["spec"]["priority"] = 0  # as the API server fills it in
        pod["status"] = {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "qosClass": "Burstable",
            "conditions": [
                {"type": kind, "status": "True"}
                for kind in ("PodScheduled", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0}],
        }
        # As in a pod of a Deployment with a sidecar: managed fields are nearly half of it, and the
        # rest is what its annotations hold.
        entry: JsonObject = {f"f:field-{number}": {} for number in range(20)}
        fields = pod["metadata"]["managedFields"] = []
        while len(json.dumps(pod)) < POD_BYTES - _ANNOTATION_BYTES:
            fields.append({"manager": "kubelet", "operation": "Update", "fieldsV1": entry})
        text = "a" * (POD_BYTES - len(json.dumps(pod)))
        pod["metadata"]["annotations"] = {"sidecar.example.com/status": text}
        self._pod = json.dumps(pod).encode()
        waiting = make_pod(WAITING, cpu="1000", memory="1Gi")
        self._waiting = json.dumps(waiting).encode()

    def page(self, plural: str, limit: int, start: int) -> bytes:
        """A page of nodes, pods, or of another kind, which has no objects."""
        count = self._counts.get(plural, 0)
        end = min(count, start + limit) if limit else count
        items = b",".join(self._item(plural, number) for number in range(start, end))
        token = str(end) if end < count else ""
        metadata = json.dumps({"resourceVersion": "1", "continue": token}).encode()
        return b'{"kind":"%s","metadata":%s,"items":[%s]}' % (
            _LISTS.get(plural, "").encode(),
            metadata,
            items,
        )

    def _item(self, plural: str, number: int) -> bytes:
        if plural == "nodes":
            return self._node.replace(b"NODE-NAME", b"node-%d" % number).replace(
                b"ZONE", b"%d" % (number % 3)
            )
        if number == self._counts["pods"] - 1:
            return self._waiting
        node = b"node-%d" % (number % self._counts["nodes"])
        app = b"app-%d" % (number // PODS_PER_WORKLOAD)
        return (
            self._pod.replace(b"POD-NAME", b"pod-%d" % number)
            .replace(b"NODE-NAME", node)
            .replace(b'"APP"', b'"%s"' % app)
        )


_LISTS = {
    "nodes": "NodeList",
    "pods": "PodList",
    "namespaces": "NamespaceList",
    "services": "ServiceList",
    "replicationcontrollers": "ReplicationControllerList",
    "replicasets": "ReplicaSetList",
    "statefulsets": "StatefulSetList",
    "poddisruptionbudgets": "PodDisruptionBudgetList",
    "priorityclasses": "PriorityClassList",
}
"""The kinds of the lists that are served; other paths are 404."""


def serve(nodes: int, pods: int, ready: Connection) -> None:
    """Serve the lists until the process is ended; `ready` gets the port."""
    lists = Lists(nodes, pods)

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/version":
            return web.json_response({"gitVersion": "v1.36.2"})
        plural = request.path.rpartition("/")[2]
        if plural not in _LISTS or "labelSelector" in request.query:
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        limit, start = (int(request.query.get(each) or 0) for each in ("limit", "continue"))
        body = lists.page(plural, limit, start)
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(run())


def kubeconfig(port: int) -> JsonObject:
    """A kubeconfig of the server."""
    cluster: dict[str, Any] = {"server": f"http://127.0.0.1:{port}"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "large", "cluster": cluster}],
        "contexts": [{"name": "large", "context": {"cluster": "large", "user": "reader"}}],
        "users": [{"name": "reader", "user": {}}],
        "current-context": "large",
    }


def measured(words: list[str]) -> tuple[float, float, str]:
    """CPU seconds and MiB of a command as a process of its own, and what it printed."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    printed = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} failed: {printed}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, printed


def main() -> None:
    """Measure, and print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=100_000)
    options = parser.parse_args()
    ready, other = Pipe(duplex=False)
    server = get_context("spawn").Process(
        target=serve, args=(options.nodes, options.pods, other), daemon=True
    )
    server.start()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kubeconfig"
        file.write_text(yaml.safe_dump(kubeconfig(ready.recv())))
        words = [sys.executable, "-m", "stellwerk_cli", "explain", f"pod/{WAITING}", "--local"]
        cpu_seconds, mebibytes, printed = measured([*words, "--kubeconfig", str(file)])
    server.terminate()
    assert "Insufficient cpu" in printed, printed
    print(printed.splitlines()[0], file=sys.stderr)
    found = {"nodes": options.nodes, "pods": options.pods, "pod_bytes": POD_BYTES}
    print(json.dumps({**found, "cpu_seconds": round(cpu_seconds, 2), "mib": round(mebibytes)}))


if __name__ == "__main__":
    main()
