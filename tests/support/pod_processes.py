"""The Deployment's pods as processes: what a kubelet that is not hollow would do with them.

For each pod of Stellwerk that a hollow node runs, `stellwerk` is started with the arguments of the
pod's container and a token of its service account, asked to end when the pod goes, and started
again when it ends unasked. Invariant: no process is left when the context ends.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.cluster import EmbeddedCluster
from tests.support.processes import AnyProcess, start
from tests.support.rights import NAMESPACE, token_of, with_token

_PAUSE_SECONDS = 0.05
_END_SECONDS = 30.0
_HOST = "tests.support.pod_host"


class PodProcesses:
    """The processes by their pods' names."""

    def __init__(self, cluster: EmbeddedCluster, directory: Path) -> None:
        self.running: dict[str, AnyProcess] = {}
        self.statuses: list[int] = []
        """How those ended whose pods went."""
        self.starts = 0
        self._cluster = cluster
        self._directory = directory
        self._endings: set[asyncio.Task[None]] = set()
        self._restarts: dict[str, int] = {}

    async def run(self) -> None:
        """Follow the pods until cancelled."""
        while True:
            pods = {pod["metadata"]["name"]: pod for pod in self._pods()}
            for name in [*self.running]:
                if name not in pods:
                    ending = asyncio.create_task(self._end(self.running.pop(name)))
                    self._endings.add(ending)
            for name, pod in pods.items():
                process = self.running.get(name)
                if process is not None and self._was_restarted(pod):
                    process.kill()
                    await process.wait()
                if process is None or process.returncode is not None:
                    self.running[name] = await self._start(pod)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def end(self) -> None:
        """Ask all processes to end, and wait for them."""
        await asyncio.gather(*map(self._end, self.running.values()), *self._endings)
        self.running.clear()

    def log(self) -> str:
        """What all of them wrote."""
        logs = sorted(self._directory.glob("stellwerk-*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def _pods(self) -> list[JsonObject]:
        return [
            pod
            for pod in self._cluster.api.all("pods", NAMESPACE)
            if pod.get("status", {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            # Others than the operator's, such as that of `helm test`, are the hollow node's.
            and "run" in pod["spec"]["containers"][0].get("args", [])
        ]

    async def _start(self, pod: JsonObject) -> AnyProcess:
        name = pod["metadata"]["name"]
        self.starts += 1
        kubeconfig = self._directory / f"{name}.kubeconfig"
        self._cluster.write_kubeconfig(kubeconfig)
        account = pod["spec"]["serviceAccountName"]
        token = token_of(self._cluster, account)
        kubeconfig.write_text(with_token(kubeconfig.read_text(), token))
        (container,) = pod["spec"]["containers"]
        # A pod has an address of its own; here all of them share this machine's.
        arguments = [
            "--bind-address=127.0.0.1:0" if each.startswith("--bind-address=") else each
            for each in container["args"]
        ]
        with (self._directory / f"stellwerk-{name}.log").open("ab") as log:
            return await start(log, name, *arguments, "--kubeconfig", str(kubeconfig), module=_HOST)

    async def _end(self, process: AnyProcess) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            status = await asyncio.wait_for(process.wait(), _END_SECONDS)
        except TimeoutError:
            process.kill()
            status = await process.wait()
        self.statuses.append(status)

    def _was_restarted(self, pod: JsonObject) -> bool:
        """Whether the hollow node has started the container again: its process was killed."""
        name = pod["metadata"]["name"]
        restarts: int = sum(each["restartCount"] for each in pod["status"]["containerStatuses"])
        before, self._restarts[name] = self._restarts.get(name, restarts), restarts
        return restarts > before


@asynccontextmanager
async def pod_processes(cluster: EmbeddedCluster, directory: Path) -> AsyncIterator[PodProcesses]:
    """Processes for the pods that come and go."""
    processes = PodProcesses(cluster, directory)
    following = asyncio.create_task(processes.run(), name="kubelet of processes")
    try:
        yield processes
    finally:
        following.cancel()
        await asyncio.wait({following})
        await processes.end()
    if not following.cancelled():
        following.result()
