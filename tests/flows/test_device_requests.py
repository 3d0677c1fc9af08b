"""Which requests devices cost, in which order: as the reference lists them for kube-scheduler."""

import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Forbidden
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

GROUP = "resource.k8s.io"
CLAIMS = f"resourceclaims.{GROUP}"
FINALIZER = "resource.kubernetes.io/delete-protection"
STALE = "resource.kubernetes.io/extended-resource-claim"
CLASS: JsonObject = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": "example.com/gpu"},
}
SLICE: JsonObject = {
    "apiVersion": f"{GROUP}/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "gpus"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    },
}

Story = Callable[[VirtualCluster, list[str]], Coroutine[Any, Any, None]]


def play(story: Story) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with open_virtual_cluster(clock, [make_node("a")]) as world:
            world.apply(CLASS, SLICE)
            await story(world, listen(world))

    run_skipping(flow)


def listen(world: VirtualCluster) -> list[str]:
    """Note every write of the operator from now on, in words."""
    client, seen = world.client, list[str]()
    bind, create, replace = client.bind, client.create, client.replace
    patch_object, delete_object, patch_pod = client.patch, client.delete, client.patch_pod_status

    async def binding(namespace: str, name: str, uid: str, node_name: str) -> None:
        seen.append(f"bind {name}")
        await bind(namespace, name, uid, node_name)

    async def creating(path: str, body: Mapping[str, Any]) -> JsonObject:
        seen.append(f"POST {plural(path)} {body['metadata'].get('generateName', '')}")
        return await create(path, body)

    async def replacing(path: str, body: Mapping[str, Any]) -> JsonObject:
        status = path.endswith("/status")
        kept = FINALIZER in (body["metadata"].get("finalizers") or ())
        what = "status" if status else "finalizer" if kept else "no finalizer"
        seen.append(f"PUT claim {what}")
        return await replace(path, body)

    async def patching(path: str, body: Mapping[str, Any], **options: Any) -> JsonObject:
        if "/resourceclaims/" in path:
            seen.append(f"PATCH claim {options['content_type'].partition('+')[0]}")
        return await patch_object(path, body, **options)

    async def deleting(path: str, uid: str) -> None:
        seen.append("DELETE claim")
        await delete_object(path, uid)

    async def patching_pod(
        namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        fields = patch["status"].keys() - {"conditions"}
        seen.extend(f"PATCH pod {field}" for field in sorted(fields))
        await patch_pod(namespace, name, patch, urgent=urgent)

    client.bind, client.create, client.replace = binding, creating, replacing  # type: ignore[method-assign]
    client.patch, client.delete = patching, deleting  # type: ignore[method-assign]
    client.patch_pod_status = patching_pod  # type: ignore[method-assign]
    return seen


def plural(path: str) -> str:
    return path.rpartition("/")[2]


def claim_object(name: str, **metadata: Any) -> JsonObject:
    exactly = {"deviceClassName": "gpu"}
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default", **metadata},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
    }


def pod(name: str, **spec: Any) -> JsonObject:
    made = make_pod(name, scheduler_name="stellwerk", **spec)
    del made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", **made}


def claiming(name: str, claim: str) -> JsonObject:
    return pod(name, resourceClaims=[{"name": "c", "resourceClaimName": claim}])


def classic(name: str) -> JsonObject:
    """A pod that asks for an extended resource, which the class backs."""
    limits = {"example.com/gpu": "1"}
    container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": limits}}
    return pod(name, containers=[container])


def refuse_once(world: VirtualCluster) -> None:
    bind, tries = world.client.bind, 0

    async def refusing(namespace: str, name: str, uid: str, node_name: str) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise Forbidden(f"bind {name}", 403, "Forbidden", "not now")
        await bind(namespace, name, uid, node_name)

    world.client.bind = refusing  # type: ignore[method-assign]


