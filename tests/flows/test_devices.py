"""Devices on the embedded cluster: from a claim and slices to bound pods, and every way back.

Each request sequence of kube-scheduler's that the reference lists has its test here.
"""

import asyncio
import re
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from stellwerk.explain.steps import finished
from stellwerk.scheduler import schedule_one, time_slice
from stellwerk_cluster.apimachinery.objects import timestamp
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock, rfc3339_milliseconds
from stellwerk_kube.errors import Forbidden
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

EXAMPLES = ROOT / "docs" / "examples"
GROUP = "resource.k8s.io"
CLAIMS = f"resourceclaims.{GROUP}"
DRIVER = "gpu.example.com"
IN_FLIGHT = "AllocationInFlight"
FINALIZER = "resource.kubernetes.io/delete-protection"
CLASS: JsonObject = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}

NOT_READY: JsonObject = {
    "name": "gpu-0",
    "bindingConditions": ["example.com/ready"],
    "bindingFailureConditions": ["example.com/failed"],
}

Story = Callable[[VirtualCluster], Coroutine[Any, Any, None]]


def play(story: Story, nodes: Sequence[str] = ("node-a", "node-b")) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, [make_node(name) for name in nodes]) as world:
            await story(world)
            check_devices(world)

    run_skipping(flow)


def slice_of(node: str, *devices: JsonObject) -> JsonObject:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def claim_object(name: str, **request: Any) -> JsonObject:
    exactly = {"deviceClassName": "gpu", **request}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def claiming(name: str, *claims: str, **spec: Any) -> JsonObject:
    references = [{"name": f"c{n}", "resourceClaimName": each} for n, each in enumerate(claims)]
    pod = make_pod(name, scheduler_name="stellwerk", resourceClaims=references, **spec)
    del pod["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", **pod}


def claim(world: VirtualCluster, name: str) -> JsonObject:
    found = world.api.find(CLAIMS, "default", name)
    assert found is not None, name
    return found


def devices(world: VirtualCluster, name: str) -> list[str]:
    allocation = (claim(world, name).get("status") or {}).get("allocation") or {}
    return [each["device"] for each in (allocation.get("devices") or {}).get("results") or ()]


def consumers(world: VirtualCluster, name: str) -> list[str]:
    reserved = (claim(world, name).get("status") or {}).get("reservedFor") or ()
    return [each["name"] for each in reserved]


