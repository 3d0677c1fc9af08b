"""Claims for devices that a group has: made for it, reserved for it, and all members at them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stellwerk.clock import VirtualClock
from stellwerk.explain.queue_facts import rfc3339
from stellwerk.explain.steps import finished
from stellwerk.models.json_values import JsonObject
from stellwerk.models.profile import GROUP, PLURAL
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from tests.flows.test_devices import NOT_READY
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster, read_manifests

EXAMPLE = ROOT / "docs" / "examples" / "gang-shared-claim.yaml"
PAIR = ("pair-0", "pair-1")
IS_LATE = 'device.driver == "late.example.com"'
RESOURCE_CLAIMS = "resourceclaims.resource.k8s.io"
Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story, *cores: int) -> None:
    """Tell a story where each node has GPUs and so many cores."""

    async def flow(clock: VirtualClock) -> None:
        kubelet = KubeletOptions(devices=(read_description("gpus"),))
        gates = GANGS | {CLAIMS}
        options = ClusterOptions(seed=1, heartbeats=False, kubelet=kubelet, feature_gates=gates)
        nodes = [make_node(f"n{number}", cpu=str(cpu)) for number, cpu in enumerate(cores)]
        async with open_virtual_cluster(clock, nodes, options) as world:
            world.patch(PLURAL, "default-scheduler", {"spec": {"gangScheduling": True}}, GROUP)
            await story(world)

    run_skipping(flow)


def claims(world: VirtualCluster) -> list[JsonObject]:
    return list(world.api.all(RESOURCE_CLAIMS, "default"))


def nodes(world: VirtualCluster) -> list[str | None]:
    return sorted((world.node_of(name) for name in world.pods), key=str)


def consumers(claim: JsonObject) -> list[tuple[str, str, str]]:
    reserved = claim.get("status", {}).get("reservedFor") or ()
    return [(each.get("apiGroup", ""), each["resource"], each["name"]) for each in reserved]


def test_a_claim_made_for_a_group_is_reserved_for_it_and_goes_with_it() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLE)
        await world.until(lambda: nodes(world) == ["n1"] * 4)
        await world.settle()
        assert {world.phase_of(name) for name in world.pods} == {"Running"}
        (claim,) = claims(world)
        assert consumers(claim) == [("scheduling.k8s.io", "podgroups", "sharing")]
        assert [each["kind"] for each in claim["metadata"]["ownerReferences"]] == ["PodGroup"]
        world.delete("jobs", "sharing", "batch")
        await world.settle()
        assert len(claims(world)) == 1
        world.delete("podgroups", "sharing", "scheduling.k8s.io")
        await world.until(lambda: not claims(world))

    play(story, 2, 4)


def test_a_replacement_goes_to_the_group_s_devices() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLE)
        await world.until(lambda: len(nodes(world)) == 4 and None not in nodes(world))
        (home,) = set(nodes(world))
        lost = min(world.pods)
        world.delete("pods", lost)
        await world.until(lambda: lost not in world.pods and nodes(world) == [home] * 4)
        (claim,) = claims(world)
        assert len(consumers(claim)) == 1

    play(story, 8, 8)


def test_devices_where_the_group_does_not_fit_are_given_back_once_none_of_it_is_there() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLE)
        await world.until(lambda: len(nodes(world)) == 4 and None not in nodes(world))
        (home,) = set(nodes(world))
        # The devices stay with the group, on a node that is not to be used any more.
        world.patch("nodes", str(home), {"spec": {"unschedulable": True}})
        for name in list(world.pods):
            world.delete("pods", name)
        other = {"n0": "n1", "n1": "n0"}[str(home)]
        # The Job waits before it makes up for so many pods.
        await world.until(lambda: nodes(world) == [other] * 4, seconds=300)
        (claim,) = claims(world)
        (result, *_) = claim["status"]["allocation"]["devices"]["results"]
        assert result["pool"] == other

    play(story, 4, 4)


def test_a_group_whose_claim_is_not_made_says_what_keeps_its_pods() -> None:
    async def story(world: VirtualCluster) -> None:
        template, *rest = read_manifests(EXAMPLE)
        world.apply(*rest)
        await asyncio.sleep(10)
        group = world.api.find("podgroups.scheduling.k8s.io", "default", "sharing")
        assert group is not None
        said = {each["type"]: each for each in group["status"]["conditions"]}["PodGroupScheduled"]
        assert (said["reason"], said["message"]) == (
            "WaitingForPods",
            "waiting for pods that are kept from the queue: 0 of 4 are not (4 by DynamicResources)",
        )
        world.apply(template)
        await world.until(lambda: len(nodes(world)) == 4 and None not in nodes(world))
        notes = [note for _, _, reason, note in world.notes.events if reason == "FailedScheduling"]
        assert notes == [said["message"]]

    play(story, 4)


def test_a_member_that_waits_for_the_others_names_its_group_its_node_and_since_when() -> None:
    """One waits for its device, the other for enough of the group; none is bound meanwhile."""

    async def story(world: VirtualCluster) -> None:
        driver = {"driver": "late.example.com", "nodeName": "n0"}
        pool = {"name": "late", "generation": 1, "resourceSliceCount": 1}
        late = [{**NOT_READY, "name": "d"}]
        exactly = {"deviceClassName": "late"}
        api = "resource.k8s.io/v1"
        device_class, device_slice, claim = (
            {"apiVersion": api, "kind": kind, "metadata": {"name": "late"}, "spec": spec}
            for kind, spec in (
                ("DeviceClass", {"selectors": [{"cel": {"expression": IS_LATE}}]}),
                ("ResourceSlice", {**driver, "pool": pool, "devices": late}),
                ("ResourceClaim", {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}),
            )
        )
        *_, group, one, two = sharing_members("1")
        for member in (one, two):
            del member["spec"]["volumes"]
        one["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "late"}]
        world.apply(device_class, device_slice, claim)
        await asyncio.sleep(5)
        began = rfc3339(world.clock.now())
        world.apply(group, one, two)
        await asyncio.sleep(60)
        found = [finished(world.operator.explanations.pod("default", name)) for name in PAIR]
        said = [(each.binding.point, *each.binding.waits_for, each.binding.since) for each in found]
        assert said == [
            (
                "PreBind",
                "devices of late.example.com in the resource claim default/late to be ready",
                began,
            ),
            ("PreBind", 'enough members of the pod group "pair" to be ready to be bound', began),
        ]
        assert {each.binding.node for each in found} == {"n0"}
        assert nodes(world) == [None, None]
        device = {"driver": "late.example.com", "pool": "late", "device": "d"}
        condition = {
            "type": "example.com/ready",
            "status": "True",
            "reason": "Driver",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = {"status": {"devices": [{**device, "conditions": [condition]}]}}
        world.patch_status("resourceclaims", "late", status, "resource.k8s.io")
        await world.until(lambda: None not in nodes(world), seconds=2)

    play(story, 4)


# --- claims for volumes ---------------------------------------------------------------------------


def sharing_members(cpu: str, count: int = 2, **volume: str) -> list[JsonObject]:
    """A group whose members share a claim that waits for its first consumer."""
    claim_spec = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "later",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    members = [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"pair-{number}"},
            "spec": {
                "schedulingGroup": {"podGroupName": "pair"},
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
                "containers": [
                    {
                        "name": "c",
                        "image": "registry.example/x",
                        "resources": {"requests": {"cpu": cpu}},
                    }
                ],
            },
        }
        for number in range(count)
    ]
    return [
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "later"},
            "provisioner": "csi.example.com",
            "volumeBindingMode": "WaitForFirstConsumer",
            **volume,
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data"},
            "spec": claim_spec,
        },
        {
            "apiVersion": "scheduling.k8s.io/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "pair"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": count}}},
        },
        *members,
    ]


@pytest.mark.parametrize(
    ("cpu", "cores", "homes"),
    [
        pytest.param("3", (4, 4), ["n0", "n1"], id="one on each node"),
        pytest.param("1", (4, 4), None, id="both on one node where they fit"),
    ],
)
def test_members_share_a_claim_that_waits_for_its_first_consumer(
    cpu: str, cores: tuple[int, ...], homes: list[str] | None
) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*sharing_members(cpu))
        await world.until(lambda: None not in nodes(world) and len(nodes(world)) == 2)
        await world.settle()
        assert {world.phase_of(name) for name in world.pods} == {"Running"}
        if homes is None:
            assert len(set(nodes(world))) == 1
        else:
            assert nodes(world) == homes

    play(story, *cores)


def test_a_group_that_shares_a_claim_and_fits_nowhere_is_not_begun() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(*sharing_members("3", count=3))
        await asyncio.sleep(30)
        assert nodes(world) == [None] * 3
        claim = world.api.find("persistentvolumeclaims", "default", "data")
        assert claim is not None
        assert "volume.kubernetes.io/selected-node" not in (
            claim["metadata"].get("annotations") or {}
        )

    play(story, 4, 4)