def count(world: VirtualCluster, series: str) -> int:
    found = re.search(rf"^{re.escape(series)} (\d+)", world.metrics().decode(), re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_claim_is_written_before_its_pod_is_bound() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        world.apply(claim_object("c"), claiming("p", "c"))
        await world.until(lambda: world.node_of("p") == "a")
        assert seen == [
            "PATCH pod nominatedNodeName",
            "PUT claim finalizer",
            "PUT claim status",
            "bind p",
        ]

    play(story)


def test_a_claim_that_is_allocated_is_reserved_in_one_request() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        world.apply(claim_object("c"), claiming("first", "c"))
        await world.until(lambda: world.node_of("first") == "a")
        seen.clear()
        world.apply(claiming("second", "c"))
        await world.until(lambda: world.node_of("second") == "a")
        assert seen == ["PATCH pod nominatedNodeName", "PUT claim status", "bind second"]

    play(story)


def test_extended_resources_make_a_claim_of_their_own() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        world.apply(classic("p"))
        await world.until(lambda: world.node_of("p") == "a")
        assert seen == [
            "PATCH pod nominatedNodeName",
            "POST resourceclaims p-extended-resources-",
            "PUT claim finalizer",
            "PUT claim status",
            "PATCH pod extendedResourceClaimStatus",
            "bind p",
        ]
        assert count(world, 'scheduler_resourceclaim_creates_total{status="success"}') == 1

    play(story)


def test_a_failed_binding_takes_the_reservation_back_by_a_strategic_merge_patch() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        refuse_once(world)
        world.apply(claim_object("c"), claiming("p", "c"))
        await world.until(lambda: "bind p" in seen)
        assert seen[1:4] == [
            "PUT claim finalizer",
            "PUT claim status",
            "PATCH claim application/strategic-merge-patch",
        ]

    play(story)


def test_a_failed_binding_deletes_the_claim_for_extended_resources() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        refuse_once(world)
        world.apply(classic("p"))
        await world.until(lambda: world.node_of("p") == "a")
        back = seen.index("PUT claim no finalizer")
        assert seen[back : back + 2] == ["PUT claim no finalizer", "DELETE claim"]
        assert seen.index("PATCH pod extendedResourceClaimStatus") < back
        assert len(list(world.api.all(CLAIMS, "default"))) == 1

    play(story)


def test_a_claim_that_an_earlier_attempt_has_left_is_deleted_first() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        gated = classic("p")
        gated["spec"]["schedulingGates"] = [{"name": "wait"}]
        world.apply(gated)
        owner = {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "p",
            "uid": world.pods["p"]["metadata"]["uid"],
            "controller": True,
        }
        left = claim_object("left", annotations={STALE: "true"}, ownerReferences=[owner])
        world.apply(left)
        ungated = {**world.pods["p"], "apiVersion": "v1", "kind": "Pod"}
        world.apply({**ungated, "spec": {**ungated["spec"], "schedulingGates": []}})
        await world.until(lambda: world.node_of("p") == "a")
        assert seen[:2] == ["PUT claim no finalizer", "DELETE claim"]
        assert world.api.find(CLAIMS, "default", "left") is None

    play(story)


def test_a_claim_that_is_deleted_while_it_is_written_costs_its_pod_alone() -> None:
    async def story(world: VirtualCluster, seen: list[str]) -> None:
        replace = world.client.replace

        async def late(path: str, body: Mapping[str, Any]) -> JsonObject:
            if path.endswith("/doomed/status") and world.api.find(CLAIMS, "default", "doomed"):
                kind = world.api.kinds.resource("resourceclaims", GROUP)
                delete(world.api, kind, ("default", "doomed"), DeleteOptions())
            return await replace(path, body)

        world.client.replace = late  # type: ignore[method-assign]
        world.apply(claim_object("doomed"), claiming("p", "doomed"))
        world.apply(pod("other"))
        await world.until(lambda: world.node_of("other") == "a")
        await world.settle()
        assert world.node_of("p") is None
        assert "PUT claim status" in seen

    play(story)