def check_devices(world: VirtualCluster) -> None:
    """No device is held by two claims, and no allocation is left in flight."""
    held: set[tuple[str, str, str]] = set()
    for each in world.api.all(CLAIMS, None):
        allocation = (each.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            key = (result["driver"], result["pool"], result["device"])
            assert key not in held, key
            held.add(key)
    assert list(world.operator.world.objects.list(IN_FLIGHT)) == []


# --- how long a decision takes -------------------------------------------------------------------


def test_a_search_that_outlasts_its_turn_goes_on_in_slices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turns: list[float] = []

    in_slices_itself = time_slice.in_slices
    monkeypatch.setattr(schedule_one, "FILTER_SLICE_SECONDS", -1.0)
    monkeypatch.setattr(time_slice, "TIME_SLICE_SECONDS", -1.0)

    async def story(world: VirtualCluster) -> None:
        world.apply(
            CLASS,
            slice_of("node-a", {"name": "gpu-0"}),
            slice_of("node-b", {"name": "gpu-0"}),
            claim_object("one"),
            claiming("first", "one"),
        )
        await world.settle()
        assert world.node_of("first") is not None
        assert turns

    async def counted(work: Iterator[None], now: Callable[[], float]) -> None:
        turns.append(now())
        await in_slices_itself(work, now)

    monkeypatch.setattr(schedule_one, "in_slices", counted)
    play(story)


# --- the examples of the documentation -----------------------------------------------------------


def test_pods_with_a_template_get_a_gpu_each_and_the_third_waits() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-claim.yaml")
        await world.settle()
        nodes = [world.node_of(f"trainer-{number}") for number in range(3)]
        assert sorted(node for node in nodes if node) == ["node-a", "node-b"]
        (waiting,) = [f"trainer-{number}" for number in range(3) if nodes[number] is None]
        reason = world.why_pending(waiting)
        assert reason is not None
        assert "2 cannot allocate all claims" in reason[1]
        done = next(name for name in ("trainer-0", "trainer-1") if world.node_of(name))
        world.delete("pods", done)
        await world.until(lambda: world.node_of(waiting) is not None)

    play(story)


def test_four_linked_gpus_come_from_one_group() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-linked.yaml")
        await world.settle()
        assert world.node_of("trainer") == "node-a"
        assert devices(world, "four-linked") == ["gpu-0", "gpu-2", "gpu-4", "gpu-6"]

    play(story)


def test_a_part_of_a_gpu_is_taken_where_the_whole_is_not_free() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-partitions.yaml")
        await world.settle()
        assert {world.node_of("small"), world.node_of("modest")} == {"node-a"}
        claims = {each["metadata"]["name"]: each for each in world.api.all(CLAIMS, "default")}
        del claims["one-half"]
        (made,) = claims.values()
        (result,) = made["status"]["allocation"]["devices"]["results"]
        assert result["request"] == "gpu/half"

    play(story)


def test_an_extended_resource_is_served_by_devices() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply_file(EXAMPLES / "gpu-extended-resource.yaml")
        await world.settle()
        assert world.node_of("classic") == "node-a"
        status = world.pods["classic"]["status"]["extendedResourceClaimStatus"]
        assert status["requestMappings"] == [
            {
                "containerName": "main",
                "resourceName": "example.com/gpu",
                "requestName": "container-0-request-0",
            }
        ]
        assert devices(world, status["resourceClaimName"]) == ["gpu-0", "gpu-1"]

    play(story)


# --- the request sequences -----------------------------------------------------------------------


def test_a_binding_writes_the_finalizer_then_allocation_and_reservation_together() -> None:
    async def story(world: VirtualCluster) -> None:
        seen: list[tuple[bool, bool, bool]] = []

        def on_change(storage_name: str, event: Any) -> None:
            if storage_name == CLAIMS:
                obj = event.entry.obj
                status = obj.get("status") or {}
                seen.append(
                    (
                        FINALIZER in (obj["metadata"].get("finalizers") or ()),
                        "allocation" in status,
                        "reservedFor" in status,
                    )
                )

        world.api.store.listeners.append(on_change)
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}), claim_object("c"))
        world.apply(claiming("p", "c"))
        await world.settle()
        assert seen == [(False, False, False), (True, False, False), (True, True, True)]
        assert "allocationTimestamp" in claim(world, "c")["status"]["allocation"]
        assert consumers(world, "c") == ["p"]

    play(story)


def test_a_second_pod_of_an_allocated_claim_follows_it_to_its_node() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-b", {"name": "gpu-0"}), claim_object("c"))
        world.apply(claiming("first", "c"))
        await world.settle()
        world.apply(claiming("second", "c"))
        await world.settle()
        assert world.node_of("second") == "node-b"
        assert consumers(world, "c") == ["first", "second"]

    play(story)


def test_a_conflict_is_read_again_and_written_again() -> None:
    async def story(world: VirtualCluster) -> None:
        replace, touched = world.client.replace, 0

        async def racing(path: str, body: Any) -> JsonObject:
            nonlocal touched
            if path.endswith("/status") and touched < 2:
                touched += 1
                kind = world.api.kinds.resource("resourceclaims", GROUP)
                patch = {"metadata": {"labels": {"touched": str(touched)}}}
                world.api.patch(kind, ("default", "c"), patch)
            return await replace(path, body)

        world.client.replace = racing  # type: ignore[method-assign]
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}), claim_object("c"))
        world.apply(claiming("p", "c"))
        await world.until(lambda: world.node_of("p") == "node-a")
        assert (touched, devices(world, "c")) == (2, ["gpu-0"])

    play(story)


def test_a_failed_binding_takes_the_reservation_back_and_leaves_the_allocation() -> None:
    async def story(world: VirtualCluster) -> None:
        bind, tries = world.client.bind, 0

        async def failing(namespace: str, name: str, uid: str, node_name: str) -> None:
            nonlocal tries
            tries += 1
            if tries == 1:
                assert consumers(world, "c") == ["p"]
                raise refused()
            await bind(namespace, name, uid, node_name)

        world.client.bind = failing  # type: ignore[method-assign]
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}), claim_object("c"))
        world.apply(claiming("p", "c"))
        await world.until(lambda: tries == 1 and consumers(world, "c") == [])
        assert devices(world, "c") == ["gpu-0"]
        await world.until(lambda: world.node_of("p") == "node-a")
        assert consumers(world, "c") == ["p"]

    play(story)


