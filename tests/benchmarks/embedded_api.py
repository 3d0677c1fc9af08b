"""The embedded cluster's API alone, in a process of its own: what a scheduler is measured against.

`python -m tests.benchmarks.embedded_api KUBECONFIG NODES PODS KIND [tls] [kubelet]` serves until
SIGTERM. Without controllers, heartbeats and (unless `kubelet` is given) kubelets, so that nothing
but the scheduler changes a pod, as where nodes are made up at a real API server. The nodes are
there from the beginning: nobody would take the not-ready taint off those that are created later; so
are bound pods, which are put into the store as they are, in a twentieth of the time that creating
them would take.
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
from stellwerk_cli.embedded_cluster import install_profiles
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_simulation.workloads import posted_node
from tests.benchmarks.workloads import listed_pod

_TLS: Final = "tls"
_KUBELET: Final = "kubelet"
_START_SECONDS: Final = 30.0
_PODS_A_SECOND: Final = 2000
"""At least, where pods are put into the store."""


class ServedApi(NamedTuple):
    """Where the API is served, and by which process."""

    kubeconfig: Path
    pid: int


async def _serve(kubeconfig: Path, nodes: int, pods: int, kind: str, words: list[str]) -> None:
    options = ClusterOptions(
        controllers=False,
        kubelet=KubeletOptions() if _KUBELET in words else None,
        heartbeats=False,
        tls=_TLS in words,
    )
    cluster = EmbeddedCluster([posted_node(index) for index in range(nodes)], options=options)
    install_profiles(cluster)
    for index in range(pods):
        pod = listed_pod(index, nodes, kind)
        pod["metadata"]["resourceVersion"] = str(cluster.store.revision)
        cluster.store.restore("pods", pod, cluster.store.revision)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with cluster:
        cluster.write_kubeconfig(kubeconfig)
        await stop.wait()


@contextmanager
def embedded_api(
    directory: Path,
    nodes: int,
    pods: int = 0,
    *,
    kind: str = "basic",
    tls: bool = False,
    kubelet: bool = False,
) -> Iterator[ServedApi]:
    """Serve a cluster of so many nodes and bound pods of a workload while the block lasts."""
    kubeconfig = directory / "embedded.kubeconfig"
    kubeconfig.unlink(missing_ok=True)
    command = [sys.executable, "-m", __name__, str(kubeconfig), str(nodes), str(pods), kind]
    command += [word for word, is_given in ((_TLS, tls), (_KUBELET, kubelet)) if is_given]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + _START_SECONDS + pods / _PODS_A_SECOND
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
    _file, _nodes, _pods, _kind, *_words = sys.argv[1:]
    uvloop.run(_serve(Path(_file), int(_nodes), int(_pods), _kind, _words))
