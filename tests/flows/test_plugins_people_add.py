"""Load, NUMA zones and quotas on a running operator, with the chart's definitions."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk.profiles.spec.profile import API_VERSION, GROUP, KIND, PLURAL
from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_plugins.load.sources import LoadWatcher, MetricsServer
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.rights import ENFORCED, Right
from tests.support.running_operator import install, is_active, operator_on, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

OPTIONS = ClusterOptions(seed=1, heartbeats=False)
TOPOLOGIES = "noderesourcetopologies.topology.node.k8s.io"
DEFINITIONS = ROOT / "charts" / "stellwerk" / "plugins"
RIGHTS: frozenset[Right] = frozenset(
    {
        ("scheduling.x-k8s.io", "elasticquotas", "list"),
        ("scheduling.x-k8s.io", "elasticquotas", "watch"),
        ("scheduling.x-k8s.io", "elasticquotas/status", "patch"),
        ("topology.node.k8s.io", "noderesourcetopologies", "list"),
        ("topology.node.k8s.io", "noderesourcetopologies", "watch"),
        ("topology.node.k8s.io", "noderesourcetopologies/status", "patch"),
    }
)
"""Those that the chart gives where its values ask for these plugins."""


def profile(plugins: JsonObject, config: Sequence[JsonObject] = ()) -> JsonObject:
    spec = {"schedulerName": "own", "plugins": plugins, "pluginConfig": list(config)}
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "own"}, "spec": spec}


def pod(name: str, namespace: str = "default", **amounts: str) -> JsonObject:
    resources = {"requests": amounts, "limits": amounts}
    container = {"name": "main", "image": "registry.example/pause", "resources": resources}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"schedulerName": "own", "containers": [container]},
    }


def play(
    nodes: Sequence[JsonObject], story: Callable[[VirtualCluster], Coroutine[Any, Any, None]]
) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes, OPTIONS, also_granted=RIGHTS) as world:
            await story(world)

    run_skipping(flow)


def define(world: VirtualCluster, plural: str) -> None:
    world.apply(yaml.safe_load((DEFINITIONS / f"{plural}.yaml").read_text()))


# --- quotas -------------------------------------------------------------------------------------

QUOTAS = profile(
    {
        "multiPoint": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
    }
)


def quota(namespace: str, **spec: dict[str, str]) -> JsonObject:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": "quota", "namespace": namespace},
        "spec": spec,
    }


def in_namespace(world: VirtualCluster, namespace: str) -> dict[str, JsonObject]:
    return {each["metadata"]["name"]: each for each in world.api.all("pods", namespace)}


def bound(world: VirtualCluster, namespace: str) -> set[str]:
    pods = in_namespace(world, namespace).items()
    return {name for name, each in pods if each["spec"].get("nodeName")}


def message(world: VirtualCluster, namespace: str, name: str) -> str:
    conditions = in_namespace(world, namespace)[name]["status"].get("conditions") or ()
    return next((each["message"] for each in conditions if each["status"] == "False"), "")


STORED = "elasticquotas.scheduling.x-k8s.io"


def used(world: VirtualCluster, namespace: str) -> JsonObject:
    (found,) = world.api.all(STORED, namespace)
    status: JsonObject = found.get("status") or {}
    return status.get("used") or {}


def begin(world: VirtualCluster) -> None:
    """Team b borrows half of what is guaranteed to team a."""
    define(world, "elasticquotas")
    for name in ("team-a", "team-b"):
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        amounts = {"min": {"cpu": "2", "memory": "8Gi"}, "max": {"cpu": "3", "memory": "16Gi"}}
        world.apply(quota(name, **amounts))
    world.apply(QUOTAS)


def test_what_was_borrowed_is_taken_back_and_the_status_says_what_is_used() -> None:
    async def story(world: VirtualCluster) -> None:
        begin(world)
        for index in range(3):
            world.apply(pod(f"b{index}", "team-b", cpu="1", memory="1Gi"))
        await world.until(lambda: len(bound(world, "team-b")) == 3)
        await world.until(lambda: used(world, "team-b").get("cpu") == "3")
        for index in range(2):
            world.apply(pod(f"a{index}", "team-a", cpu="1", memory="1Gi"))
        # The first fits beside what was borrowed; the second takes it back, at equal priority.
        await world.until(lambda: bound(world, "team-a") == {"a0", "a1"})
        assert len(in_namespace(world, "team-b")) == 2
        await world.until(lambda: used(world, "team-a").get("cpu") == "2")
        await world.until(lambda: used(world, "team-b").get("cpu") == "2")

    play([make_node("n", cpu="8")], story)


def test_a_pod_beyond_the_maximum_waits_until_quota_is_freed() -> None:
    async def story(world: VirtualCluster) -> None:
        begin(world)
        for index in range(3):
            world.apply(pod(f"b{index}", "team-b", cpu="1", memory="1Gi"))
        await world.until(lambda: len(bound(world, "team-b")) == 3)
        world.apply(pod("late", "team-b", cpu="1", memory="1Gi"))
        await world.until(
            lambda: "ElasticQuota team-b is more than Max" in message(world, "team-b", "late")
        )
        pods = world.api.kinds.resource("pods")
        delete(world.api, pods, ("team-b", "b0"), DeleteOptions(grace_period_seconds=0))
        await world.until(lambda: "late" in bound(world, "team-b"), 20)

    play([make_node("n", cpu="8")], story)


def test_pods_that_ran_before_the_quota_count_and_none_is_evicted_for_it() -> None:
    async def story(world: VirtualCluster) -> None:
        define(world, "elasticquotas")
        world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
        world.apply(QUOTAS)
        for index in range(3):
            world.apply(pod(f"a{index}", "team-a", cpu="1", memory="1Gi"))
        await world.until(lambda: len(bound(world, "team-a")) == 3)
        world.apply(quota("team-a", min={"cpu": "1", "memory": "4Gi"}))
        await world.until(lambda: used(world, "team-a").get("cpu") == "3")
        world.apply(pod("late", "team-a", cpu="1", memory="1Gi"))
        await world.until(lambda: "total ElasticQuota used" in message(world, "team-a", "late"))
        assert len(bound(world, "team-a")) == 3

    play([make_node("n", cpu="8")], story)


REFUSED_QUOTAS = {
    "below-0": {"min": {"cpu": "-1"}},
    "whole-below-0": {"max": {"memory": -1}},
    "above-max": {"min": {"cpu": "2500m"}, "max": {"cpu": 2}},
    "no-quantity": {"min": {"cpu": "plenty"}},
    "no-list": {"min": ["cpu"]},
    "endless": {"min": {f"example.com/device-{number}": "1" for number in range(65)}},
}
CPU = {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}
REFUSED_ZONES: dict[str, list[JsonObject]] = {
    "unknown-zone": [{"name": "socket-0", "type": "Node", "resources": [CPU]}],
    "number-64": [{"name": "node-64", "type": "Node", "resources": [CPU]}],
    "below-0": [{"name": "node-0", "type": "Node", "resources": [CPU | {"available": "-4"}]}],
    "whole-below-0": [{"name": "node-0", "type": "Node", "resources": [CPU | {"available": -4}]}],
    "endless": [{"name": "node-0", "type": "Node", "resources": [CPU]}] * 3_000,
}


def test_the_rules_of_the_chart_refuse_what_makes_no_sense() -> None:
    async def story(world: VirtualCluster) -> None:
        define(world, "elasticquotas")
        define(world, "noderesourcetopologies")
        kinds = world.api.kinds
        for name, spec in REFUSED_QUOTAS.items():
            made = {**quota("default"), "metadata": {"name": name}, "spec": spec}
            with pytest.raises(StatusError, match="is invalid: "):
                world.api.create(
                    kinds.resource("elasticquotas", "scheduling.x-k8s.io"), "default", made
                )
        for name, zones in REFUSED_ZONES.items():
            made = {**topology(name), "zones": zones}
            with pytest.raises(StatusError, match="is invalid: "):
                world.api.create(
                    kinds.resource("noderesourcetopologies", "topology.node.k8s.io"), "", made
                )

    play([], story)


@pytest.mark.parametrize("plural", ["elasticquotas", "noderesourcetopologies"])
def test_of_a_definition_without_rules_each_object_harms_itself_alone(plural: str) -> None:
    """As that of others, which may take anything."""

    async def story(world: VirtualCluster) -> None:
        definition = yaml.safe_load((DEFINITIONS / f"{plural}.yaml").read_text())
        anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        definition["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": anything}
        world.apply(definition)
        both = [{"name": "NodeResourceTopologyMatch"}, {"name": "CapacityScheduling"}]
        world.apply(
            profile(
                {
                    "multiPoint": {"enabled": both},
                    "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
                }
            )
        )
        wrong = REFUSED_QUOTAS if plural == "elasticquotas" else REFUSED_ZONES
        for name, value in wrong.items():
            if plural == "elasticquotas":
                world.apply(
                    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
                    quota(name) | {"spec": value},
                )
            else:
                world.apply({**topology(name), "zones": value}, make_node(name, cpu="4"))
        world.apply(pod("fine", cpu="1", memory="1Gi"))
        await world.until(lambda: bool(world.node_of("fine")), 30)

        def told() -> set[str]:
            stored = STORED if plural == "elasticquotas" else TOPOLOGIES
            return {
                each["metadata"].get("namespace") or each["metadata"]["name"]
                for each in world.api.all(stored)
                for condition in (each.get("status") or {}).get("conditions") or ()
                if condition["status"] == "False" and condition["message"]
            }

        # A quota of many devices is one that may be meant.
        mistaken = wrong.keys() - ({"endless"} if plural == "elasticquotas" else set())
        await world.until(lambda: told() == mistaken, 60)
        names = {"quota"} if plural == "elasticquotas" else mistaken
        for name in names:
            reasons = [reason for _, reason, _ in world.notes.about(name)]
            assert reasons == ["Invalid"] * (len(mistaken) if name == "quota" else 1)

    play([make_node("n", cpu="8")], story)


CHART_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "stellwerk-plugins"},
    "rules": [
        {
            "apiGroups": ["scheduling.x-k8s.io"],
            "resources": ["elasticquotas"],
            "verbs": ["get", "list", "watch"],
        },
        {
            "apiGroups": ["scheduling.x-k8s.io"],
            "resources": ["elasticquotas/status"],
            "verbs": ["patch"],
        },
    ],
}
"""What the chart's template makes where `plugins.quotas` is true."""