def test_a_pod_waits_for_the_binding_conditions_of_its_device() -> None:
    async def story(world: VirtualCluster) -> None:
        device = {
            "name": "gpu-0",
            "bindingConditions": ["example.com/ready"],
            "bindingFailureConditions": ["example.com/failed"],
        }
        world.apply(CLASS, slice_of("node-a", device), claim_object("c"))
        world.apply(claiming("p", "c"))
        await world.until(lambda: devices(world, "c") == ["gpu-0"])
        await asyncio.sleep(60)
        assert world.node_of("p") is None
        assert any(note[1] == "BindingConditionsPending" for note in world.notes.about("p"))
        report(world, "c", "example.com/ready")
        await world.until(lambda: world.node_of("p") == "node-a", seconds=1)
        assert waits(world) == {"success": 1}

    play(story)


def binding_of(world: VirtualCluster, name: str) -> tuple[str, str, list[str], str]:
    """(node, point, what is waited for, since when), as explain says it of a binding."""
    found = world.operator.explanations.pod("default", name)
    assert found is not None
    binding = finished(found).binding
    assert binding is not None
    return binding.node, binding.point, list(binding.waits_for), binding.since


def test_a_pod_that_waits_for_its_device_says_for_which_on_which_node_and_since_when() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", NOT_READY), claim_object("c"))
        await asyncio.sleep(5)
        began = rfc3339_milliseconds(world.clock.now())
        world.apply(claiming("p", "c"))
        await asyncio.sleep(60)
        waits_for = f"devices of {DRIVER} in the resource claim default/c to be ready"
        assert binding_of(world, "p") == ("node-a", "PreBind", [waits_for], began)
        report(world, "c", "example.com/ready")
        await world.until(lambda: world.node_of("p") == "node-a", seconds=1)

    play(story)


def test_a_pod_that_waits_for_a_device_of_an_extended_resource_names_the_claim_made_for_it() -> (
    None
):
    async def story(world: VirtualCluster) -> None:
        backed = {**CLASS, "spec": {**CLASS["spec"], "extendedResourceName": "example.com/gpu"}}
        world.apply(backed, slice_of("node-a", NOT_READY))
        classic = claiming("p", requests={"example.com/gpu": "1"})
        (container,) = classic["spec"]["containers"]
        container["resources"]["limits"] = {"example.com/gpu": "1"}
        world.apply(classic)
        await asyncio.sleep(60)
        (made,) = world.api.all(CLAIMS, "default")
        name = made["metadata"]["name"]
        waits_for = f"devices of {DRIVER} in the resource claim default/{name} to be ready"
        assert binding_of(world, "p")[:3] == ("node-a", "PreBind", [waits_for])
        report(world, name, "example.com/ready")
        await world.until(lambda: world.node_of("p") == "node-a", seconds=1)

    play(story)


@pytest.mark.parametrize("is_behind", [False, True], ids=["the watch is there", "it is behind"])
def test_a_claim_that_is_seen_no_more_ends_the_wait_for_its_device(
    is_behind: bool,  # noqa: FBT001
) -> None:
    """Also where the watch showed the allocation only after the answer that it was written."""

    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", NOT_READY), claim_object("c"))
        if is_behind:
            world.lag("ResourceClaim", seconds=0.5)
        world.apply(claiming("p", "c"))
        await asyncio.sleep(30)
        assert binding_of(world, "p")[1] == "PreBind"
        world.withdraw("ResourceClaim")
        world.notice("ResourceClaim")
        await asyncio.sleep(5)
        assert len(world.operator.bindings) == 0
        assert not world.operator.world.cache.assumed_pods
        assert waits(world) == {"error": 1}
        world.restore("ResourceClaim")
        await asyncio.sleep(30)
        report(world, "c", "example.com/ready")
        await world.until(lambda: world.node_of("p") == "node-a")
        assert consumers(world, "c") == ["p"]

    play(story)


def test_a_failed_condition_ends_the_binding_and_the_claim_is_deallocated() -> None:
    async def story(world: VirtualCluster) -> None:
        conditions = {
            "bindingConditions": ["example.com/ready"],
            "bindingFailureConditions": ["example.com/failed"],
        }
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0", **conditions}))
        world.apply(claim_object("c"), claiming("p", "c"))
        await world.until(lambda: devices(world, "c") == ["gpu-0"])
        withdraw(world, "node-a")
        world.apply(slice_of("node-b", {"name": "gpu-1"}))
        report(world, "c", "example.com/failed")
        await world.until(lambda: world.node_of("p") == "node-b")
        assert devices(world, "c") == ["gpu-1"]
        assert waits(world) == {"failure": 1}

    play(story)


