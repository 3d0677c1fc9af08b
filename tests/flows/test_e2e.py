"""`make e2e` on the embedded cluster with hollow nodes: the steps of tests/e2e, and its refusals.

A stand-in for kube-scheduler places the operator's pods and starts and stops as the steps ask, the
pods run as processes, and a kubectl ahead of the real one forwards ports to these.
"""

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.identity.assembly import IdentityOptions
from tests.e2e.site import Refusal, context_of, image_fields
from tests.support.kubectls import newest, program_of
from tests.support.lease_scheduler import LeaseScheduler, kube_scheduler
from tests.support.pod_processes import PodProcesses, pod_processes
from tests.support.repository import ROOT

NODES = 4
SKIPPED = ("hollow nodes have no container in which a program could run",)
"""The reasons of the steps that are skipped there; every other one runs."""
OPTIONS = ClusterOptions(
    identity=IdentityOptions("rbac", service_accounts=True),
    tls=True,
    kubelet=KubeletOptions(respect_grace=False),
)
LISTENS = "0A"
"""The state of a listening socket in /proc/net/tcp."""


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({}, "name the image", id="no image"),
        pytest.param(
            {"IMAGE": "i:1"}, r"E2E_CONTEXT=NAME .*\(kind, prod; its.* prod\)", id="no name"
        ),
        pytest.param({"IMAGE": "i:1", "E2E_CONTEXT": "dev"}, "no context dev", id="another name"),
    ],
)
def test_a_cluster_that_was_not_named_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(Refusal, match=message):
        context_of(environment, ["prod", "kind"], "prod")


@pytest.mark.parametrize(
    ("image", "fields"),
    [
        ("stellwerk:1", {"name": "stellwerk", "tag": "1"}),
        ("localhost:5000/a/stellwerk", {"name": "localhost:5000/a/stellwerk", "tag": "latest"}),
        ("localhost:5000/s:1", {"name": "localhost:5000/s", "tag": "1"}),
        ("r.example/s@sha256:ab", {"name": "r.example/s", "digest": "sha256:ab"}),
    ],
)
def test_an_image_has_a_name_and_a_tag_or_a_digest(image: str, fields: dict[str, str]) -> None:
    assert image_fields(image) == fields


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("way", ["files", "helm"])
async def test_the_steps_on_hollow_nodes(way: str, tmp_path: Path) -> None:
    async with hollow_site(tmp_path) as environment:
        chosen = {"E2E_HELM": "1"} if way == "helm" else {}
        status, output = await run_steps({**environment, **chosen})
    assert status == 0, output
    skipped = [line for line in output.splitlines() if line.startswith("SKIPPED")]
    assert len(skipped) == len(SKIPPED), output
    assert [reason for reason in SKIPPED if not any(reason in line for line in skipped)] == []


@pytest.mark.long
async def test_a_cluster_that_has_stellwerk_is_refused_and_left_alone(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(1, options=OPTIONS)
    async with cluster:
        kind = cluster.api.kinds.resource("namespaces")
        cluster.api.create(kind, "", {"metadata": {"name": "stellwerk"}})
        before = list(cluster.api.all("namespaces"))
        status, output = await run_steps(access_to(cluster, tmp_path))
        assert status == 2, output
        assert "has namespace/stellwerk already" in output
        assert list(cluster.api.all("namespaces")) == before


async def run_steps(environment: Mapping[str, str]) -> tuple[int | None, str]:
    """`make e2e`, without what make does before."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pytest", "-m", "e2e", "-v", "-rs", "-p", "no:cacheprovider"),
        "tests/e2e",
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode, output.decode()


def access_to(cluster: EmbeddedCluster, directory: Path) -> dict[str, str]:
    """What the user of `make e2e` says."""
    kubeconfig = directory / "kubeconfig"
    cluster.write_kubeconfig(kubeconfig)
    context = yaml.safe_load(kubeconfig.read_text())["current-context"]
    image = "registry.example/stellwerk:1"
    return {"KUBECONFIG": str(kubeconfig), "E2E_CONTEXT": context, "IMAGE": image}


@asynccontextmanager
async def hollow_site(directory: Path) -> AsyncIterator[dict[str, str]]:
    """A cluster as an administrator has one; gives the environment of `make e2e`."""
    pods = directory / "pods"
    stopped = directory / "kube-scheduler-is-stopped"
    pods.mkdir()
    async with (
        EmbeddedCluster(NODES, options=OPTIONS) as cluster,
        kube_scheduler(cluster) as other,
        pod_processes(cluster, pods) as processes,
    ):
        following = asyncio.create_task(follow(directory, processes, other, stopped))
        try:
            yield {
                **access_to(cluster, directory),
                "PATH": f"{forwarding_kubectl(directory)}{os.pathsep}{os.environ['PATH']}",
                "E2E_TAKE_OVER": "1",
                "E2E_STOP_SCHEDULER": f"touch {shlex.quote(str(stopped))}",
                "E2E_START_SCHEDULER": f"rm -f {shlex.quote(str(stopped))}",
            }
        finally:
            following.cancel()
            await asyncio.wait({following})
    if not following.cancelled():
        following.result()
    killed = [status for status in processes.statuses if status not in {0, -signal.SIGTERM}]
    assert killed == [], processes.log()


def forwarding_kubectl(directory: Path) -> Path:
    """A folder with a kubectl that forwards ports to the processes of pods."""
    program = directory / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        dedent(f"""\
            #!{sys.executable}
            import os, pathlib, sys, time
            if "port-forward" not in sys.argv:
                os.execv({str(program_of(newest()))!r}, ["kubectl", *sys.argv[1:]])
            [pod] = [each.removeprefix("pod/") for each in sys.argv if each.startswith("pod/")]
            port = (pathlib.Path({str(directory)!r}) / f"{{pod}}.port").read_text()
            print(f"Forwarding from 127.0.0.1:{{port}} -> 10259", flush=True)
            while True:
                time.sleep(60)
        """)
    )
    program.chmod(0o755)
    return program.parent


async def follow(
    directory: Path, processes: PodProcesses, other: LeaseScheduler, stopped: Path
) -> None:
    """Write down the ports of the processes, and start and stop the stand-in for kube-scheduler."""
    runs = True
    while True:
        for pod, process in [*processes.running.items()]:
            port = listening_port(process.pid)
            if port is not None:
                written = directory / f"{pod}.port.new"
                written.write_text(str(port))
                written.replace(directory / f"{pod}.port")  # whoever reads it finds all of it
        if runs == stopped.exists():  # noqa: ASYNC240 a file of this machine
            await (other.stop() if runs else other.start())
            runs = not runs
        await asyncio.sleep(0.1)


def listening_port(pid: int) -> int | None:
    """The port that a process listens on."""
    listening = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTENS:
            listening[f"socket:[{fields[9]}]"] = int(fields[1].rpartition(":")[2], 16)
    with suppress(OSError):  # it has ended
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if (port := listening.get(str(file.readlink()))) is not None:
                    return port
    return None