@pytest.mark.long
async def test_over_http_the_kind_is_watched_once_a_profile_names_the_plugin(
    tmp_path: Path,
) -> None:
    options = ClusterOptions(seed=1, heartbeats=False, identity=ENFORCED)
    async with EmbeddedCluster([make_node("n", cpu="8")], options=options) as cluster:
        kinds, api = cluster.api.kinds, cluster.api
        account = {"kind": "ServiceAccount", "name": "stellwerk", "namespace": "stellwerk"}
        role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "stellwerk-plugins"}
        binding = {
            "metadata": {"name": "stellwerk-plugins"},
            "roleRef": role,
            "subjects": [account],
        }
        api.create(kinds.resource("clusterroles", RBAC_GROUP), "", CHART_ROLE)
        api.create(kinds.resource("clusterrolebindings", RBAC_GROUP), "", binding)
        definition = yaml.safe_load((DEFINITIONS / "elasticquotas.yaml").read_text())
        api.create(
            kinds.resource("customresourcedefinitions", "apiextensions.k8s.io"), "", definition
        )
        quotas, pods = (
            kinds.resource("elasticquotas", "scheduling.x-k8s.io"),
            kinds.resource("pods"),
        )
        api.create(quotas, "default", quota("default", min={"cpu": "2", "memory": "8Gi"}))
        install(cluster)
        async with operator_on(cluster, tmp_path):
            api.create(kinds.resource(PLURAL, GROUP), "", QUOTAS)
            await until(lambda: is_active(cluster, "own"))
            for index in range(3):
                api.create(pods, "default", pod(f"p{index}", cpu="1", memory="1Gi"))

            def used_cpu() -> str:
                (found,) = api.all(STORED, "default")
                status = found.get("status") or {}
                return str((status.get("used") or {}).get("cpu"))

            await until(lambda: used_cpu() == "2")
            bound_pods = [
                each for each in api.all("pods", "default") if each["spec"].get("nodeName")
            ]
            assert len(bound_pods) == 2