def test_devices_that_never_become_ready_are_given_up_after_ten_minutes() -> None:
    async def story(world: VirtualCluster) -> None:
        device = {
            "name": "gpu-0",
            "bindingConditions": ["example.com/ready"],
            "bindingFailureConditions": ["example.com/failed"],
        }
        world.apply(CLASS, slice_of("node-a", device), claim_object("c"))
        world.apply(claiming("p", "c"))
        await world.until(lambda: devices(world, "c") == ["gpu-0"])
        began = world.clock.monotonic()
        withdraw(world, "node-a")
        await world.until(lambda: devices(world, "c") == [], seconds=1200)
        assert world.clock.monotonic() - began >= 600
        assert waits(world) == {"timeout": 1}

    play(story)


def test_a_claim_on_the_wrong_node_is_deallocated_for_its_pod() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(
            CLASS, slice_of("node-a", {"name": "gpu-0"}), slice_of("node-b", {"name": "gpu-0"})
        )
        world.apply(claim_object("c"))
        world.apply(claiming("first", "c", nodeSelector={"kubernetes.io/hostname": "node-a"}))
        await world.settle()
        world.delete("pods", "first")
        await world.until(lambda: "first" not in world.pods)
        world.apply(claiming("second", "c", nodeSelector={"kubernetes.io/hostname": "node-b"}))
        await world.until(lambda: world.node_of("second") == "node-b")
        allocation = claim(world, "c")["status"]["allocation"]
        assert [each["pool"] for each in allocation["devices"]["results"]] == ["node-b"]

    play(story)


@pytest.mark.parametrize("pods", [2, 5])
def test_of_pods_in_flight_for_one_device_one_gets_it(pods: int) -> None:
    async def story(world: VirtualCluster) -> None:
        replace = world.client.replace

        async def slow(path: str, body: Any) -> JsonObject:
            await asyncio.sleep(3)
            return await replace(path, body)

        world.client.replace = slow  # type: ignore[method-assign]
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}))
        for number in range(pods):
            world.apply(claim_object(f"c{number}"), claiming(f"p{number}", f"c{number}"))
        await world.settle()
        await asyncio.sleep(30)
        assert [world.node_of(f"p{number}") for number in range(pods)].count("node-a") == 1

    play(story)


def test_devices_of_a_binding_that_failed_go_to_the_pod_that_waits() -> None:
    async def story(world: VirtualCluster) -> None:
        replace, tries = world.client.replace, 0

        async def failing(path: str, body: Any) -> JsonObject:
            nonlocal tries
            if path.endswith("first/status"):
                tries += 1
                await asyncio.sleep(5)
                raise refused()
            return await replace(path, body)

        world.client.replace = failing  # type: ignore[method-assign]
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}))
        world.apply(claim_object("first"), claiming("first", "first"))
        await world.until(lambda: len(list(world.operator.world.objects.list(IN_FLIGHT))) == 1)
        world.apply(claim_object("second"), claiming("second", "second"))
        await world.until(lambda: world.node_of("second") == "node-a", seconds=120)
        assert tries >= 1

    play(story)


def test_a_claim_that_comes_late_lets_its_pod_into_the_queue() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}), claiming("p", "c"))
        await asyncio.sleep(30)
        assert world.node_of("p") is None
        world.apply(claim_object("c"))
        await world.until(lambda: world.node_of("p") == "node-a")

    play(story)


def test_slices_and_classes_that_come_late_wake_the_pod() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(claim_object("c"), claiming("p", "c"))
        await world.settle()
        world.apply(CLASS)
        await asyncio.sleep(30)
        assert world.node_of("p") is None
        world.apply(slice_of("node-a", {"name": "gpu-0"}))
        await world.until(lambda: world.node_of("p") == "node-a")

    play(story)


_SHARED_POOL = {"name": "card", "generation": 1, "resourceSliceCount": 2}
_COUNTERS = {"slices": {"value": "1"}}


