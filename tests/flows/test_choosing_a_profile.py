"""docs/choosing-a-profile.md: its profile, its commands on a live cluster, and their answers."""

import asyncio
import os
import re
import shlex
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.flows.example_cluster import nodes, pods
from tests.support.kubectls import newest, program_of
from tests.support.repository import ROOT
from tests.support.shell_steps import Command, sections, shell

DOCUMENT = ROOT / "docs" / "choosing-a-profile.md"
STILL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


def profile_of_the_page() -> str:
    blocks: list[str] = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    [profile] = blocks
    return profile


def steps_of_the_page() -> list[Command]:
    steps = [step for section in sections(DOCUMENT).values() for step in section]
    return [step for step in steps if isinstance(step, Command)]


async def test_from_a_live_cluster_to_how_many_nodes_fewer_another_profile_would_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program = program_of(newest())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "packing.yaml").write_text(profile_of_the_page())
    (tmp_path / ".kube").mkdir()
    async with EmbeddedCluster(nodes(), options=STILL) as cluster:
        kind = cluster.api.kinds.resource("pods")
        for pod in pods():
            cluster.api.create(kind, "default", pod)
        cluster.write_kubeconfig(tmp_path / ".kube" / "config")
        written, *simulated = steps_of_the_page()
        async with shell(tmp_path, {}, program) as opened:
            await opened.take(written)
        assert len(simulated) == 2
        for step in simulated:
            # In this process: two interpreters less, and as many for its runs.
            name, *arguments = map(os.path.expanduser, shlex.split(step.text))
            assert name == "stellwerk"
            assert await asyncio.to_thread(main, [*arguments, "--jobs", "1"]) == 0
            step.check(capsys.readouterr().out)
