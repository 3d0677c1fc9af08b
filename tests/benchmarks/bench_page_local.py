"""`python -m tests.benchmarks.bench_page_local`: the cost of the page that follows a cluster.

`stellwerk page --local` as a process beside an embedded cluster of 5,000 nodes and 50,000 pods of
2 KB (`--nodes 3 --pods 30` is a small one): time, CPU time and memory until the page is open, CPU
time of a quiet half minute, and then of each binding that another scheduler makes. One JSON line.
CPU times hold on a busy machine; other times do not.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.binding import bind
from stellwerk_kube.json_values import JsonObject
from tests.benchmarks.provenance import provenance
from tests.support.builders import make_node, make_pod

_ANNOTATION_BYTES: Final = 1200
"""Bytes of a pod's annotation, with which a pod has 2 KB."""
_QUIET_SECONDS: Final = 30.0
_BINDINGS: Final = 500
_PAUSE_SECONDS: Final = 0.02
"""Pause after a pod was created, and after it was bound."""
_TRAILING_SECONDS: Final = 5.0
"""Time for the comparisons of the last bindings."""
_STILL: Final = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


def _mebibytes(pid: int, field: str) -> int:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(text.partition(f"{field}:")[2].split()[0]) >> 10


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _pod(number: int, node: str | None) -> JsonObject:
    labels = {"app": f"app-{number % 300}"}
    pod = make_pod(f"pod-{number}", cpu="100m", node_name=node, labels=labels)
    del pod["metadata"]["uid"]
    pod["metadata"]["annotations"] = {"example.com/note": "a" * _ANNOTATION_BYTES}
    return pod


async def _bind_some(cluster: EmbeddedCluster, nodes: int, pods: int) -> None:
    """Create pods and bind them one by one, as another scheduler does."""
    kind = cluster.api.kinds.resource("pods")
    for number in range(pods, pods + _BINDINGS):
        pod = _pod(number, None)
        name, node = pod["metadata"]["name"], f"node-{number * 7 % nodes}"
        cluster.api.create(kind, "default", pod)
        await asyncio.sleep(_PAUSE_SECONDS)
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
        bind(cluster.api, kind, ("default", name), binding)
        await asyncio.sleep(_PAUSE_SECONDS)
    await asyncio.sleep(_TRAILING_SECONDS)


async def _measure(nodes: int, pods: int, kubeconfig: Path) -> JsonObject:
    made = [make_node(f"node-{number}", cpu="64", zone=f"z{number % 3}") for number in range(nodes)]
    async with EmbeddedCluster(made, options=_STILL) as cluster:
        kind = cluster.api.kinds.resource("pods")
        for number in range(pods):
            cluster.api.create(kind, "default", _pod(number, f"node-{number % nodes}"))
            if number % 500 == 0:
                await asyncio.sleep(0)
        cluster.write_kubeconfig(kubeconfig)
        began = time.monotonic()
        page = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "stellwerk_cli", "page", "--local"),
            *("--kubeconfig", str(kubeconfig)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            if page.stdout is None or not (await page.stdout.readline()).startswith(b"Page: "):
                raise SystemExit("stellwerk page --local has not started")
            open_seconds, open_cpu = time.monotonic() - began, _cpu_seconds(page.pid)
            open_peak = _mebibytes(page.pid, "VmHWM")
            await asyncio.sleep(_QUIET_SECONDS)
            quiet_cpu = _cpu_seconds(page.pid)
            await _bind_some(cluster, nodes, pods)
            return {
                "nodes": nodes,
                "pods": pods,
                "openSeconds": round(open_seconds, 1),
                "openCpuSeconds": round(open_cpu, 2),
                "openPeakMiB": open_peak,
                "quietCpuPercent": round(100 * (quiet_cpu - open_cpu) / _QUIET_SECONDS, 2),
                "cpuMillisecondsPerBinding": round(
                    1000 * (_cpu_seconds(page.pid) - quiet_cpu) / _BINDINGS, 2
                ),
                "peakMiB": _mebibytes(page.pid, "VmHWM"),
            }
        finally:
            page.terminate()
            await page.wait()


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        found = asyncio.run(_measure(options.nodes, options.pods, Path(made) / "kubeconfig"))
    print(json.dumps(found | provenance()))


if __name__ == "__main__":
    main()
