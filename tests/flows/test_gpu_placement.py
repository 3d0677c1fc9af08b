"""GPU profiles on a running operator: placements of a simulation, devices in annotations."""

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import yaml

from stellwerk.models.gpu import DEVICE_IDS, WHOLE, parse_device_ids
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import API_VERSION, KIND, load_profile
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.arrivals import Arrivals, inflated, typical_pods
from stellwerk_simulation.cluster import node_manifest, pod_manifest
from stellwerk_simulation.ready_profiles import ready_manifest
from stellwerk_simulation.simulation import Simulation
from stellwerk_simulation.trace import TracePod, read_nodes, read_pods
from tests.support.repository import ROOT
from tests.support.rights import ENFORCED
from tests.support.running_operator import install, is_active, operator_on, until
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

RBAC = "rbac.authorization.k8s.io"
DATA = ROOT / "tests" / "data" / "simulation"
ALONE = ClusterOptions(controllers=False, kubelet=None, heartbeats=False, identity=ENFORCED)
VIRTUAL = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
MAY_PATCH = frozenset({("", "pods", "patch")})
PATCHES_PODS, BOUND = yaml.safe_load_all(
    (ROOT / "manifests" / "overlays" / "gpu" / "role.yaml").read_text()
)
LISTED = read_pods(DATA / "pods.csv")
TYPICAL = typical_pods(LISTED)
[ONE_NODE] = [node for node in read_nodes(DATA / "nodes.csv") if node.name == "node-00"]
SOME_NODES = read_nodes(DATA / "nodes.csv")[3:11:2]
"""So that pods of every kind are turned away, too."""
SOME_MANIFESTS = [node_manifest(node) for node in SOME_NODES]
ARRIVALS = Arrivals(inflated(SOME_NODES, LISTED, 1.6, 1).pods, SOME_NODES)
SHARING = yaml.safe_load(
    "{apiVersion: scheduling.stellwerk.dev/v1alpha1, kind: SchedulerProfile, "
    "metadata: {name: gpu}, spec: {schedulerName: gpu, "
    "plugins: {multiPoint: {enabled: [{name: GpuShare}]}}}}"
)


def grant(cluster: EmbeddedCluster) -> None:
    kinds = cluster.api.kinds
    cluster.api.create(kinds.resource("clusterroles", RBAC), "", PATCHES_PODS)
    cluster.api.create(kinds.resource("clusterrolebindings", RBAC), "", BOUND)


def create(cluster: EmbeddedCluster, pod: TracePod, profile: str) -> None:
    manifest = pod_manifest(pod, profile)
    manifest["spec"]["containers"][0]["image"] = "registry.example/pause"
    cluster.api.create(cluster.api.kinds.resource("pods"), "default", manifest)


def stored(cluster: EmbeddedCluster, pod: TracePod) -> JsonObject:
    return cluster.api.get(cluster.api.kinds.resource("pods"), "default", pod.name).obj


def is_decided(cluster: EmbeddedCluster, pod: TracePod) -> bool:
    obj = stored(cluster, pod)
    conditions = {each["type"] for each in obj.get("status", {}).get("conditions", ())}
    return bool(obj["spec"].get("nodeName")) or "PodScheduled" in conditions


async def test_the_operator_places_as_a_simulation_does(tmp_path: Path) -> None:
    manifest = {"apiVersion": API_VERSION, "kind": KIND, **ready_manifest("fgd", TYPICAL)}
    found = {}
    async with EmbeddedCluster(SOME_MANIFESTS, options=ALONE) as cluster:
        install(cluster, manifest)
        grant(cluster)
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "fgd"))
            for pod in ARRIVALS.pods:
                create(cluster, pod, "fgd")
                await until(partial(is_decided, cluster, pod))
                found[pod.name] = stored(cluster, pod)["spec"].get("nodeName", "")
            devices_are_not_overcommitted(cluster, ARRIVALS.pods)
    assert found == simulated(manifest)


def test_so_it_does_where_it_learns_the_typical_pods_by_itself() -> None:
    manifest = {"apiVersion": API_VERSION, "kind": KIND, **ready_manifest("fgd", TYPICAL)}
    del manifest["spec"]["pluginConfig"]

    async def story(world: VirtualCluster) -> None:
        world.apply(manifest)
        found = {}
        for pod in ARRIVALS.pods:
            create(world.cluster, pod, "fgd")
            await world.until(partial(is_decided, world.cluster, pod))
            found[pod.name] = stored(world.cluster, pod)["spec"].get("nodeName", "")
        devices_are_not_overcommitted(world.cluster, ARRIVALS.pods)
        assert found == simulated(manifest)

    play(SOME_MANIFESTS, story)