def pods_on(cluster: EmbeddedCluster, namespace: str = "default") -> dict[str, str]:
    """The nodes of pods, by name; empty: it has none."""
    pods = cluster.api.all("pods", namespace)
    return {each["metadata"]["name"]: each["spec"].get("nodeName", "") for each in pods}


@asynccontextmanager
async def served(
    directory: Path, rules: Sequence[JsonObject], *nodes: JsonObject
) -> AsyncIterator[EmbeddedCluster]:
    """An operator with these rights beside those of the manifests, on a cluster over HTTP."""
    options = ClusterOptions(seed=1, heartbeats=False, identity=ENFORCED)
    async with EmbeddedCluster(nodes, options=options) as cluster:
        kinds, api = cluster.api.kinds, cluster.api
        account = {"kind": "ServiceAccount", "name": "stellwerk", "namespace": "stellwerk"}
        role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "stellwerk-plugins"}
        metadata = {"name": "stellwerk-plugins"}
        api.create(
            kinds.resource("clusterroles", RBAC_GROUP),
            "",
            {"metadata": metadata, "rules": list(rules)},
        )
        bound_to = {"metadata": metadata, "roleRef": role, "subjects": [account]}
        api.create(kinds.resource("clusterrolebindings", RBAC_GROUP), "", bound_to)
        for path in sorted(DEFINITIONS.glob("*.yaml")):
            definition = yaml.safe_load(path.read_text())
            api.create(
                kinds.resource("customresourcedefinitions", "apiextensions.k8s.io"), "", definition
            )
        install(cluster)
        async with operator_on(cluster, directory):
            yield cluster


