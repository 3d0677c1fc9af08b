"""Claims for devices that a group has: made for it, reserved for it, and all members at them."""

import asyncio
from collections.abc import Callable, Coroutine
from string import ascii_lowercase
from typing import Any

import pytest

from stellwerk.profiles.spec.profile import GROUP, PLURAL
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_kube.clock import VirtualClock, rfc3339_milliseconds
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_devices import NOT_READY, binding_of
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster, read_manifests

EXAMPLE = ROOT / "docs" / "examples" / "gang-shared-claim.yaml"
ZONE = "topology.kubernetes.io/zone"
IS_LATE = 'device.driver == "late.example.com"'
RESOURCE_CLAIMS = "resourceclaims.resource.k8s.io"
Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story, *cores: int, zones: str = "") -> None:
    """Tell a story where each node has GPUs and so many cores, in zones of a letter each.

    Without letters each node has a zone of its own.
    """

    async def flow(clock: VirtualClock) -> None:
        kubelet = KubeletOptions(devices=(read_description("gpus"),))
        gates = GANGS | {CLAIMS}
        options = ClusterOptions(seed=1, heartbeats=False, kubelet=kubelet, feature_gates=gates)
        nodes = [
            make_node(f"n{number}", cpu=str(cpu), zone=zone)
            for number, (cpu, zone) in enumerate(
                zip(cores, zones or ascii_lowercase[: len(cores)], strict=True)
            )
        ]
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
            (
                "waiting for pods that plugins keep out of the queue: 0 of 4 are ready "
                "(4 by DynamicResources)"
            ),
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
        began = rfc3339_milliseconds(world.clock.now())
        world.apply(group, one, two)
        await asyncio.sleep(60)
        assert [binding_of(world, name) for name in ("pair-0", "pair-1")] == [
            (
                "n0",
                "PreBind",
                ["devices of late.example.com in the resource claim default/late to be ready"],
                began,
            ),
            (
                "n0",
                "PreBind",
                ['enough members of the pod group "pair" to be ready to be bound'],
                began,
            ),
        ]
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


def sharing_members(
    cpu: str, count: int = 2, *, mode: str = "ReadWriteMany", **volume: Any
) -> list[JsonObject]:
    """A group whose members share a claim that waits for its first consumer.

    The hollow provisioner makes a volume that one node at a time may use in that node's zone.
    """
    claim_spec = {
        "accessModes": [mode],
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


def selected_node(world: VirtualCluster) -> str | None:
    """The node for which a volume is made for the claim; None: none was chosen."""
    claim = world.api.find("persistentvolumeclaims", "default", "data")
    assert claim is not None
    node: str | None = (claim["metadata"].get("annotations") or {}).get(
        "volume.kubernetes.io/selected-node"
    )
    return node


def cordon(world: VirtualCluster, name: str, *, is_on: bool = True) -> None:
    world.patch("nodes", name, {"spec": {"unschedulable": is_on}})


def test_a_class_that_allows_one_zone_alone_keeps_the_group_there() -> None:
    allowed = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]

    async def story(world: VirtualCluster) -> None:
        cordon(world, "n2")
        world.apply(*sharing_members("3", mode="ReadWriteOnce", allowedTopologies=allowed))
        await asyncio.sleep(30)
        # One would fit in the zone, and the other one would not reach the volume.
        assert nodes(world) == [None, None]
        assert selected_node(world) is None
        cordon(world, "n2", is_on=False)
        await world.until(lambda: nodes(world) == ["n1", "n2"])

    play(story, 4, 4, 4, zones="abb")


def test_a_volume_out_of_the_reach_of_a_member_leaves_none_of_the_group_bound() -> None:
    """The zone of a volume is known when it is made: for the node that the first one chose."""

    async def story(world: VirtualCluster) -> None:
        for name in ("n2", "n3"):
            cordon(world, name)
        world.apply(*sharing_members("3", mode="ReadWriteOnce"))
        await asyncio.sleep(60)
        assert nodes(world) == [None, None]
        assert len(world.operator.bindings) == 0
        assert not world.operator.world.cache.assumed_pods
        home = str(selected_node(world))
        reasons = [str(world.why_pending(name)) for name in world.pods]
        assert any("node(s) didn't match PersistentVolume's node affinity" in x for x in reasons)
        other = {"n0": "n2", "n1": "n3"}[home]
        cordon(world, other, is_on=False)
        await world.until(lambda: nodes(world) == [home, other])

    play(story, 4, 4, 4, 4, zones="abab")


@pytest.mark.parametrize("zones", ["abb", "bab", "bba"])
def test_members_that_share_a_volume_go_to_one_zone_where_its_driver_makes_volumes_of_a_zone(
    zones: str,
) -> None:
    async def story(world: VirtualCluster) -> None:
        for number in range(3):
            world.apply(csi_node(f"n{number}", "csi.example.com", ZONE))
        world.apply(*sharing_members("3", mode="ReadWriteOnce"))
        await world.until(lambda: None not in nodes(world))
        assert nodes(world) == [f"n{number}" for number in range(3) if zones[number] == "b"]

    play(story, 4, 4, 4, zones=zones)


def csi_node(name: str, driver: str, *keys: str) -> JsonObject:
    """What a driver's registration says of a node: the labels by which its volumes are reached."""
    drivers = [{"name": driver, "nodeID": name, "topologyKeys": list(keys)}]
    metadata = {"name": name}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": metadata,
        "spec": {"drivers": drivers},
    }