def simulated(manifest: JsonObject) -> dict[str, str]:
    """Where a simulation places the pods; not all of them fit."""
    simulation = Simulation(ARRIVALS, load_profile(manifest, known_plugins()), TYPICAL, 1)
    placed = {pod.name: simulation.arrive(pod) for pod in ARRIVALS.pods}
    assert "" in placed.values()
    return placed


def play(
    nodes: Sequence[JsonObject], story: Callable[[VirtualCluster], Coroutine[Any, Any, None]]
) -> None:
    """Tell a story in virtual time; the operator has the overlay's right."""

    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, nodes, VIRTUAL, also_granted=MAY_PATCH) as world:
            await story(world)

    run_skipping(flow)


async def test_an_operator_plans_in_a_process_of_its_own(tmp_path: Path) -> None:
    profile = "pattern-plan"
    nodes = read_nodes(DATA / "nodes.csv")[3:9:2]
    pods = inflated(nodes, LISTED, 0.8, 1).pods
    ready = ready_manifest(profile, TYPICAL, LISTED)
    manifests = [node_manifest(node) for node in nodes]
    before = set(active_children())
    async with EmbeddedCluster(manifests, options=ALONE) as cluster:
        install(cluster, {"apiVersion": API_VERSION, "kind": KIND, **ready})
        grant(cluster)
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, profile))
            for pod in pods:
                create(cluster, pod, profile)
                await until(partial(is_decided, cluster, pod))
            await until(lambda: bool(set(active_children()) - before))
            devices_are_not_overcommitted(cluster, pods)
    await until(lambda: not set(active_children()) - before)


def devices_are_not_overcommitted(cluster: EmbeddedCluster, pods: Sequence[TracePod]) -> None:
    """Every bound pod names as many devices as it asks for, and none is given out twice."""
    used: dict[tuple[str, int], int] = {}
    for pod in pods:
        obj = stored(cluster, pod)
        node_name = obj["spec"].get("nodeName", "")
        annotation = obj["metadata"].get("annotations", {}).get(DEVICE_IDS, "")
        numbers = parse_device_ids(annotation) if node_name else ()
        assert len(numbers) == (pod.devices if node_name else 0), pod.name
        for number in numbers:
            key = (node_name, number)
            used[key] = used.get(key, 0) + pod.gpu_milli
    assert max(used.values()) <= WHOLE


async def test_without_its_right_a_pod_says_what_is_missing_and_with_it_it_is_bound(
    tmp_path: Path,
) -> None:
    pod = TracePod("p", 1000, 1024, 1, 600, ())
    async with EmbeddedCluster([node_manifest(ONE_NODE)], options=ALONE) as cluster:
        install(cluster, SHARING)
        async with operator_on(cluster, tmp_path):
            await until(lambda: is_active(cluster, "gpu"))
            create(cluster, pod, "gpu")
            await until(partial(is_decided, cluster, pod))
            (condition,) = stored(cluster, pod)["status"]["conditions"]
            assert condition["reason"] == "SchedulerError"
            assert 'cannot patch resource "pods"' in condition["message"]
            assert "manifests/overlays/gpu/role.yaml" in condition["message"]
            grant(cluster)
            await until(lambda: bool(stored(cluster, pod)["spec"].get("nodeName")))


def test_devices_are_remembered_over_a_restart() -> None:
    pods = [
        TracePod(f"p{number}", 1000, 1024, 1, milli, ())
        for number, milli in enumerate((600, 700, 300, 400))
    ]

    async def story(world: VirtualCluster) -> None:
        world.apply(SHARING)
        for pair in (pods[:2], pods[2:]):
            for pod in pair:
                create(world.cluster, pod, "gpu")
                await world.until(partial(is_decided, world.cluster, pod))
            # The second operator knows from annotations alone that 400 and 300 are left.
            await world.restart_operator()
        ids = [stored(world.cluster, pod)["metadata"]["annotations"][DEVICE_IDS] for pod in pods]
        assert ids == ["0", "1", "1", "0"]

    play([node_manifest(ONE_NODE)], story)
