"""Hollow nodes publish devices from descriptions, and the sandbox's examples run on them."""

from collections.abc import Callable, Coroutine
from typing import Any

from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.device_descriptions import read_description
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

EXAMPLES = ROOT / "docs" / "examples"
GROUP = "resource.k8s.io"
SLICES = f"resourceslices.{GROUP}"

Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story, *devices: str, nodes: int = 1) -> None:
    kubelet = KubeletOptions(devices=tuple(map(read_description, devices)))
    options = ClusterOptions(seed=1, heartbeats=False, kubelet=kubelet)
    machines = [make_node(f"node-{number}") for number in range(nodes)]

    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, machines, options) as world:
            await story(world)

    run_skipping(flow)


def given(world: VirtualCluster) -> list[list[str]]:
    """The devices of each allocated claim."""
    found = []
    for claim in world.api.all(f"resourceclaims.{GROUP}", "default"):
        allocation = (claim.get("status") or {}).get("allocation")
        if allocation:
            found.append([each["device"] for each in allocation["devices"]["results"]])
    return sorted(found)


def slices(world: VirtualCluster) -> dict[str, JsonObject]:
    return {each["metadata"]["name"]: each["spec"] for each in world.api.all(SLICES, None)}


def test_linked_gpus_go_to_two_trainers_of_a_node_and_the_third_waits() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-sandbox.yaml")
        await world.until(lambda: len(given(world)) == 2)
        await world.settle()
        groups = [[f"gpu-{number}" for number in range(first, first + 4)] for first in (0, 4)]
        assert given(world) == groups
        assert sorted(str(world.node_of(name)) for name in world.pods) == [
            "None",
            "node-0",
            "node-0",
        ]

    play(story, "gpus")


def test_parts_of_a_gpu_leave_a_whole_one_and_then_halves() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-sandbox-parts.yaml")
        await world.until(lambda: len(given(world)) == 5)
        held = [device for claim in given(world) for device in claim]
        assert sum("small" in each for each in held) == 3
        assert sum("whole" in each for each in held) == 1
        assert sum("half" in each for each in held) == 1

    play(story, "gpu-partitions")


def test_a_gpu_and_a_share_of_a_card_come_from_one_pcie_root() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-sandbox-nic.yaml")
        await world.until(lambda: len(given(world)) == 3)
        assert given(world) == [["gpu-0", "nic-0"], ["gpu-1", "nic-0"], ["gpu-2", "nic-1"]]

    play(story, "gpus", "nics")


def test_a_new_node_has_its_devices_and_they_go_with_it() -> None:
    async def story(world: VirtualCluster) -> None:
        name = "node-9-gpu.example.com-0"
        world.apply({"apiVersion": "v1", "kind": "Node", **make_node("node-9")})
        await world.until(lambda: name in slices(world))
        world.delete("nodes", "node-9")
        await world.until(lambda: name not in slices(world))

    play(story, "gpus")


def test_a_slice_that_is_deleted_comes_back_in_a_new_generation() -> None:
    async def story(world: VirtualCluster) -> None:
        kind = world.api.kinds.resource("resourceslices", GROUP)
        delete(world.api, kind, ("", "node-0-part.example.com-1"), DeleteOptions())
        await world.until(
            lambda: [each["pool"]["generation"] for each in slices(world).values()] == [2, 2]
        )

    play(story, "gpu-partitions")
