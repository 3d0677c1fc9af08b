"""Two journals of one cluster, the operator's and an observer's, are replayed."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.releases import DEFAULT_RELEASE, git_version
from tests.support.processes import command, fetch, running, server_of, until


def _pod(number: int) -> dict[str, Any]:
    requests = {"cpu": f"{50 + number % 7}m"}
    container = {"name": "main", "image": "pause", "resources": {"requests": requests}}
    return {
        "metadata": {"name": f"pod-{number:04d}", "labels": {"app": f"a{number % 5}"}},
        "spec": {"schedulerName": "stellwerk", "containers": [container]},
    }


async def _bound(server: str) -> int:
    listed = json.loads(await fetch(f"{server}/api/v1/namespaces/default/pods"))
    return sum(bool(pod["spec"].get("nodeName")) for pod in listed["items"])


async def _simulate(*arguments: str) -> tuple[int, str]:
    status, printed, said = await command("simulate", *arguments)
    return status, printed + said


@pytest.mark.parametrize(
    "pods",
    [150, pytest.param(5000, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
    ids=["a few", "many"],
)
async def test_a_cluster_is_recorded_and_decided_again(
    tmp_path: Path, pods: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # whole lines, however many plugins give points
    kubeconfig, own, other = tmp_path / "kubeconfig", tmp_path / "own", tmp_path / "other"
    credentials = ("--kubeconfig", str(kubeconfig))
    nodes = str(max(20, pods // 40))
    async with running(tmp_path / "cluster.log", "cluster", "--nodes", nodes, *credentials) as api:

        async def served() -> bool:
            return await asyncio.to_thread(kubeconfig.exists)

        await until(served, api)
        server = server_of(kubeconfig)
        flags = ("--bind-address", "127.0.0.1:0", "--plain-http", "--record", str(own))
        to_record = ("record", str(other), *credentials)
        observer = running(tmp_path / "record.log", *to_record, is_forked=False)
        scheduler = running(tmp_path / "run.log", "run", *credentials, *flags)
        async with observer as recorder, scheduler as operator:

            async def recording() -> bool:
                log = await asyncio.to_thread((tmp_path / "record.log").read_text)
                return "serves stellwerk" in log

            await until(recording, recorder, operator)
            path = f"{server}/api/v1/namespaces/default/pods"
            for start in range(0, pods, 50):
                await asyncio.gather(*(fetch(path, _pod(start + each)) for each in range(50)))

            async def all_bound() -> bool:
                return await _bound(server) == pods

            await until(all_bound, api, operator, recorder)
            assert await operator.stop() == 0
            assert await recorder.stop() == 0
    await _check(own, other, pods, tmp_path)


async def _check(own: Path, other: Path, pods: int, directory: Path) -> None:
    status, output = await _simulate("--replay", str(own))
    said = f"{pods} decisions, {pods} as recorded\nstellwerk: decisions follow Kubernetes "
    assert (status, output) == (0, f"{said}{git_version(DEFAULT_RELEASE)[1:]}\n")

    status, output = await _simulate("--replay", str(own), "--until", "pod-0042")
    assert status == 0
    assert "default/pod-0042 is bound on node-" in output
    assert "nodes feasible" in output
    assert "raw → normalised × weight" in output

    status, output = await _simulate("--replay", str(other))
    told = re.search(r"(\d+) bindings of another scheduler: .* on a feasible one (\d+) ", output)
    assert status == 0
    assert told is not None, output
    assert told[1] == told[2] != "0", "each chosen node takes the pod"

    profile = directory / "packing.yaml"
    profile.write_text(
        "kind: SchedulerProfile\napiVersion: scheduling.stellwerk.dev/v1alpha1\n"
        "metadata: {name: packing}\nspec:\n  schedulerName: stellwerk\n  pluginConfig:\n"
        "  - name: NodeResourcesFit\n    args: {scoringStrategy: {type: MostAllocated}}\n"
    )
    status, output = await _simulate("--replay", str(own), "--profile", str(profile))
    table = [line for line in output.splitlines() if not line.startswith("stellwerk: ")]
    recorded, packed = (line.split() for line in table[1:])
    assert (recorded[-8], packed[1], packed[2]) == (str(pods), str(pods), str(pods)), output
    assert float(packed[-3]) < float(recorded[-3]), "fewer nodes are in use"