async def serve(cluster: EmbeddedCluster, made: JsonObject) -> None:
    cluster.api.create(cluster.api.kinds.resource(PLURAL, GROUP), "", made)
    await until(lambda: is_active(cluster, "own"))


def rule(group: str, resource: str, *verbs: str) -> JsonObject:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


QUOTA_RULES = (
    rule("scheduling.x-k8s.io", "elasticquotas", "get", "list", "watch"),
    rule("scheduling.x-k8s.io", "elasticquotas/status", "patch"),
)
TOPOLOGY_RULES = (
    rule("topology.node.k8s.io", "noderesourcetopologies", "get", "list", "watch"),
    rule("topology.node.k8s.io", "noderesourcetopologies/status", "patch"),
)
LOAD_RULES = (rule("metrics.k8s.io", "nodes", "get", "list"),)


@pytest.mark.long
async def test_over_http_the_kind_goes_and_comes_while_pods_wait_for_it(tmp_path: Path) -> None:
    """Without its definition a quota limits no pod; with it again it does, without a restart."""
    options = ClusterOptions(seed=1, heartbeats=False, identity=ENFORCED)
    async with EmbeddedCluster([make_node("n", cpu="8")], options=options) as cluster:
        kinds, api = cluster.api.kinds, cluster.api
        account = {"kind": "ServiceAccount", "name": "stellwerk", "namespace": "stellwerk"}
        role = {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": "stellwerk-plugins"}
        binding = {
            "metadata": {"name": "stellwerk-plugins"},
            "roleRef": role,
            "subjects": [account],
        }
        api.create(kinds.resource("clusterroles", RBAC_GROUP), "", CHART_ROLE)
        api.create(kinds.resource("clusterrolebindings", RBAC_GROUP), "", binding)
        definitions = kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")

        def define_quota() -> None:
            api.create(
                definitions, "", yaml.safe_load((DEFINITIONS / "elasticquotas.yaml").read_text())
            )
            api.create(
                kinds.resource("elasticquotas", "scheduling.x-k8s.io"),
                "default",
                quota("default", min={"cpu": "2", "memory": "8Gi"}),
            )

        def bound() -> set[str]:
            pods = api.all("pods", "default")
            return {each["metadata"]["name"] for each in pods if each["spec"].get("nodeName")}

        define_quota()
        install(cluster)
        async with operator_on(cluster, tmp_path):
            api.create(kinds.resource(PLURAL, GROUP), "", QUOTAS)
            await until(lambda: is_active(cluster, "own"))
            pods = kinds.resource("pods")
            for index in range(3):
                api.create(pods, "default", pod(f"p{index}", cpu="1", memory="1Gi"))
            await until(lambda: len(bound()) == 2)
            for number in range(2):
                delete(api, definitions, ("", STORED), DeleteOptions())
                await until(lambda: bound() >= {"p0", "p1", "p2"})
                define_quota()
                await asyncio.sleep(3)  # the kind is found at once, and its list is short
                waiting = f"later-{number}"
                api.create(pods, "default", pod(waiting, cpu="1", memory="1Gi"))
                await asyncio.sleep(3)
                assert waiting not in bound()


@pytest.mark.long
async def test_over_http_what_was_borrowed_is_taken_back(tmp_path: Path) -> None:
    async with served(tmp_path, QUOTA_RULES, make_node("n", cpu="8")) as cluster:
        api, pods = cluster.api, cluster.api.kinds.resource("pods")
        quotas = api.kinds.resource("elasticquotas", "scheduling.x-k8s.io")
        for name in ("team-a", "team-b"):
            api.create(api.kinds.resource("namespaces"), "", {"metadata": {"name": name}})
            amounts = {"min": {"cpu": "2", "memory": "8Gi"}, "max": {"cpu": "3", "memory": "16Gi"}}
            api.create(quotas, name, quota(name, **amounts))
        await serve(cluster, QUOTAS)
        for index in range(3):
            api.create(pods, "team-b", pod(f"b{index}", "team-b", cpu="1", memory="1Gi"))
        await until(lambda: all(pods_on(cluster, "team-b").values()))
        for index in range(2):
            api.create(pods, "team-a", pod(f"a{index}", "team-a", cpu="1", memory="1Gi"))
        await until(lambda: all(pods_on(cluster, "team-a").values()))
        await until(lambda: len(pods_on(cluster, "team-b")) == 2)


@pytest.mark.long
async def test_over_http_a_pod_waits_for_a_zone_that_holds_it(tmp_path: Path) -> None:
    nodes = make_node("a", cpu="16"), make_node("b", cpu="16")
    async with served(tmp_path, TOPOLOGY_RULES, *nodes) as cluster:
        api, pods = cluster.api, cluster.api.kinds.resource("pods")
        topologies = api.kinds.resource("noderesourcetopologies", "topology.node.k8s.io")
        api.create(topologies, "", topology("a", "3", "3"))
        api.create(topologies, "", topology("b", "1", "5"))
        plugins = {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}
        over = {"name": "NodeResourceTopologyMatch", "args": {"cacheResyncPeriodSeconds": 60}}
        await serve(cluster, profile(plugins, [over]))
        api.create(pods, "default", pod("first", cpu="4", memory="1Gi"))
        await until(lambda: pods_on(cluster)["first"] == "b")
        api.create(pods, "default", pod("second", cpu="4", memory="1Gi"))

        def waits() -> bool:
            (found,) = [e for e in api.all("pods") if e["metadata"]["name"] == "second"]
            return "cannot align pod" in str(found.get("status"))

        await until(waits)
        (old,) = [e for e in api.all(TOPOLOGIES) if e["metadata"]["name"] == "a"]
        new = topology("a", "3", "6")
        api.update(topologies, ("", "a"), {**new, "metadata": old["metadata"]})
        await until(lambda: pods_on(cluster)["second"] == "a")


@pytest.mark.long
async def test_over_http_hollow_nodes_tell_their_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetricsServer, "period_seconds", 1.0)
    hot, cool = make_node("hot", cpu="8"), make_node("cool", cpu="8")
    hot["metadata"]["annotations"] = {"stellwerk.dev/usage": "cpu=7"}
    for node in (hot, cool):
        node["status"]["capacity"] = node["status"]["allocatable"]
    async with served(tmp_path, LOAD_RULES, hot, cool) as cluster:
        scores = {"disabled": [{"name": "*"}], "enabled": [{"name": "LoadVariationRiskBalancing"}]}
        await serve(cluster, profile({"score": scores}))
        pods = cluster.api.kinds.resource("pods")
        await asyncio.sleep(2.5)  # the usage is read
        for index in range(4):
            cluster.api.create(pods, "default", pod(f"p{index}", cpu="100m"))
        await until(lambda: all(pods_on(cluster).values()))
        assert set(pods_on(cluster).values()) == {"cool"}


