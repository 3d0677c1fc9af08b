"""`stellwerk cluster --faults`, as a process."""

import asyncio
import urllib.error
from pathlib import Path

import pytest

from tests.support.processes import fetch, running, server_of, until


async def test_a_cluster_with_faults_says_its_seed_and_what_it_struck(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text(
        "faults: [{name: no nodes, fault: answer, code: 503, resources: [nodes], times: 1}]"
    )
    kubeconfig, log = tmp_path / "kubeconfig", tmp_path / "cluster.log"
    arguments = ("--kubeconfig", str(kubeconfig), "--faults", str(faults))
    async with running(log, "cluster", *arguments, is_forked=False) as cluster:

        async def in_force() -> bool:
            return "are in force; seed " in await asyncio.to_thread(log.read_text)

        await until(in_force, cluster)
        nodes = f"{server_of(kubeconfig)}/api/v1/nodes"
        with pytest.raises(urllib.error.HTTPError, match="503"):
            await fetch(nodes)
        assert b"NodeList" in await fetch(nodes)
        assert await cluster.stop() == 0
    assert "fault 1 (no nodes) struck 1 times" in log.read_text()


async def test_a_mistake_in_the_faults_is_one_line(tmp_path: Path) -> None:
    faults, log = tmp_path / "faults.yaml", tmp_path / "cluster.log"
    faults.write_text("faults: [{fault: hang, seconds: -1}]")
    async with running(log, "cluster", "--faults", str(faults)) as cluster:
        assert await asyncio.wait_for(cluster.process.wait(), 30) == 2
    (line,) = log.read_text().splitlines()
    assert line.startswith(f"stellwerk: {faults}: entry 1 (hang): seconds[0]: input should be")
