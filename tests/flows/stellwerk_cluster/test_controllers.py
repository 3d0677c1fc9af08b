"""Controllers and the scheduler together, in virtual time: volumes, rollouts, jobs, lost nodes."""

from typing import Any

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

ZONE = "topology.kubernetes.io/zone"
NODES = [make_node(f"node-{zone}", labels={ZONE: zone}) for zone in "abc"]
LABELS = {"app": "web"}
CONTAINERS = [
    {"name": "c", "image": "i:1", "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
]


def play(story: Any, nodes: list[JsonObject] | None = None) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, NODES if nodes is None else nodes) as world:
            await story(world)
            await world.until(lambda: world.cluster.work.busy == [])

    run_skipping(flow)


def workload(kind: str, name: str, group: str = "apps/v1", **spec: Any) -> JsonObject:
    pod = {"containers": CONTAINERS, **spec.pop("pod", {})}
    template = {"metadata": {"labels": LABELS}, "spec": pod}
    body = {"apiVersion": group, "kind": kind, "metadata": {"name": name}}
    selector = {} if kind == "Job" else {"selector": {"matchLabels": LABELS}}
    return {**body, "spec": {**selector, "template": template, **spec}}


def test_a_pod_for_a_node_that_does_not_exist_is_collected() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(ROOT / "docs" / "examples" / "node-name.yaml")
        await world.until(lambda: not world.pods, 120)
        assert world.clock.monotonic() >= 40

    play(story)


def test_the_pods_of_a_deleted_node_start_anew_elsewhere() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(workload("Deployment", "web", replicas=6))
        await world.until(lambda: len(world.pods) == 6)
        await world.settle()
        world.delete("nodes", "node-a")
        await world.until(lambda: "node-a" not in map(world.node_of, world.pods), 120)
        await world.until(lambda: len(world.pods) == 6)
        await world.settle()

    play(story)


def test_the_pods_of_a_stateful_set_get_volumes_in_their_zones() -> None:
    async def story(world: VirtualCluster) -> None:
        storage_class = {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "zonal"},
            "provisioner": "disks.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
        }
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": "zonal",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
        claims: JsonObject = {"volumeClaimTemplates": [claim], "serviceName": "web"}
        world.apply(storage_class, workload("StatefulSet", "db", replicas=3, **claims))
        await world.until(lambda: len(world.pods) == 3)
        await world.settle()
        for name in ("db-0", "db-1", "db-2"):
            bound = world.api.find("persistentvolumeclaims", "default", f"data-{name}") or {}
            assert bound["status"]["phase"] == "Bound"
            volume = world.api.find("persistentvolumes", "", bound["spec"]["volumeName"]) or {}
            (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
            assert [f"node-{zone}" for zone in term["matchExpressions"][0]["values"]] == [
                world.node_of(name)
            ]
        home = world.node_of("db-1")
        world.delete("pods", "db-1")
        await world.until(lambda: "db-1" not in world.pods)
        await world.until(lambda: "db-1" in world.pods)
        await world.settle()
        assert world.node_of("db-1") == home

    play(story)


def test_a_daemon_set_reaches_every_node_and_a_cordoned_one_keeps_its_pod() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(workload("DaemonSet", "agent"))
        await world.until(lambda: len(world.pods) == 3)
        await world.settle()
        world.patch("nodes", "node-a", {"spec": {"unschedulable": True}})
        dedicated = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}
        world.patch("nodes", "node-b", {"spec": {"taints": [dedicated]}})
        await world.settle()
        assert sorted(map(str, map(world.node_of, world.pods))) == ["node-a", "node-b", "node-c"]

    play(story)


def test_a_job_of_many_indexes_runs_to_its_end() -> None:
    async def story(world: VirtualCluster) -> None:
        indexed: JsonObject = {"completions": 20, "parallelism": 5, "completionMode": "Indexed"}
        job = workload("Job", "j", "batch/v1", pod={"restartPolicy": "Never"}, **indexed)
        world.apply(job)

        def status() -> JsonObject:
            found = world.api.find("jobs.batch", "default", "j") or {}
            return dict(found["status"])

        await world.until(lambda: status().get("completionTime"), 300)
        assert status()["completedIndexes"] == "0-19"
        assert status()["succeeded"] == 20

    play(story)