@pytest.mark.long
async def test_over_http_a_source_dies_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LoadWatcher, "period_seconds", 1.0)
    watcher, port = Watcher(VirtualClock()), 0
    watcher.load = {"a": 90.0, "b": 30.0}

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(watcher.answer(int(time.time())))

    async def start() -> TestServer:
        app = web.Application()
        app.router.add_get("/watcher", answer)
        server = TestServer(app, port=port or None)
        await server.start_server()
        return server

    server = await start()
    port = server.port or 0
    scores = {"disabled": [{"name": "*"}], "enabled": [{"name": "LoadVariationRiskBalancing"}]}
    args = {"watcherAddress": f"http://127.0.0.1:{port}", "maxAgeSeconds": 3}
    made = profile({"score": scores}, [{"name": "LoadVariationRiskBalancing", "args": args}])
    nodes = make_node("a", cpu="64"), make_node("b", cpu="64")
    async with served(tmp_path, (), *nodes) as cluster:
        await serve(cluster, made)
        pods = cluster.api.kinds.resource("pods")

        async def placed(prefix: str) -> set[str]:
            for index in range(12):
                cluster.api.create(pods, "default", pod(f"{prefix}{index}", cpu="100m"))
            await until(lambda: all(pods_on(cluster).values()))
            return {node for name, node in pods_on(cluster).items() if name.startswith(prefix)}

        await asyncio.sleep(2.5)  # the watcher is asked
        assert await placed("cool") == {"b"}
        await server.close()
        watcher.load = {"a": 30.0, "b": 90.0}
        await asyncio.sleep(5)  # the last answer is too old by then
        assert await placed("unknown") == {"a", "b"}
        server = await start()
        await asyncio.sleep(2.5)
        assert await placed("back") == {"a"}
        await server.close()


