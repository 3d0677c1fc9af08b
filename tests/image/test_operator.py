"""The operator in a container of the image, as the Deployment runs it, and a cluster beside it."""

import asyncio
import base64
import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from stellwerk_kube.json_values import JsonObject
from tests.image.conftest import BuiltImage
from tests.support.built_image import ACCOUNT_FOLDER, Pod, Running, container
from tests.support.enforced_process import EnforcedCluster, enforced_cluster
from tests.support.processes import command, fetch, trusting, until
from tests.support.rights import NAMESPACE

MAX_END_SECONDS = 2.0
PROBES = ("startupProbe", "livenessProbe", "readinessProbe")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


class Replica:
    """One container of the Deployment, and the port that its probes ask."""

    def __init__(self, running: Running, port: int) -> None:
        self.running = running
        self.url = f"https://127.0.0.1:{port}"

    async def answers(self, probe: JsonObject) -> bool:
        """Ask as the kubelet does, within its timeout."""
        self.running.check_alive()
        url = f"{self.url}{probe['httpGet']['path']}"
        try:
            return await asyncio.to_thread(_status, url, probe["timeoutSeconds"]) == 200
        except OSError:
            return False

    async def is_up(self) -> None:
        """Wait until all probes are answered, each within its timeout."""
        spec = Pod.of_manifest().container
        for name in PROBES:
            await until(partial(self.answers, spec[name]))

    async def end(self) -> None:
        assert await asyncio.to_thread(self.running.end) == 0
        assert self.running.seconds_to_end <= MAX_END_SECONDS


def _status(url: str, timeout_seconds: float, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 of this machine
    try:
        with urllib.request.urlopen(request, timeout=timeout_seconds, context=trusting()) as answer:  # noqa: S310
            answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


@contextmanager
def replica(image: BuiltImage, cluster: EnforcedCluster, directory: Path) -> Iterator[Replica]:
    """A container with the Deployment's arguments and the service account that a kubelet mounts."""
    port = free_port()
    arguments = [
        f"--bind-address=127.0.0.1:{port}" if each.startswith("--bind-address=") else each
        for each in Pod.of_manifest().container["args"]
    ]
    account = directory.with_name(f"{directory.name}-account")
    environment = write_account(cluster, account)
    mounts = {ACCOUNT_FOLDER: account}
    root = image.root
    with container(
        image.name, root, directory, arguments, environment=environment, mounts=mounts
    ) as running:
        yield Replica(running, port)


def write_account(cluster: EnforcedCluster, folder: Path) -> dict[str, str]:
    """Write what a kubelet mounts for a service account; returns the variables of its Service."""
    config = yaml.safe_load(cluster.kubeconfig.read_text(encoding="utf-8"))
    authority = config["clusters"][0]["cluster"]["certificate-authority-data"]
    folder.mkdir()
    (folder / "ca.crt").write_bytes(base64.b64decode(authority))
    (folder / "token").write_text(config["users"][0]["user"]["token"])
    (folder / "namespace").write_text(NAMESPACE)
    server = urlsplit(cluster.server)
    return {
        "KUBERNETES_SERVICE_HOST": str(server.hostname),
        "KUBERNETES_SERVICE_PORT": str(server.port),
    }


def token_of_admin(directory: Path) -> str:
    config = yaml.safe_load((directory / "admin.kubeconfig").read_text(encoding="utf-8"))
    return str(config["users"][0]["user"]["token"])


async def holder(cluster: EnforcedCluster) -> str:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/stellwerk"
    try:
        lease = json.loads(await fetch(f"{cluster.server}{path}"))
    except urllib.error.HTTPError:
        return ""
    return str(lease["spec"].get("holderIdentity") or "")


async def schedules(cluster: EnforcedCluster, name: str, running: Running) -> str:
    """Create a pod, and wait for its node."""
    pods = f"{cluster.server}/api/v1/namespaces/default/pods"
    spec = {"schedulerName": "stellwerk", "containers": [{"name": "main", "image": "pause"}]}
    await fetch(pods, {"metadata": {"name": name}, "spec": spec})
    found: list[str] = []

    async def is_bound() -> bool:
        running.check_alive()
        found[:] = [json.loads(await fetch(f"{pods}/{name}"))["spec"].get("nodeName") or ""]
        return bool(found[0])

    await until(is_bound)
    return found[0]


async def test_it_starts_leads_schedules_explains_and_ends(
    image: BuiltImage, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    async with enforced_cluster(tmp_path, "--nodes", "3") as cluster:
        with replica(image, cluster, tmp_path / "one") as one:
            await one.is_up()
            record_property("CPU seconds from start to ready", one.running.cpu_seconds())
            await until(lambda: _is_held(cluster))
            node = await schedules(cluster, "web", one.running)
            admin = str(tmp_path / "admin.kubeconfig")
            reached = ("--url", one.url, "--kubeconfig", admin, "--insecure-skip-tls-verify")
            status, printed, said = await command("explain", "pod", "default/web", *reached)
            assert (status, node in printed) == (0, True), said
            metrics, token = f"{one.url}/metrics", token_of_admin(tmp_path)
            assert await asyncio.to_thread(_status, metrics, 5, "of nobody") == 401
            assert await asyncio.to_thread(_status, metrics, 5, token) == 200
            with replica(image, cluster, tmp_path / "two") as two:
                await two.is_up()
                leader = await holder(cluster)
                await two.end()
            assert await holder(cluster) == leader
            await one.end()
        assert await holder(cluster) == "", "the lease is given back"


async def _is_held(cluster: EnforcedCluster) -> bool:
    return bool(await holder(cluster))


async def test_a_start_that_fails_is_one_line(image: BuiltImage, tmp_path: Path) -> None:
    """Nothing is mounted, as for a pod whose account mounts no token."""
    variables = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"}
    with container(
        image.name, image.root, tmp_path / "it", ["run"], environment=variables
    ) as running:
        assert await asyncio.to_thread(running.process.wait, 60) == 2
    (line,) = running.log.read_text().splitlines()
    assert line.startswith("stellwerk: cannot read this pod's service account")
