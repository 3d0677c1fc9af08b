"""A claim for one pod that was freed for a preemptor is kept for it."""

import asyncio

from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

OPTIONS = ClusterOptions(seed=1, heartbeats=False)


def using(name: str, priority_class: str) -> JsonObject:
    """A pod that uses the claim; it ends within the backoff of a preemptor."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"stellwerk.dev/stop-seconds": "0.2"}},
        "spec": {
            "priorityClassName": priority_class,
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "once"}}],
            "containers": [{"name": "c", "image": "registry.example/x"}],
        },
    }


def priority(name: str, value: int) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


STORAGE: list[JsonObject] = [
    {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "later"},
        "provisioner": "csi.example.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    },
    {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "once"},
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "storageClassName": "later",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    },
]


def test_one_pod_is_evicted_for_a_preemptor_that_wants_its_claim() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*STORAGE, priority("low", 1), priority("middle", 5), priority("high", 9))
        world.apply(using("first", "low"))
        await world.until(lambda: world.phase_of("first") == "Running")
        world.apply(using("second", "low"))  # waits for the claim, and is tried when it is free
        await asyncio.sleep(15)
        world.apply(using("preemptor", "high"))
        await world.until(lambda: "first" not in world.pods or bool(world.node_of("preemptor")))
        await world.until(lambda: world.phase_of("preemptor") == "Running")
        assert world.node_of("second") is None
        evicted = [name for _, name, reason, _ in world.notes.events if reason == "Preempted"]
        assert len(evicted) == 1

    async def flow(clock: VirtualClock) -> None:
        nodes = [make_node("a", cpu="4"), make_node("b", cpu="4")]
        async with open_virtual_cluster(clock, nodes, OPTIONS) as world:
            await story(world)

    run_skipping(flow)
