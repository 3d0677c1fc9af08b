"""`stellwerk bench` measures on nodes of its own, and leaves nothing of them in a cluster."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.commands.bench_objects import LABEL
from stellwerk_cli.commands.schemas import document
from stellwerk_cli.demo.sandbox import open_sandbox
from stellwerk_cli.embedded_cluster import api_features
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.kubeconfig import KubeconfigFile
from tests.support.json_schema import violations
from tests.support.processes import command, running, until
from tests.support.repository import ROOT
from tests.support.running_operator import until as until_true
from tests.support.shell_steps import Command, sections, shell

SMALL = ("--nodes", "3", "--pods", "6", "--yes")


@asynccontextmanager
async def bare_cluster(folder: Path) -> AsyncIterator[tuple[EmbeddedCluster, tuple[str, ...]]]:
    """A cluster without a scheduler, and the arguments that name it."""
    options = ClusterOptions(
        chosen_controllers=("namespace-controller", "serviceaccount-controller"), kubelet=None
    )
    async with EmbeddedCluster(1, options=options) as cluster:
        cluster.write_kubeconfig(folder / "kubeconfig")
        yield cluster, ("--kubeconfig", str(folder / "kubeconfig"))


def labelled(cluster: EmbeddedCluster) -> list[str]:
    """What is there of any run."""
    return [
        entry.obj["metadata"]["name"]
        for plural in ("nodes", "namespaces", "priorityclasses.scheduling.k8s.io")
        for entry in cluster.store.collection(plural).entries()
        if LABEL in (entry.obj["metadata"].get("labels") or {})
    ]


async def test_a_second_scheduler_is_measured_beside_the_first_on_own_nodes(
    tmp_path: Path,
) -> None:
    file = KubeconfigFile(tmp_path / "kubeconfig")
    async with open_sandbox(2, file, features=api_features()) as sandbox:
        seen: list[tuple[str, str]] = []

        def on_pod(event: Any) -> None:
            spec = event.entry.obj["spec"]
            if spec.get("nodeName"):
                seen.append((spec["schedulerName"], spec["nodeName"]))

        made: list[dict[str, Any]] = []
        sandbox.cluster.store.collection("pods").listeners.append(on_pod)
        sandbox.cluster.store.collection("nodes").listeners.append(
            lambda event: made.append(event.entry.obj)
        )
        schedulers = ("--scheduler", "stellwerk", "--scheduler", "default-scheduler")
        workloads = ("--workload", "anti-affinity", "--workload", "preemption")
        words = ("bench", "--kubeconfig", str(file.path), *schedulers, *workloads, *SMALL)
        page = tmp_path / "bench.html"
        status, printed, said = await command(*words, "-o", "json", "--html", str(page))
        assert status == 0, said
        assert labelled(sandbox.cluster) == []
    answer = json.loads(printed)
    schemas = document()["components"]["schemas"]
    assert list(violations(answer, schemas["BenchAnswer"], schemas)) == []
    runs = [(each["workload"], each["scheduler"], each["bound"]) for each in answer["runs"]]
    assert runs == [
        (workload, scheduler, 3)
        for workload in ("anti-affinity", "preemption")
        for scheduler in ("stellwerk", "default-scheduler")
    ]
    text = page.read_text()
    assert "<h1>Benchmark</h1>" in text
    assert text.count("<meter ") == 4, "a bar for each workload and scheduler"
    assert "OF THE FIRST" in text
    assert "http" not in text
    assert {scheduler for scheduler, _ in seen} == {"stellwerk", "default-scheduler"}
    assert all(node.startswith("bench-") for _, node in seen)
    own = [each for each in made if each["metadata"]["name"].startswith("bench-")]
    assert all(LABEL in {taint["key"] for taint in each["spec"]["taints"]} for each in own)
    assert not any("kubernetes.io/os" in each["metadata"]["labels"] for each in own)
    assert own


async def test_pods_that_nobody_binds_are_a_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    async with bare_cluster(tmp_path) as (cluster, access):
        words = ("bench", *access, "--workload", "basic", *SMALL, "--timeout", "1s")
        status, printed, said = await command(*words)
        assert (status, said) == (1, "")
        assert [each.split() for each in printed.splitlines()[1:]] == [
            ["WORKLOAD", "SCHEDULER", "BOUND", "PODS/S", "P50", "ms", "P99", "ms"],
            ["basic", "stellwerk", "0", "of", "6"],
        ]
        assert labelled(cluster) == []


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"providerID": "aws:///zone/i-1"}, id="of a cloud"),
        pytest.param(
            {
                "taints": [
                    {
                        "key": "node.cloudprovider.kubernetes.io/uninitialized",
                        "effect": "NoSchedule",
                    }
                ]
            },
            id="not yet known to the cloud",
        ),
    ],
)
async def test_where_a_cloud_would_delete_nodes_none_are_made(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    async with bare_cluster(tmp_path) as (cluster, access):
        nodes = cluster.api.kinds.resource("nodes")
        cluster.api.create(nodes, "", {"metadata": {"name": "real"}, "spec": spec})
        status, printed, said = await command("bench", *access, *SMALL)
        assert (status, printed, said.count("\n")) == (2, "", 1)
        assert "node real has " in said
        assert "the cloud's controller would delete the nodes" in said
        assert labelled(cluster) == []


async def test_what_a_killed_run_has_left_is_named_and_deleted_by_clean(tmp_path: Path) -> None:
    async with bare_cluster(tmp_path) as (cluster, access):
        assert await command("bench", *access, "--clean") == (
            0,
            "no run has left objects behind\n",
            "",
        )
        words = ("bench", *access, "--workload", "basic", *SMALL)
        async with running(tmp_path / "log", *words) as bench:
            await until(lambda: pods_wait(cluster, 6), bench)
            bench.process.kill()
            await bench.process.wait()
        nodes, (namespace,) = labelled(cluster)[:3], labelled(cluster)[3:4]
        assert all(each.startswith("bench-") for each in (*nodes, namespace))
        # Another client labels a node and a namespace of its own, and takes the name of a node.
        label = {"metadata": {"labels": {LABEL: nodes[0][: -len("-00000")]}}}
        of_nodes, of_namespaces = map(cluster.api.kinds.resource, ("nodes", "namespaces"))
        cluster.api.patch(of_nodes, ("", "node-1"), label)
        cluster.api.patch(of_namespaces, ("", "default"), label)
        status, printed, said = await command(*words)
        assert (status, printed) == (2, "")
        left = f"3 nodes ({nodes[0]}, …), namespace {namespace} (6 pods)"
        assert f"has left {left}, or is still running; " in said
        assert "stellwerk bench --clean deletes them" in said
        status, printed, said = await command("bench", *access, "--clean", "-o", "name")
        assert status == 2, said
        assert printed.splitlines() == [
            *(f"node/{each}" for each in nodes),
            f"namespace/{namespace}",
        ]
        status, printed, said = await command("bench", *access, "--clean", "--yes")
        assert (status, printed) == (0, f"deleted: {left}\n")
        assert said == (
            "stellwerk: not deleted: node/node-1, namespace/default: the label "
            "stellwerk.dev/bench alone does not show that a run created it\n"
        )
        assert labelled(cluster) == ["node-1", "default"]
        assert records(cluster) == []


def records(cluster: EmbeddedCluster) -> list[str]:
    """Names of the ConfigMaps in which runs wrote down what they made."""
    found = cluster.store.collection("configmaps").entries()
    names = [each.obj["metadata"]["name"] for each in found]
    return [name for name in names if name.startswith("stellwerk-bench-")]


async def pods_wait(cluster: EmbeddedCluster, number: int) -> bool:
    pods = cluster.store.collection("pods").entries()
    return sum(not each.obj["spec"].get("nodeName") for each in pods) == number


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
async def test_a_signal_leaves_nothing(number: signal.Signals, tmp_path: Path) -> None:
    async with bare_cluster(tmp_path) as (cluster, access):
        words = ("bench", *access, "--workload", "preemption", "--nodes", "20", "--yes")
        async with running(tmp_path / "log", *words, "--pods", "20") as bench:
            await until(lambda: pods_wait(cluster, 20), bench)
            assert len(labelled(cluster)) == 22
            bench.process.send_signal(number)
            assert await asyncio.wait_for(bench.process.wait(), 30) == 130
        assert labelled(cluster) == records(cluster) == []
        await until_true(lambda: not cluster.store.collection("pods").entries())


async def test_the_embedded_cluster_has_no_other_scheduler() -> None:
    assert await command("bench", "--scheduler", "default-scheduler") == (
        2,
        "",
        "stellwerk: --scheduler needs a cluster: name one with --kubeconfig or --context\n",
    )
    status, _, said = await command("bench", "--nodes", "2", "--pods", "21")
    assert (status, said) == (2, "stellwerk: --pods 21: 2 nodes take 20, 10 each\n")


async def test_a_page_takes_the_place_of_no_file_of_another_making(tmp_path: Path) -> None:
    notes = tmp_path / "notes.html"
    notes.write_text("<p>mine")
    status, _, said = await command("bench", "--html", str(notes))
    assert status == 2
    assert said == f"stellwerk: --html {notes}: exists and was not written by Stellwerk\n"
    assert notes.read_text() == "<p>mine"


@pytest.mark.long
async def test_every_workload_is_bound_on_the_embedded_cluster_and_its_cost_is_told() -> None:
    status, printed, said = await command(
        "bench", "--nodes", "9", "--pods", "27", "--rate", "200", "-o", "json"
    )
    assert status == 0, said
    answer = json.loads(printed)
    assert len(answer["runs"]) == 9
    assert answer["rate"] == 200
    for each in answer["runs"]:
        assert each["bound"] == each["pods"], each
        assert each["cpuMillisecondsPerPod"] > 0
        assert each["peakMib"] > 10


@pytest.mark.long
async def test_the_small_example_of_the_page_is_a_matter_of_seconds(tmp_path: Path) -> None:
    (steps,) = sections(ROOT / "docs" / "performance.md").values()
    async with shell(tmp_path, {}, Path(sys.executable).parent / "stellwerk") as opened:
        for step in steps:
            assert isinstance(step, Command)
            await opened.take(step)