# --- NUMA zones ---------------------------------------------------------------------------------


def topology(node: str, *free_cpus: str) -> JsonObject:
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": "cpu", "capacity": "8", "allocatable": "8", "available": cpus},
                {"name": "memory", "capacity": "9Gi", "allocatable": "9Gi", "available": "9Gi"},
            ],
        }
        for number, cpus in enumerate(free_cpus)
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "zones": zones,
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "pod"},
        ],
    }


def test_a_pod_goes_where_one_zone_holds_it_and_waits_for_such_a_zone() -> None:
    async def story(world: VirtualCluster) -> None:
        define(world, "noderesourcetopologies")
        world.apply(topology("a", "3", "3"), topology("b", "1", "5"))
        plugins = {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}
        over = {"name": "NodeResourceTopologyMatch", "args": {"cacheResyncPeriodSeconds": 60}}
        world.apply(profile(plugins, [over]))
        world.apply(pod("first", cpu="4", memory="1Gi"))
        await world.until(lambda: world.node_of("first") == "b")
        # Its zone is taken from then on, though no exporter has said so yet.
        world.apply(pod("second", cpu="4", memory="1Gi"))
        await world.until(lambda: world.why_pending("second") is not None)
        assert "cannot align pod" in str(world.why_pending("second"))
        # What an exporter writes of a node without such pods counts at once, and wakes the pod.
        world.apply(topology("a", "3", "6"))
        await world.until(lambda: world.node_of("second") == "a")

    play([make_node("a", cpu="16"), make_node("b", cpu="16")], story)


