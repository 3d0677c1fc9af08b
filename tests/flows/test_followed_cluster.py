"""`stellwerk page --local`: a cluster that another scheduler serves, followed by watches.

The other scheduler is played by pods that are created with their nodes.
"""

import asyncio
import gc
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from unittest.mock import patch

import aiohttp
import pytest
import yaml

from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.nodes import NodesPage
from stellwerk.answers.observed import ObservedPage, ObservedProfile
from stellwerk.answers.pod import PodExplanation
from stellwerk.answers.profiles import ProfilesPage
from stellwerk.answers.queue import QueuePage
from stellwerk.client.operator_port import OperatorPort
from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cli.commands.explained_pod import print_explanation
from stellwerk_cli.commands.printer import Printer
from stellwerk_cli.reading.followed import (
    ClusterToFollow,
    FollowedCluster,
    follow_cluster,
    private_port,
)
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.binding import bind
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.processes import command, running
from tests.support.rights import ENFORCED, READER, asked_rights, kubeconfig_of_reader
from tests.support.running_operator import install, until

STILL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
VERBS = ["get", "list", "watch"]
EVERYTHING = [{"apiGroups": ["*"], "resources": ["*"], "verbs": VERBS}]
NODES_AND_PODS = [{"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": VERBS}]


def cluster_of(*pods: JsonObject) -> EmbeddedCluster:
    """Three nodes of 4 CPU and some pods."""
    cluster = EmbeddedCluster([make_node(f"n{number}") for number in range(3)], options=STILL)
    for pod in pods:
        add_pod(cluster, pod)
    return cluster


def add_pod(cluster: EmbeddedCluster, pod: JsonObject) -> None:
    """Create a pod, with its node if it has one."""
    pod["metadata"].pop("uid", None)
    cluster.api.create(cluster.api.kinds.resource("pods"), pod["metadata"]["namespace"], pod)


@asynccontextmanager
async def followed(kubeconfig: str) -> AsyncIterator[tuple[FollowedCluster, OperatorPort]]:
    """Yield the cluster, read, and its port."""
    stop = asyncio.Event()
    # It takes the collector for its own process's.
    with patch.object(gc, "freeze"):
        async with _following(kubeconfig, stop) as found:
            yield found


@asynccontextmanager
async def _following(
    kubeconfig: str, stop: asyncio.Event
) -> AsyncIterator[tuple[FollowedCluster, OperatorPort]]:
    async with follow_cluster(ClusterToFollow(kubeconfig)) as cluster:
        task = asyncio.create_task(cluster.run(stop, stop.set))
        try:
            async with asyncio.timeout(60):
                await cluster.filled()
            async with private_port(cluster) as port:
                yield cluster, port
        finally:
            stop.set()
            await task


async def test_the_page_of_a_cluster_without_an_operator_follows_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pods = (make_pod("runs", cpu="1", node_name="n0"), make_pod("large", cpu="9"))
    async with cluster_of(*pods) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        with asked_rights(monkeypatch, READER) as asked:
            async with followed(kubeconfig) as (followed_cluster, port):
                profiles = await port.get("/profiles", ProfilesPage)
                large = await port.get("/explain/default/large", PodExplanation)
                queue = await port.get("/queue", QueuePage)
                nodes = await port.get("/nodes?totals=yes", NodesPage)
                add_pod(cluster, make_pod("later", cpu="1", node_name="n1"))
                await until(lambda: _is_bound(followed_cluster, "later"))
    assert [each.scheduler_name for each in profiles.items] == ["default-scheduler"]
    assert large.would_fit
    assert queue.total == 1
    assert nodes.total == 3
    assert nodes.totals is not None
    assert nodes.totals.requested["cpu"] == 1000
    verbs = {verb for _, resource, verb in asked.allowed if "reviews" not in resource}
    assert verbs <= {*VERBS}
    reviews = {(resource, verb) for _, resource, verb in asked.allowed if "reviews" in resource}
    assert reviews == {("selfsubjectaccessreviews", "create")}
    assert not {right for right in asked.refused if right[2] not in VERBS}


@pytest.mark.long
async def test_bindings_of_the_other_scheduler_are_compared_and_explained(tmp_path: Path) -> None:
    """The other scheduler binds one pod where we would, and one where another pod runs already."""
    pods = (make_pod("runs", cpu="3", node_name="n0"), make_pod("web", cpu="500m"))
    async with cluster_of(*pods, make_pod("crowded", cpu="500m")) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        async with followed(kubeconfig) as (followed_cluster, port):
            await until(lambda: _observed(followed_cluster).decisions == 2)
            waiting = await port.get("/explain/default/web", PodExplanation)
            queue = await port.get("/queue?queue=observed", QueuePage)
            _bind(cluster, "web", "n1")
            await until(lambda: _observed(followed_cluster).compared == 1)
            _bind(cluster, "crowded", "n0")
            await until(lambda: _observed(followed_cluster).compared == 2)
            page = await port.get("/observed", ObservedPage)
            web = await port.get("/explain/default/web", PodExplanation)
            crowded = await port.get("/explain/default/crowded", PodExplanation)
            runs = await port.get("/explain/default/runs", PodExplanation)
            decisions = await port.get("/decisions", DecisionsPage)
    assert queue.total == 2
    assert (waiting.observing, waiting.would_get_node in {"n1", "n2"}) == (
        "default-scheduler",
        True,
    )
    (observed,) = page.items
    assert observed.scheduler_name == "default-scheduler"
    assert observed.counts.equal + observed.counts.differs == 2
    assert web.comparison is not None
    assert web.comparison.sentence() == "equal: n1 is among our 2 best nodes"
    assert crowded.comparison is not None
    assert crowded.comparison.result == "differs"
    assert crowded.comparison.sentence().startswith("differs: our best is n2 with ")
    assert runs.comparison is None
    assert (runs.note or "").startswith("its binding was not compared: ")
    assert [each.pod for each in decisions.observed or ()] == ["default/crowded", "default/web"]
    lines = explained(crowded)
    assert "observing default-scheduler: nothing is written" in lines
    assert any(line.startswith("default-scheduler bound it to n0 ") for line in lines)