def partitioned(driver: str) -> list[JsonObject]:
    """A pool `card` of node-a: one counter, and one device that uses it up."""
    spec: JsonObject = {"driver": driver, "nodeName": "node-a", "pool": _SHARED_POOL}
    uses = [{"counterSet": "card", "counters": _COUNTERS}]
    counters: JsonObject = {"sharedCounters": [{"name": "card", "counters": _COUNTERS}]}
    parts: JsonObject = {"devices": [{"name": "part", "consumesCounters": uses}]}
    return [
        {
            "apiVersion": f"{GROUP}/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{driver}-{number}"},
            "spec": {**spec, **content},
        }
        for number, content in enumerate((counters, parts))
    ]


def class_of(driver: str) -> JsonObject:
    selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
    return {**CLASS, "metadata": {"name": driver}, "spec": {"selectors": [selector]}}


def test_pools_of_one_name_and_two_drivers_have_counters_of_their_own() -> None:
    async def story(world: VirtualCluster) -> None:
        for driver in ("one.example.com", "two.example.com"):
            world.apply(class_of(driver), *partitioned(driver))
            name = driver.partition(".")[0]
            world.apply(claim_object(name, deviceClassName=driver), claiming(name, name))
        await world.settle()
        assert [world.node_of(name) for name in ("one", "two")] == ["node-a", "node-a"]

    play(story)


def test_the_deletion_of_an_allocated_claim_wakes_the_pod_that_waits_for_its_device() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}), claim_object("first"))
        world.apply(claiming("first", "first"))
        await world.settle()
        assert devices(world, "first") == ["gpu-0"]
        world.apply(claim_object("second"), claiming("second", "second"))
        await world.settle()
        assert world.node_of("second") is None
        kind = world.api.kinds.resource("resourceclaims", GROUP)
        # In use until its pod ends: the claim goes then, and no other event follows.
        delete(world.api, kind, ("default", "first"), DeleteOptions())
        world.delete("pods", "first")
        await world.until(lambda: world.node_of("second") == "node-a", seconds=45)

    play(story)


def waits(world: VirtualCluster) -> dict[str, int]:
    """How often attempts waited for binding conditions, by outcome."""
    name = world.operator.metrics.binding_conditions_allocations.name
    lines = [line for line in world.metrics().decode().splitlines() if line.startswith(name)]
    statuses = [(re.search(r'status="([a-z]+)"', line), line.split()[-1]) for line in lines]
    return {found[1]: round(float(count)) for found, count in statuses if found}


def refused() -> Exception:
    return Forbidden("bind default/p", 403, "Forbidden", "not now")


def withdraw(world: VirtualCluster, node: str) -> None:
    """A driver publishes nothing any more."""
    kind = world.api.kinds.resource("resourceslices", GROUP)
    delete(world.api, kind, ("", f"{node}-gpus"), DeleteOptions())


def report(world: VirtualCluster, name: str, condition: str) -> None:
    """What the driver of a device says about it."""
    stamp = "2026-01-01T00:00:00Z"
    shown = {
        "type": condition,
        "status": "True",
        "reason": "Driver",
        "message": "said so",
        "lastTransitionTime": stamp,
    }
    (result,) = claim(world, name)["status"]["allocation"]["devices"]["results"]
    device = {key: result[key] for key in ("driver", "pool", "device")}
    status = {"status": {"devices": [{**device, "conditions": [shown]}]}}
    world.patch_status("resourceclaims", name, status, GROUP)


# --- taints that evict --------------------------------------------------------------------------


def broken(node: str, effect: str = "NoExecute") -> JsonObject:
    """The slice of a node with its one device, tainted."""
    return slice_of(node, {"name": "gpu-0", "taints": [{"key": "broken", "effect": effect}]})


def executing(seconds: int | None) -> JsonObject:
    toleration: JsonObject = {"key": "broken", "operator": "Exists", "effect": "NoExecute"}
    return toleration if seconds is None else {**toleration, "tolerationSeconds": seconds}


def disruption(world: VirtualCluster, name: str) -> str:
    """The reason for which the pod is being deleted; empty: it is not, or it is gone."""
    conditions = world.pods[name]["status"].get("conditions") or () if name in world.pods else ()
    return next((each["reason"] for each in conditions if each["type"] == "DisruptionTarget"), "")