def test_a_topology_that_makes_no_sense_is_said_in_a_condition_and_one_event() -> None:
    async def story(world: VirtualCluster) -> None:
        define(world, "noderesourcetopologies")
        plugins = {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}
        world.apply(profile(plugins))
        wrong = topology("a", "3", "3")
        wrong["zones"].append(wrong["zones"][0])
        world.apply(wrong, topology("b", "3"))

        def conditions(node: str) -> list[JsonObject]:
            (found,) = [e for e in world.api.all(TOPOLOGIES) if e["metadata"]["name"] == node]
            return list((found.get("status") or {}).get("conditions") or ())

        await world.until(lambda: bool(conditions("a")), 30)
        assert conditions("a")[0]["status"] == "False"
        assert "zone node-0 is there twice" in conditions("a")[0]["message"]
        assert conditions("b") == []

        def events() -> list[str]:
            return [reason for _, reason, _ in world.notes.about("a")]

        await world.until(lambda: events() == ["Invalid"], 30)
        world.apply(pod("first", cpu="2", memory="1Gi"))
        await world.until(lambda: world.node_of("first") == "a" or world.node_of("first") == "b")
        world.apply(topology("a", "3", "3"))
        await world.until(lambda: conditions("a")[0]["status"] == "True", 30)
        assert events() == ["Invalid"]

    play([make_node("a", cpu="16"), make_node("b", cpu="16")], story)


# --- measured load ------------------------------------------------------------------------------


class Watcher:
    """A load-watcher that answers, until it does not."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.load: dict[str, float] = {}
        self.dead = False

    async def get(
        self, url: str, *, take: Callable[[object], object] | None = None, **_: Any
    ) -> object:
        if self.dead or take is None:
            raise OSError(f"cannot connect to {url}")
        return take(self.answer(int(self._clock.now().timestamp())))

    def answer(self, end_seconds: int) -> JsonObject:
        return {
            "window": {"end": end_seconds},
            "data": {"NodeMetricsMap": dict(self._metrics())},
        }

    def _metrics(self) -> Iterator[tuple[str, JsonObject]]:
        for name, value in self.load.items():
            yield name, {"metrics": [{"type": "CPU", "operator": "AVG", "value": value}]}


def load_profile_of(plugin: str) -> JsonObject:
    scores = {"disabled": [{"name": "*"}], "enabled": [{"name": plugin}]}
    args = {"name": plugin, "args": {"watcherAddress": "http://watcher:2020"}}
    return profile({"score": scores}, [args])


def test_load_decides_while_it_is_measured_and_a_dead_source_is_counted() -> None:
    async def story(world: VirtualCluster) -> None:
        watcher = Watcher(world.clock)
        world.operator.web.get = watcher.get  # type: ignore[method-assign]
        watcher.load = {"a": 90.0, "b": 30.0}
        world.apply(load_profile_of("TargetLoadPacking"))
        await world.until(lambda: age_seconds(world) >= 0)
        for index in range(3):
            world.apply(pod(f"cool{index}", cpu="100m"))
        await world.until(lambda: all(world.node_of(f"cool{index}") == "b" for index in range(3)))
        watcher.dead, watcher.load = True, {"a": 30.0, "b": 90.0}
        await world.until(lambda: failures(world) > 3, 600)
        world.apply(pod("old", cpu="100m"))
        await world.until(lambda: world.node_of("old") == "b")  # the last answer goes on to count
        watcher.dead = False
        before = failures(world)
        await world.until(lambda: fresh(world), 60)
        assert failures(world) == before
        for index in range(3):
            world.apply(pod(f"back{index}", cpu="100m"))
        await world.until(lambda: all(world.node_of(f"back{index}") == "a" for index in range(3)))

    play([make_node("a", cpu="64"), make_node("b", cpu="64")], story)


def failures(world: VirtualCluster) -> float:
    return sum(each.value for _, each in world.operator.metrics.source_failures.items())


def age_seconds(world: VirtualCluster) -> float:
    """The age of what the one source said last; -1: it was never read."""
    for (source,), each in world.operator.metrics.source_age.items():
        assert source == "load-watcher http://watcher:2020"
        return each.current()
    return -1


def fresh(world: VirtualCluster) -> bool:
    return 0 <= age_seconds(world) < 2
