"""The embedded cluster's API alone, in a process of its own: what a scheduler is measured against.

`python -m tests.benchmarks.embedded_api KUBECONFIG NODES` serves until SIGTERM. Without
controllers, kubelets and heartbeats, so that nothing but the scheduler changes a pod, as where
nodes are made up at a real API server. The nodes are there from the beginning: nobody would take
the not-ready taint off those that are created later.
"""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import uvloop

from stellwerk.garbage import collect_seldom
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.command import install_profiles
from stellwerk_simulation.workloads import posted_node

_START_SECONDS: Final = 30.0


class ServedApi(NamedTuple):
    """Where the API is served, and by which process."""

    kubeconfig: Path
    pid: int


async def _serve(kubeconfig: Path, nodes: int) -> None:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    cluster = EmbeddedCluster([posted_node(index) for index in range(nodes)], options=options)
    install_profiles(cluster)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with cluster:
        cluster.write_kubeconfig(kubeconfig)
        await stop.wait()


@contextmanager
def embedded_api(directory: Path, nodes: int) -> Iterator[ServedApi]:
    """Serve a cluster of so many nodes while the block lasts."""
    kubeconfig = directory / "embedded.kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    process = subprocess.Popen([sys.executable, "-m", __name__, str(kubeconfig), str(nodes)])
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not kubeconfig.exists():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the embedded cluster does not start")
            time.sleep(0.05)
        yield ServedApi(kubeconfig, process.pid)
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    collect_seldom()
    uvloop.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
