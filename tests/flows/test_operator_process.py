"""`stellwerk run` against `stellwerk cluster`, each a process: the whole way of a pod, for real."""

import asyncio
import json
import socket
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.cli import UNREACHABLE, USAGE_ERROR
from tests.support.enforced_process import enforced_cluster
from tests.support.processes import fetch, running, until

_POD_CPU_MILLIS = 100


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def _pod(index: int) -> dict[str, Any]:
    requests = {"cpu": f"{_POD_CPU_MILLIS}m", "memory": "500Mi"}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "metadata": {"name": f"pod-{index:04d}"},
        "spec": {"schedulerName": "stellwerk", "containers": [container]},
    }


async def _pods(server: str) -> list[dict[str, Any]]:
    listed = json.loads(await fetch(f"{server}/api/v1/namespaces/default/pods"))
    pods: list[dict[str, Any]] = listed["items"]
    return pods


async def _create_all(server: str, pods: int) -> None:
    path = f"{server}/api/v1/namespaces/default/pods"
    for start in range(0, pods, 50):
        await asyncio.gather(*(fetch(path, _pod(index)) for index in range(start, start + 50)))


@pytest.mark.parametrize(
    ("pods", "nodes"), [(100, 20), pytest.param(500, 100, marks=pytest.mark.long)]
)
async def test_every_pod_is_bound_and_equal_nodes_share_them(
    tmp_path: Path, pods: int, nodes: int
) -> None:
    address = f"127.0.0.1:{_free_port()}"
    async with enforced_cluster(tmp_path, "--nodes", str(nodes)) as enforced:
        cluster, server, kubeconfig = enforced.process, enforced.server, enforced.kubeconfig
        async with running(
            tmp_path / "run.log",
            *(
                "run",
                "--kubeconfig",
                str(kubeconfig),
                "--bind-address",
                address,
                "--plain-http",
            ),
        ) as operator:
            await _create_all(server, pods)

            async def all_bound() -> bool:
                return all(pod["spec"].get("nodeName") for pod in await _pods(server))

            await until(all_bound, cluster, operator)
            await _check(server, address, pods, nodes)
            assert await operator.stop() == 0


async def _check(server: str, address: str, pods: int, nodes: int) -> None:
    """None lost, none twice, no node over-committed, and it is said so."""
    listed = await _pods(server)
    assert len({pod["metadata"]["uid"] for pod in listed}) == pods
    per_node = Counter(pod["spec"]["nodeName"] for pod in listed)
    assert len(per_node) == nodes, "equal nodes share equal pods"
    assert max(per_node.values()) * _POD_CPU_MILLIS <= 4000
    assert b"readyz check passed" in await fetch(f"http://{address}/readyz?verbose")

    async def counted() -> bool:
        metrics = (await fetch(f"http://{address}/metrics")).decode()
        return (
            f'scheduler_schedule_attempts_total{{profile="stellwerk",result="scheduled"}} {pods}.0'
            in metrics
            and 'scheduler_pending_pods{queue="active"} 0.0' in metrics
        )

    await until(counted)

    async def told() -> bool:
        listed = json.loads(
            await fetch(f"{server}/apis/events.k8s.io/v1/namespaces/default/events")
        )
        notes = [event["note"] for event in listed["items"] if event["reason"] == "Scheduled"]
        return len(notes) == pods and all("Successfully assigned" in note for note in notes)

    await until(told)


async def test_an_unreachable_cluster_is_one_clear_line_of_a_command(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{_free_port()}"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    kubeconfig.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [cluster],
                "contexts": [context],
                "users": [{"name": "u", "user": {}}],
                "current-context": "c",
            }
        )
    )
    log = tmp_path / "run.log"
    await _expect_status(UNREACHABLE, log, "version", "--kubeconfig", str(kubeconfig))
    assert "no usable Kubernetes API at" in log.read_text(encoding="utf-8")


async def test_a_kubeconfig_that_is_none(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    await _expect_status(USAGE_ERROR, log, "run", "--kubeconfig", str(tmp_path / "missing"))
    assert "missing" in log.read_text(encoding="utf-8")


async def _expect_status(expected: int, log: Path, *arguments: str) -> None:
    async with running(log, *arguments) as process:
        status = await asyncio.wait_for(process.process.wait(), 30)
    text = await asyncio.to_thread(log.read_text, encoding="utf-8")
    assert status == expected, text
    assert "Traceback" not in text
    assert [line for line in text.splitlines() if line.startswith("stellwerk: ")]
