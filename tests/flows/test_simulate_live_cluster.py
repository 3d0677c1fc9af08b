"""`stellwerk simulate --kubeconfig` on a running cluster, by an account that may only list."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from stellwerk_cli.cli import main
from stellwerk_cli.commands.live_objects import read_objects_to_simulate
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.rights import (
    ENFORCED,
    NAMESPACE,
    READER,
    kubeconfig_of_reader,
    list_rules,
)

STILL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)


def cluster_of_pods() -> EmbeddedCluster:
    """Two nodes; the pods on them are of two priorities."""
    cluster = EmbeddedCluster([make_node("n1"), make_node("n2")], options=STILL)
    api = cluster.api
    classes = api.kinds.resource("priorityclasses", "scheduling.k8s.io")
    api.create(classes, "", {"metadata": {"name": "urgent"}, "value": 1000})
    pods = api.kinds.resource("pods")
    for number in range(6):
        pod = make_pod(f"p{number}", cpu="1", node_name=f"n{number % 2 + 1}")
        if number == 5:
            pod["spec"]["priorityClassName"] = "urgent"
        del pod["metadata"]["uid"]
        api.create(pods, "default", pod)
    return cluster


def in_use(output: str) -> list[str]:
    """The nodes in use of each run."""
    head, *lines = (line.split("  ") for line in output.splitlines())
    cells = [[cell.strip() for cell in line if cell.strip()] for line in (head, *lines)]
    column = cells[0].index("nodes in use")
    return [line[column] for line in cells[1:]]


@pytest.mark.parametrize(
    ("allowed", "left_out"),
    [
        pytest.param(list_rules(("", ["nodes", "pods"])), True, id="nodes and pods alone"),
        pytest.param(list_rules(("*", ["*"])), False, id="everything"),
    ],
)
async def test_who_may_list_may_simulate(
    allowed: list[JsonObject],
    left_out: bool,  # noqa: FBT001 as parametrized
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with cluster_of_pods() as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", allowed)
        before = cluster.api.store.revision
        command = ["simulate", "--kubeconfig", kubeconfig, "--profile", "default", "--jobs", "1"]
        status = await asyncio.to_thread(main, command)
        assert cluster.api.store.revision == before
    printed = capfd.readouterr()
    assert status == 0, printed
    assert in_use(printed.out) == ["2"]
    warned = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert len(warned) == left_out, warned
    assert all(
        each.startswith("decided without any PriorityClass, SchedulerProfile, Namespace")
        for each in warned
    )


async def test_groups_and_claims_are_read_as_far_as_the_cluster_has_them(tmp_path: Path) -> None:
    async with cluster_of_pods() as cluster:
        classes = cluster.api.kinds.resource("deviceclasses", "resource.k8s.io")
        cluster.api.create(classes, "", {"metadata": {"name": "gpu"}, "spec": {}})
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", list_rules(("*", ["*"])))
        objects = await asyncio.to_thread(read_objects_to_simulate, kubeconfig, None)
    (found,) = [each for each in objects if each["kind"] == "DeviceClass"]
    assert (found["metadata"]["name"], found["apiVersion"]) == ("gpu", "resource.k8s.io/v1")


async def test_who_may_not_list_pods_is_refused_in_one_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async with cluster_of_pods() as cluster:
        allowed = list_rules(("", ["nodes"]))
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", allowed)
        command = ["simulate", "--kubeconfig", kubeconfig, "--profile", "default"]
        assert await asyncio.to_thread(main, command) == 1
    printed = capfd.readouterr()
    assert "you may not list pods of the whole cluster" in printed.err
    assert printed.err.count("\n") == 1
    role, binding = yaml.safe_load_all(printed.out)
    assert role["rules"] == [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list"]}]
    account = {"kind": "ServiceAccount", "name": READER, "namespace": NAMESPACE}
    assert binding["subjects"] == [account]


@pytest.mark.parametrize(("release", "followed"), [("1.36", "1.36.2"), ("1.37", "1.37.0")])
async def test_every_command_decides_as_the_release_of_the_live_cluster(
    release: str, followed: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    options = replace(STILL, release=release)
    cluster = EmbeddedCluster([make_node("n1"), make_node("n2")], options=options)
    async with cluster:
        pods = cluster.api.kinds.resource("pods")
        for name, node in (("one", "n1"), ("two", "n2"), ("waits", None)):
            pod = make_pod(name, cpu="1", node_name=node)
            pod["metadata"].pop("uid", None)
            cluster.api.create(pods, "default", pod)
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", list_rules(("*", ["*"])))
        shapes = tmp_path / "shapes.yaml"
        shapes.write_text(json.dumps(make_node("large", cpu="8")))
        at = ["--kubeconfig", kubeconfig]
        said = f"stellwerk: decisions follow Kubernetes {followed}"
        for command in (
            ["simulate", *at, "--profile", "default", "--jobs", "1"],
            ["plan", "defrag", *at, "--free", "nodes=1", "--bare-pods", "--cordon"],
            ["plan", "fit", *at, "--for", "pending", "--shapes", str(shapes)],
        ):
            await asyncio.to_thread(main, command)
            told = capfd.readouterr().err
            assert said in told, command
            assert ("read 2 nodes and 3 pods at " in told) == (command[0] == "plan"), command
        await asyncio.to_thread(main, ["decide", *at])
        assert json.loads(capfd.readouterr().out)["compatibility"] == followed
