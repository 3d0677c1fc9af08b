"""`python -m tests.benchmarks.bench_hollow_nodes`: a cluster of many hollow nodes and pods.

`stellwerk cluster` runs in a process of its own, and with `--up` the scheduler in it. Deployments
are created over HTTP; printed are the seconds until all of their pods run, the CPU time of the
process, and its peak of resident memory. Without `--up`, the pods name their node.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from tests.benchmarks.bench_start import cpu_seconds
from tests.support.processes import Process, fetch, running, server_of

_REPLICAS: Final = 1000
_LOOK_SECONDS: Final = 0.5
_MIB: Final = 1024


def deployment(number: int, replicas: int, node_name: str) -> dict[str, Any]:
    """A deployment like many others; its pods run on one node, if any is named."""
    labels = {"app": f"web-{number}"}
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "c", "image": "i:1", "resources": {"requests": requests}}
    spec = {"containers": [container], **({"nodeName": node_name} if node_name else {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"web-{number}"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def ready(process: Process, url: str) -> int:
    """How many replicas of the deployments are ready."""
    process.check_alive()
    listed = json.loads(await fetch(f"{url}/apis/apps/v1/namespaces/default/deployments"))
    return sum(each["status"].get("readyReplicas", 0) for each in listed["items"])


def peak_mib(pid: int) -> float:
    """VmHWM."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / _MIB
    raise ValueError("no VmHWM")


async def measure(nodes: int, pods: int, *, up: bool) -> None:
    """Print what one start takes."""
    with tempfile.TemporaryDirectory() as directory:
        kubeconfig = Path(directory) / "kubeconfig"
        command = "up" if up else "cluster"
        arguments = (command, "--nodes", str(nodes), "--kubeconfig", str(kubeconfig))
        began = time.monotonic()
        log = Path(directory) / "log"
        async with running(log, *arguments, is_forked=False) as process:
            while not kubeconfig.exists():
                process.check_alive()
                await asyncio.sleep(0.05)
            url, served = server_of(kubeconfig), time.monotonic() - began
            # Bound pods are spread by hand: a deployment for each node.
            sizes = [_REPLICAS] * (pods // _REPLICAS) if up else [pods // nodes] * nodes
            for number, replicas in enumerate(sizes):
                node_name = "" if up else f"node-{number + 1}"
                path = f"{url}/apis/apps/v1/namespaces/default/deployments"
                await fetch(path, deployment(number, replicas, node_name))
            while await ready(process, url) < sum(sizes):  # noqa: ASYNC110  (another process)
                await asyncio.sleep(_LOOK_SECONDS)
            pid, wall = process.process.pid, time.monotonic() - began
            print(
                f"stellwerk {command}: {nodes} nodes served after {served:.1f} s; "
                f"{sum(sizes)} pods run after {wall:.1f} s, "
                f"{cpu_seconds(pid):.1f} s of CPU; peak {peak_mib(pid):.0f} MiB",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Many hollow nodes and pods.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=10_000)
    parser.add_argument("--up", action="store_true", help="with the scheduler, which binds them")
    given = parser.parse_args()
    asyncio.run(measure(given.nodes, given.pods, up=given.up))
