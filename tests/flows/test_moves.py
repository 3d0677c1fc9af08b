"""`stellwerk plan defrag --apply` on a running cluster: pods move, and a refusal ends it."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from stellwerk.models.pod import parse_pod
from stellwerk_cli.cli import main
from stellwerk_cli.commands.moving import carry_out
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.current_placement import Rescheduled
from stellwerk_simulation.defragmentation import DefragPlan
from tests.support.builders import make_node
from tests.support.moving import budget, replica
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, until

NAME = "stellwerk"
PROFILE = {
    "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": NAME},
    "spec": {"schedulerName": NAME},
}
STILL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)


def replica_set(name: str) -> JsonObject:
    """One pod."""
    container = {"name": "c", "image": "registry.example/app:1"}
    requests = {"resources": {"requests": {"cpu": "1"}}}
    labels = {"app": name}
    spec = {
        "schedulerName": NAME,
        "containers": [container | requests],
        "terminationGracePeriodSeconds": 0,
    }
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def nodes_of_pods(cluster: EmbeddedCluster) -> list[str]:
    pods = cluster.api.store.collection("pods").entries()
    return sorted((pod.obj["spec"].get("nodeName") or "") for pod in pods)


@pytest.mark.slow
async def test_a_node_is_freed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = EmbeddedCluster(2, options=ClusterOptions(identity=ENFORCED))
    install(cluster, PROFILE)
    async with cluster, operator_on(cluster, tmp_path):
        await until(lambda: is_active(cluster, NAME))
        sets = cluster.api.kinds.resource("replicasets", "apps")
        for name in ("one", "two"):
            cluster.api.create(sets, "default", replica_set(name))
        await until(lambda: Counter(nodes_of_pods(cluster)) == {"node-1": 1, "node-2": 1})
        kubeconfig = tmp_path / "tester"
        cluster.write_kubeconfig(kubeconfig)
        command = ["plan", "defrag", "--kubeconfig", str(kubeconfig), "--free", "nodes=1"]
        before = nodes_of_pods(cluster)
        tried = await asyncio.to_thread(main, [*command, "--cordon", "--apply", "--dry-run"])
        said = capsys.readouterr().err
        assert (tried, nodes_of_pods(cluster)) == (0, before), said
        assert "would be cordoned" in said
        assert "would be evicted from" in said
        status = await asyncio.to_thread(main, [*command, "--cordon", "--apply", "--yes"])
        printed = capsys.readouterr()
        assert status == 0, printed
        assert "the move is done" in printed.err
        (full,) = set(nodes_of_pods(cluster))
        await back_again(cluster, kubeconfig, full)


async def back_again(cluster: EmbeddedCluster, kubeconfig: Path, full: str) -> None:
    """One of both pods moves to the empty node, its own one cordoned for just so long."""
    kind = cluster.api.kinds.resource("nodes")
    (empty,) = {"node-1", "node-2"} - {full}

    def spec(name: str) -> JsonObject:
        found: JsonObject = cluster.api.get(kind, "", name).obj.get("spec") or {}
        return found

    assert spec(empty)["unschedulable"] is True
    cluster.api.patch(kind, ("", empty), {"spec": {"unschedulable": None}})
    await until(lambda: not spec(empty).get("taints"))
    pod = parse_pod(cluster.api.store.collection("pods").entries()[0].obj)
    plan = DefragPlan([empty], [], [Rescheduled(pod, empty, (), held=True)], Counter(), 0)
    assert await asyncio.to_thread(carry_out, str(kubeconfig), None, plan, 60.0) == 0
    assert nodes_of_pods(cluster) == ["node-1", "node-2"]
    assert not spec(full).get("unschedulable")
    assert not spec(full).get("taints")


async def test_a_refused_eviction_ends_the_moves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [make_node("a"), make_node("b")]
    async with EmbeddedCluster(nodes, options=STILL) as cluster:
        kinds = cluster.api.kinds
        made = [
            cluster.api.create(kinds.resource("pods"), "default", replica(name, "a")).obj
            for name in ("x", "y")
        ]
        for name in ("x", "y"):
            running = {"status": {"phase": "Running"}}
            cluster.api.patch(
                kinds.resource("pods"), ("default", name), running, subresource="status"
            )
        # No controller has counted what it allows: the API refuses.
        cluster.api.create(
            kinds.resource("poddisruptionbudgets", "policy"), "default", budget("web", 1)
        )
        kubeconfig = tmp_path / "kubeconfig"
        cluster.write_kubeconfig(kubeconfig)
        moves = [Rescheduled(parse_pod(pod), "b", ()) for pod in made]
        plan = DefragPlan(["a"], ["a"], moves, Counter(), 0)

        def applied(*, dry_run: bool) -> int:
            return carry_out(str(kubeconfig), None, plan, 5.0, dry_run=dry_run)

        assert await asyncio.to_thread(applied, dry_run=True) == 1
        printed = capsys.readouterr().err
        assert printed.count("would not be evicted: ") == 2, "each is tried"
        assert await asyncio.to_thread(applied, dry_run=False) == 1
        printed = capsys.readouterr().err
        assert "a is cordoned" in printed
        assert "stopped after 0 of 2 moves" in printed
        assert "429" in printed
        assert nodes_of_pods(cluster) == ["a", "a"]