@pytest.mark.parametrize(
    ("tolerations", "stays_seconds"),
    [
        pytest.param([], 0, id="untolerated: at once"),
        pytest.param([executing(30)], 30, id="tolerated for a while"),
        pytest.param([executing(30), executing(10)], 10, id="the shortest counts"),
        pytest.param([executing(-5)], 0, id="negative: at once"),
        pytest.param([executing(None)], None, id="tolerated for ever"),
    ],
)
def test_a_taint_of_its_device_ends_a_pod_when_its_tolerations_do(
    tolerations: list[JsonObject], stays_seconds: int | None
) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}))
        world.apply(claim_object("c", tolerations=tolerations), claiming("p", "c"))
        await world.until(lambda: world.node_of("p") == "node-a")
        await asyncio.sleep(5)
        world.apply(broken("node-a"))
        if stays_seconds is None:
            await asyncio.sleep(600)
            assert "p" in world.pods
            return
        if stays_seconds:
            await asyncio.sleep(stays_seconds - 1)
            assert disruption(world, "p") == ""
        await world.until(
            lambda: disruption(world, "p") == "DeletionByDeviceTaintManager", seconds=3
        )
        await world.until(lambda: "p" not in world.pods)

    play(story)


def test_a_taint_that_goes_in_time_ends_no_pod_and_one_that_only_keeps_away_neither() -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, slice_of("node-a", {"name": "gpu-0"}))
        world.apply(claim_object("c", tolerations=[executing(30)]), claiming("p", "c"))
        await world.until(lambda: world.node_of("p") == "node-a")
        world.apply(broken("node-a", "NoSchedule"))
        await asyncio.sleep(60)
        world.apply(broken("node-a"))
        await asyncio.sleep(20)
        world.apply(slice_of("node-a", {"name": "gpu-0"}))
        await asyncio.sleep(60)
        assert "p" in world.pods
        assert disruption(world, "p") == ""

    play(story)


def taint_rule(world: VirtualCluster, **spec: Any) -> JsonObject:
    """A rule with a taint that evicts, in the store of the API."""
    taint = {"key": "broken", "effect": "NoExecute"}
    metadata = {"name": "rule", "uid": "rule", "creationTimestamp": timestamp(world.api.now())}
    obj: JsonObject = {"metadata": metadata, "spec": {"taint": taint, **spec}}
    world.api.store.create(f"devicetaintrules.{GROUP}", obj)
    return obj


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        pytest.param({"deviceSelector": {"pool": "node-a"}}, ["q"], id="a pool"),
        pytest.param({"deviceSelector": {}}, [], id="an empty selector is for every device"),
        pytest.param({}, ["p", "q"], id="none is for no device that is in use"),
        pytest.param({"deviceSelector": {"driver": "other"}}, ["p", "q"], id="another driver"),
    ],
)
def test_a_rule_ends_the_pods_of_the_devices_that_it_selects(
    spec: JsonObject, left: list[str]
) -> None:
    async def story(world: VirtualCluster) -> None:
        world.apply(CLASS, *(slice_of(node, {"name": "gpu-0"}) for node in ("node-a", "node-b")))
        for name, node in (("p", "node-a"), ("q", "node-b")):
            selector = {"kubernetes.io/hostname": node}
            world.apply(claim_object(name), claiming(name, name, nodeSelector=selector))
        await world.settle()
        taint_rule(world, **spec)
        await asyncio.sleep(60)
        assert sorted(world.pods) == left

    play(story)


def test_a_rule_keeps_pods_away_until_it_goes_where_decisions_follow_1_37() -> None:
    profile = {
        "apiVersion": "scheduling.stellwerk.dev/v1alpha1",
        "kind": "SchedulerProfile",
        "metadata": {"name": "newer"},
        "spec": {"schedulerName": "newer", "compatibility": "1.37"},
    }
    taint = {"key": "maintenance", "effect": "NoSchedule"}
    rule = {
        "apiVersion": f"{GROUP}/v1",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "maintenance"},
        "spec": {"deviceSelector": {"driver": DRIVER}, "taint": taint},
    }

    async def flow(clock: VirtualClock) -> None:
        options = ClusterOptions(seed=1, heartbeats=False, release="1.37")
        async with open_virtual_cluster(clock, [make_node("node-a")], options) as world:
            world.apply(profile, CLASS, slice_of("node-a", {"name": "gpu-0"}), rule)
            world.apply(claim_object("c"))
            pod = claiming("p", "c")
            pod["spec"]["schedulerName"] = "newer"
            world.apply(pod)
            await world.settle()
            assert world.node_of("p") is None
            reason = world.why_pending("p")
            assert reason is not None
            assert "cannot allocate all claims" in reason[1]
            world.delete("devicetaintrules", "maintenance", GROUP)
            await world.until(lambda: world.node_of("p") == "node-a", seconds=30)

    run_skipping(flow)