def _observed(cluster: FollowedCluster) -> ObservedProfile:
    (found,) = cluster.operator.observer.described(0)
    return found


def _bind(cluster: EmbeddedCluster, name: str, node: str) -> None:
    """Bind a pod, as another scheduler does."""
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    bind(cluster.api, cluster.api.kinds.resource("pods"), ("default", name), binding)


def explained(pod: PodExplanation) -> list[str]:
    """The lines of `stellwerk explain`."""
    output = io.StringIO()
    print_explanation(pod, Printer(output, width=200))
    return output.getvalue().splitlines()


def _is_bound(cluster: FollowedCluster, name: str) -> bool:
    return any(each.name == name for each in cluster.operator.world.cache.pods())


async def test_a_user_who_sees_one_namespace_is_told_which_rights_are_missing(
    tmp_path: Path,
) -> None:
    async with cluster_of() as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", [])
        status, printed, said = await command("page", "--local", "--kubeconfig", kubeconfig)
    assert status == 1
    assert said == (
        "stellwerk: you may not list pods of the whole cluster, and nothing can be decided without "
        "nodes and the pods of all namespaces; the ClusterRole on standard output gives the rights "
        "to follow both\n"
    )
    role, binding = yaml.safe_load_all(printed)
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["list", "watch"]}
    ]
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": READER, "namespace": "stellwerk"}
    ]


async def test_kinds_that_may_not_be_seen_are_named_with_what_follows(tmp_path: Path) -> None:
    async with cluster_of(make_pod("large", cpu="9")) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", NODES_AND_PODS)
        async with followed(kubeconfig) as (followed_cluster, port):
            lines = list(followed_cluster.lines())
            profiles = await port.get("/profiles", ProfilesPage)
    plugins = {name for each in profiles.items[0].plugins.values() for name in each}
    assert "VolumeBinding" not in plugins
    assert "NodeResourcesFit" in plugins
    assert (
        "without StorageClass: you may not list storageclasses; volumes are not looked at, so that "
        "a node that cannot have them may count as one that fits"
    ) in lines


async def test_profiles_of_the_cluster_observe_and_others_are_assumed(tmp_path: Path) -> None:
    profile = make_profile("packing", schedulerName="packing", allowBeside=True)
    profile["metadata"]["labels"] = {"scheduling.stellwerk.dev/operator": "other"}
    async with cluster_of() as cluster:
        install(cluster, profile)
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        async with followed(kubeconfig) as (followed_cluster, port):
            served = followed_cluster.operator.world.profiles.served
            assert {name: each.observes for name, each in served.items()} == {
                "packing": True,
                "default-scheduler": True,
            }
            kind = cluster.api.kinds.resource(PLURAL, GROUP)
            taken = make_profile("own", schedulerName="default-scheduler")
            taken["metadata"].pop("uid", None)
            cluster.api.create(kind, "", taken)
            await until(lambda: served["default-scheduler"].loaded.name == "own")
            delete(cluster.api, kind, ("", "own"), DeleteOptions())
            await until(lambda: served["default-scheduler"].loaded.name != "own")
            names = [each.name for each in (await port.get("/profiles", ProfilesPage)).items]
    assert sorted(names) == ["assumed:default-scheduler", "packing"]
    assert "SchedulerProfiles of the cluster are followed: packing" in followed_cluster.lines()


@pytest.mark.long
async def test_the_command_serves_until_it_is_stopped(tmp_path: Path) -> None:
    async with cluster_of(make_pod("large", cpu="9")) as cluster:
        kubeconfig = kubeconfig_of_reader(cluster, tmp_path / "reader", EVERYTHING)
        log = tmp_path / "page.log"
        words = ("page", "--local", "--kubeconfig", kubeconfig)
        async with running(log, *words) as page:

            def is_open() -> bool:
                return "Stop: Ctrl-C" in log.read_text()

            await until(is_open)
            url = next(line for line in log.read_text().splitlines() if line.startswith("Page: "))
            jar = aiohttp.CookieJar(unsafe=True)
            async with (
                aiohttp.ClientSession(cookie_jar=jar) as session,
                session.get(url.removeprefix("Page: ")) as answer,
            ):
                text = await answer.text()
                assert answer.status == 200, text
            assert "nothing is written" in text
            assert "decided as kube-scheduler 1.36.2 is assumed to" in text
            assert await page.stop() == 0
    assert "It follows the cluster with your credentials, and writes nothing." in log.read_text()
    assert "WARNING" not in log.read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--local", "--url", "http://127.0.0.1:1"], "--local asks no operator"),
        (["--local", "--lease", "a/b"], "--local asks no operator"),
        (["--config", "x.yaml"], "--config is for --local"),
    ],
)
async def test_arguments_that_do_not_go_together_are_refused(words: list[str], said: str) -> None:
    status, _, printed = await command("page", *words)
    assert (status, said in printed) == (2, True)
