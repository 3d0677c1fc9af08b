"""Load, NUMA zones and quotas on a running operator, with the chart's definitions."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.clock import VirtualClock
from stellwerk.models.json_values import JsonObject
from stellwerk.models.profile import API_VERSION, GROUP, KIND, PLURAL
from stellwerk.serving.exposition import exposition_of
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.identity.rbac import RBAC_GROUP
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.rights import ENFORCED, Right
from tests.support.running_operator import install, is_active, operator_on, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

OPTIONS = ClusterOptions(seed=1, heartbeats=False)
DEFINITIONS = ROOT / "charts" / "stellwerk" / "plugins"
RIGHTS: frozenset[Right] = frozenset(
    {
        ("scheduling.x-k8s.io", "elasticquotas", "list"),
        ("scheduling.x-k8s.io", "elasticquotas", "watch"),
        ("scheduling.x-k8s.io", "elasticquotas/status", "patch"),
        ("topology.node.k8s.io", "noderesourcetopologies", "list"),
        ("topology.node.k8s.io", "noderesourcetopologies", "watch"),
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


# --- measured load ------------------------------------------------------------------------------


class Watcher:
    """A load-watcher that answers, until it does not."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.load: dict[str, float] = {}
        self.dead = False

    async def get(self, url: str, **_: Any) -> JsonObject:
        if self.dead:
            raise OSError(f"cannot connect to {url}")
        return {
            "window": {"end": int(self._clock.now().timestamp())},
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
        await world.until(
            lambda: any('source="load-watcher' in line for line in series(world, AGE_SECONDS))
        )
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


AGE_SECONDS = "stellwerk_source_age_seconds"


def series(world: VirtualCluster, name: str) -> list[str]:
    """The lines of one metric; all of them take too long to be written for every look."""
    (family,) = (each for each in world.operator.metrics.families if each.name == name)
    lines = exposition_of([family]).decode().splitlines()
    return [line for line in lines if line.startswith(f"{name}{{")]


def first(world: VirtualCluster, name: str) -> float:
    lines = series(world, name)
    return float(lines[0].rpartition(" ")[2]) if lines else -1.0


def failures(world: VirtualCluster) -> float:
    return first(world, "stellwerk_source_failures_total")


def fresh(world: VirtualCluster) -> bool:
    return 0 <= first(world, AGE_SECONDS) < 2
