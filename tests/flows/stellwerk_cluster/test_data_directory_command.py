"""`stellwerk cluster --data-dir`, as a process that is stopped, killed and started again."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tests.support.processes import Process, fetch, running, server_of, until

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonObject


class Started:
    """One process on a data directory after another."""

    def __init__(self, directory: Path) -> None:
        self.data = directory / "data"
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "cluster.log"
        self.arguments = ("cluster", "--kubeconfig", str(self.kubeconfig), "--nodes", "1")

    async def serving(self, process: Process) -> None:
        async def served() -> bool:
            return await asyncio.to_thread(self.kubeconfig.exists)

        await until(served, process)

    async def names(self, plural: str) -> set[str]:
        listed = await fetch(f"{server_of(self.kubeconfig)}/api/v1/{plural}")
        items: list[JsonObject] = orjson.loads(listed)["items"]
        return {item["metadata"]["name"] for item in items}


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_a_cluster_finds_its_objects_again(tmp_path: Path, end: str) -> None:
    started = Started(tmp_path)
    data = ("--data-dir", str(started.data))
    async with running(started.log, *started.arguments, *data) as first:
        await started.serving(first)
        namespaces = f"{server_of(started.kubeconfig)}/api/v1/namespaces"
        await fetch(namespaces, {"metadata": {"name": "kept"}})
        if end == "stopped":
            assert await first.stop() == 0
        else:
            first.process.kill()
            await first.process.wait()
            started.kubeconfig.unlink()
    if end == "stopped":
        assert f"kept in {started.data}: " in started.log.read_text()
    async with running(started.log, *started.arguments, *data) as second:
        await started.serving(second)
        assert "kept" in await started.names("namespaces")
        assert await started.names("nodes") == {"node-1"}
        assert await second.stop() == 0


async def test_a_second_cluster_on_the_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    started = Started(tmp_path)
    data = ("--data-dir", str(started.data))
    second_log = tmp_path / "second.log"
    async with running(started.log, *started.arguments, *data) as first:
        await started.serving(first)
        async with running(second_log, "cluster", *data) as second:
            assert await asyncio.wait_for(second.process.wait(), 30) == 2
        assert await first.stop() == 0
    (line,) = second_log.read_text().splitlines()
    assert line.startswith(f"stellwerk: --data-dir {started.data}: in use by process ")


async def test_without_a_directory_the_last_word_says_what_is_gone(tmp_path: Path) -> None:
    started = Started(tmp_path)
    async with running(started.log, *started.arguments) as process:
        await started.serving(process)
        assert await process.stop() == 0
    assert "objects; --data-dir would keep them" in started.log.read_text()
