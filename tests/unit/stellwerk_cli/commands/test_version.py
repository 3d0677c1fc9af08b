"""The versions that are printed, with a cluster and without one."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from stellwerk import __version__
from stellwerk_cli.cli import UNREACHABLE, main
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster

BARE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


async def test_both_versions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    async with EmbeddedCluster(0, options=BARE) as cluster:
        cluster.write_kubeconfig(kubeconfig)
        command = ["version", "--kubeconfig", str(kubeconfig)]
        assert await asyncio.to_thread(main, command) == 0
        client, server, release, *kinds = capsys.readouterr().out.splitlines()
        assert client == f"Client Version: v{__version__}"
        assert await asyncio.to_thread(main, [*command, "-o", "json"]) == 0
        answer = json.loads(capsys.readouterr().out)
    assert release == "decisions follow Kubernetes 1.36.2 unless a profile names a release"
    assert "ResourceClaim: resource.k8s.io/v1" in kinds
    [groups] = [line for line in kinds if line.startswith("PodGroup: ")]
    why = (
        "the API serves no podgroups of scheduling.k8s.io: pods that name a group wait, and say so"
    )
    assert groups == f"PodGroup: off, {why}"
    assert answer["compatibility"] == "1.36.2"
    assert answer["versionsInUse"]["DeviceClass"] == "resource.k8s.io/v1"
    assert answer["off"]["PodGroup"] == why
    assert server == f"Server Version: {answer['serverVersion']['gitVersion']}"
    assert answer["clientVersion"] == {"gitVersion": f"v{__version__}"}
    assert await asyncio.to_thread(main, command) == UNREACHABLE
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [client]
    assert printed.err.startswith("stellwerk: no usable Kubernetes API at ")


def test_of_the_client_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client", "-o", "yaml"]) == 0
    answer = yaml.safe_load(capsys.readouterr().out)
    assert answer["kind"] == "Version"
    assert answer["clientVersion"] == {"gitVersion": f"v{__version__}"}
