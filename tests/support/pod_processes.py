"""The operator's pods as processes: what a kubelet that is not hollow would do with them.

For each pod of Stellwerk that a hollow node runs, `stellwerk` is started with the arguments and the
environment of the pod's container and a token of its service account, asked to end when the pod
goes, and started again when it ends unasked. A static pod is started from its file, with the
kubeconfig that its arguments name. A pod of the chart's hook (`stellwerk leave`) ends with its
process's status. Invariant: no process is left when the context ends.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import yaml

from stellwerk_cluster.cluster import EmbeddedCluster
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.json_values import JsonObject
from tests.support.processes import AnyProcess, start
from tests.support.rights import token_of, with_token

USERS = {
    "/etc/kubernetes/scheduler.conf": "system:kube-scheduler",
    "/etc/kubernetes/stellwerk.conf": "system:stellwerk",
}
"""The users of the kubeconfigs on a node of the control plane."""
_OF_A_FILE = {"kubernetes.io/config.mirror": "1", "kubernetes.io/config.source": "file"}
_PAUSE_SECONDS = 0.05
_END_SECONDS = 30.0
_RUN_SECONDS = "stellwerk.dev/run-seconds"
_END_NOW = "stellwerk.dev/end-now"
_EXIT_CODE = "stellwerk.dev/exit-code"
"""Of a pod that crashes: nothing runs in its place."""
_WITHOUT_END = {"metadata": {"annotations": {_RUN_SECONDS: "600"}}}
"""Of a hook's pod: its process says when it ends."""
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
        self._is_over = False
        self._hooks: dict[str, AnyProcess] = {}
        """The processes of hooks, by the uids of their pods."""
        self._restarts: dict[str, int] = {}

    async def run(self) -> None:
        """Follow the pods until the end; a process that is being started then is not left."""
        while not self._is_over:
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
            await self._follow_hooks()
            await asyncio.sleep(_PAUSE_SECONDS)

    def stop(self) -> None:
        """Have `run` return."""
        self._is_over = True

    async def end(self) -> None:
        """Ask all processes to end, and wait for them; `run` has returned."""
        hooks = [each for each in self._hooks.values() if each.returncode is None]
        await asyncio.gather(*map(self._end, [*self.running.values(), *hooks]), *self._endings)
        self.running.clear()

    def log(self) -> str:
        """What all of them wrote."""
        logs = sorted(self._directory.glob("stellwerk-*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text()}" for log in logs)

    def start_static(self, file: Path, node: str) -> None:
        """Do what the kubelet of a node does with a file in /etc/kubernetes/manifests."""
        pod = yaml.safe_load(file.read_text())
        name = f"{pod['metadata']['name']}-{node}"
        # What the kubelet writes is a mirror: the pod runs without it, and it shows the pod to all.
        metadata = {**pod["metadata"], "name": name, "annotations": _OF_A_FILE}
        mirror = {**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": node}}
        pods = self._cluster.api.kinds.resource("pods")
        self._cluster.api.create(pods, metadata["namespace"], mirror)

    def end_static(self, node: str) -> None:
        """Take the file out of the folder again."""
        pods = self._cluster.api.kinds.resource("pods")
        key = ("kube-system", f"stellwerk-{node}")
        delete(self._cluster.api, pods, key, DeleteOptions(grace_period_seconds=0))

    def _pods(self) -> list[JsonObject]:
        return [
            pod
            for pod in self._cluster.api.all("pods")
            if pod.get("status", {}).get("phase") == "Running"
            and not pod["metadata"].get("deletionTimestamp")
            # Others than the operator's, such as that of `helm test`, are the hollow node's.
            and pod["spec"]["containers"][0].get("args", [])[:1] == ["run"]
            and _EXIT_CODE not in (pod["metadata"].get("annotations") or {})
        ]

    async def _follow_hooks(self) -> None:
        kind = self._cluster.api.kinds.resource("pods")
        for pod in [*self._cluster.api.all("pods")]:
            if "leave" not in pod["spec"]["containers"][0].get("args", []):
                continue
            metadata = pod["metadata"]
            key, uid = (metadata["namespace"], metadata["name"]), metadata["uid"]
            phase, annotations = pod["status"].get("phase"), pod["metadata"]["annotations"]
            if phase == "Pending" and annotations[_RUN_SECONDS] != "600":
                self._cluster.api.patch(kind, key, _WITHOUT_END)
            elif phase == "Running" and uid not in self._hooks:
                self._hooks[uid] = await self._start(pod)
            elif phase == "Running" and (code := self._hooks[uid].returncode) is not None:
                ended = {"metadata": {"annotations": {_END_NOW: str(code)}}}
                self._cluster.api.patch(kind, key, ended)

    async def _start(self, pod: JsonObject) -> AnyProcess:
        name = pod["metadata"]["name"]
        self.starts += 1
        (container,) = pod["spec"]["containers"]
        # A pod has an address of its own; here all of them share this machine's.
        arguments = [
            "--bind-address=127.0.0.1:0" if each.startswith("--bind-address=") else each
            for each in container["args"]
            if not each.startswith("--kubeconfig=")
        ]
        kubeconfig = self._directory / f"{name}.kubeconfig"
        with (self._directory / f"stellwerk-{name}.log").open("ab") as log:
            self._write_kubeconfig(pod, kubeconfig)
            return await start(
                log,
                *(name, *arguments, "--kubeconfig", str(kubeconfig)),
                module=_HOST,
                environment=_environment(pod, container),
            )

    def _write_kubeconfig(self, pod: JsonObject, path: Path) -> None:
        """The credentials that the pod has: of its service account, or of the user of a file."""
        (container,) = pod["spec"]["containers"]
        named = [each for each in container["args"] if each.startswith("--kubeconfig=")]
        if named:
            user = USERS[named[0].removeprefix("--kubeconfig=")]
            path.write_text(kubeconfig_of(self._cluster, user))
            return
        self._cluster.write_kubeconfig(path)
        namespace, account = pod["metadata"]["namespace"], pod["spec"]["serviceAccountName"]
        token = token_of(self._cluster, account, namespace)
        path.write_text(with_token(path.read_text(), token))

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


def kubeconfig_of(cluster: EmbeddedCluster, user: str) -> str:
    """A kubeconfig with a client certificate, as kubeadm makes one for each part of it."""
    assert cluster.authority is not None
    pair = cluster.authority.issue_client(user)
    config = yaml.safe_load(cluster.kubeconfig())
    config["users"][0]["user"] = {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }
    return str(yaml.safe_dump(config))


def _environment(pod: JsonObject, container: JsonObject) -> dict[str, str]:
    """What the container's environment names; of the downward API the fields of `metadata`."""
    found = {}
    for each in container.get("env", []):
        path = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        value = pod["metadata"][path.removeprefix("metadata.")] if path else each["value"]
        found[each["name"]] = str(value)
    return found


@asynccontextmanager
async def pod_processes(cluster: EmbeddedCluster, directory: Path) -> AsyncIterator[PodProcesses]:
    """Processes for the pods that come and go."""
    processes = PodProcesses(cluster, directory)
    following = asyncio.create_task(processes.run(), name="kubelet of processes")
    try:
        yield processes
    finally:
        processes.stop()
        await asyncio.wait({following})
        await processes.end()
    following.result()
