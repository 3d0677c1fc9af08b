"""An operator that observes, beside another one that serves default-scheduler."""

import asyncio

import pytest

from stellwerk.answers.observed import ObservedProfile
from stellwerk.explain.steps import finished
from stellwerk.observing.trailing import OPEN_CLAIMS, VICTIMS
from stellwerk_cluster.apimachinery.feature_gates import GANGS
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import HIGH_PRIORITY, KINDS, posted_node, posted_pod
from tests.support.observed_cluster import OBSERVED, ObservingOperator, observed_cluster
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

ALL_NODES = 100
"""percentageOfNodesToScore of a scheduler that scores every node."""


def nodes(count: int) -> list[JsonObject]:
    """The nodes of a workload."""
    return [posted_node(number) for number in range(count)]


def pod(kind: str, number: int) -> JsonObject:
    """A pod of a workload, for the scheduler that is observed."""
    return posted_pod(kind, number, scheduler_name=OBSERVED)


def check_nothing_written(observing: ObservingOperator) -> None:
    """Assert that the observer wrote statuses of its own profiles, and nothing else."""
    profile = "/apis/scheduling.stellwerk.dev/v1alpha1/schedulerprofiles/observed/status"
    assert {path for _, path in observing.client.requests} <= {profile}
    assert [each for each in observing.notes.events if each[0] != "observed"] == []


def note_on(observing: ObservingOperator, explained: JsonObject) -> str | None:
    """The note of a pod's explanation."""
    steps = observing.operator.explanations.pod("default", explained["metadata"]["name"])
    assert steps is not None
    return finished(steps).note


async def one_in_flight(clock: VirtualClock, kind: str, pods: int, count: int) -> ObservedProfile:
    """A workload of which each pod comes more than a second after the one before is bound."""
    cluster = observed_cluster(clock, *nodes(count), percentageOfNodesToScore=ALL_NODES)
    async with cluster as (world, observing):
        for number in range(pods):
            world.apply(pod(kind, number))
            await world.settle()
            await asyncio.sleep(1.5)
        found = await observing.compared(pods)
        check_nothing_written(observing)
        return found


@pytest.mark.parametrize("kind", ["basic", "spread", "anti", "zipf"])
def test_with_one_pod_in_flight_every_binding_is_equal(kind: str) -> None:
    found = run_skipping(lambda clock: one_in_flight(clock, kind, 8, 12))
    assert (found.counts.equal, found.shares.equal) == (8, 1.0), found.comparisons


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_with_one_pod_in_flight_every_binding_of_a_long_workload_is_equal(kind: str) -> None:
    pods = 150 if kind == "anti" else 300
    found = run_skipping(lambda clock: one_in_flight(clock, kind, pods, 150))
    assert (found.counts.equal, found.shares.equal) == (pods, 1.0), found.reasons


def test_many_pods_at_once_are_all_compared() -> None:
    async def flow(clock: VirtualClock) -> ObservedProfile:
        cluster = observed_cluster(clock, *nodes(12), percentageOfNodesToScore=ALL_NODES)
        async with cluster as (world, observing):
            world.apply(*(pod("spread", number) for number in range(60)))
            await world.settle()
            found = await observing.compared(60)
            check_nothing_written(observing)
            return found

    found = run_skipping(flow)
    assert (found.bindings, found.pending, found.waiting) == (60, 0, 0)
    # In the order of this cluster's watch, every binding is seen as it was decided.
    assert found.counts.differs == found.counts.found_none == 0
    assert found.latency is not None
    assert found.latency.count == 60


def test_a_binding_that_is_still_to_be_compared_is_explained_so() -> None:
    async def flow(clock: VirtualClock) -> list[str | None]:
        async with observed_cluster(clock, *nodes(3)) as (world, observing):
            web = pod("basic", 0)
            world.apply(web)
            await world.settle()
            notes = [note_on(observing, web)]
            await observing.compared(1)
            return [*notes, note_on(observing, web)]

    before, after = run_skipping(flow)
    assert before is not None
    assert before.startswith("its binding is not compared yet")
    assert after is None


def test_a_pod_that_evicted_others_is_not_comparable() -> None:
    async def flow(clock: VirtualClock) -> ObservedProfile:
        async with observed_cluster(clock, *nodes(1)) as (world, observing):
            world.apply(HIGH_PRIORITY, *(pod("low", number) for number in range(4)))
            await world.settle()
            await observing.compared(4)
            high = pod("preempt", 9)
            world.apply(high)
            await world.until(lambda: world.node_of(high["metadata"]["name"]))
            found = await observing.compared(5)
            check_nothing_written(observing)
            return found

    found = run_skipping(flow)
    (last, *_) = found.comparisons
    assert (last.result, last.reason) == ("notComparable", VICTIMS)


def test_members_of_a_group_are_compared_one_by_one_and_the_group_is_not_written() -> None:
    async def flow(clock: VirtualClock) -> ObservedProfile:
        async with observed_cluster(clock, *nodes(4), gates=GANGS) as (world, observing):
            gangs = {"spec": {"gangScheduling": True}}
            world.patch("schedulerprofiles", OBSERVED, gangs, "scheduling.stellwerk.dev")
            members = [
                make_member(f"member-{number}", "gang", cpu="1", scheduler_name=OBSERVED)
                for number in range(3)
            ]
            group = {**make_group("gang", 3), "apiVersion": "scheduling.k8s.io/v1beta1"}
            world.apply(group, *members)
            await world.settle()
            found = await observing.compared(3)
            check_nothing_written(observing)
            return found

    found = run_skipping(flow)
    assert found.counts.equal + found.counts.not_comparable == 3, found.comparisons


def test_a_pod_whose_volume_is_chosen_with_its_node_is_not_comparable() -> None:
    waiting = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "disk"},
        "spec": {
            "storageClassName": "late",
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": "/disk"},
        },
    }

    async def flow(clock: VirtualClock) -> ObservedProfile:
        async with observed_cluster(clock, *nodes(4)) as (world, observing):
            world.apply(waiting, volume, claim)
            created = pod("basic", 0)
            mounted = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
            created["spec"]["volumes"] = [mounted]
            world.apply(created)
            await world.until(lambda: world.node_of(created["metadata"]["name"]))
            return await observing.compared(1)

    found = run_skipping(flow)
    assert found.incomparable[0].reason == OPEN_CLAIMS
