"""Quantities that say more than any number of a cluster, wherever a quantity may stand."""

import time
from typing import Any

import pytest

from stellwerk.models.pod import parse_pod
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.quantity import SATURATION, canonical_quantity
from tests.support.builders import make_node, make_pod
from tests.support.hostile_fields import DIGITS, Path, put
from tests.support.hostile_world import LoopMeter, hostile_world
from tests.support.in_process import quiet
from tests.support.machine_speed import addition_seconds
from tests.support.storage import claim_volume, make_claim, make_class, make_volume

MOST_ADDITIONS = 5_000_000
"""200 ms where one takes 40 ns: 2 MiB of digits are looked at more than once."""
POD_FIELDS: dict[str, Path] = {
    "a request": ("spec", "containers", 0, "resources", "requests"),
    "a limit": ("spec", "containers", 0, "resources", "limits"),
    "a request of the pod": ("spec", "resources", "requests"),
    "overhead": ("spec", "overhead"),
}
NODE_FIELDS: dict[str, Path] = {
    "allocatable": ("status", "allocatable"),
    "capacity": ("status", "capacity"),
}
DRIVER = "csi.example.com"
PUBLISHED: dict[str, Any] = {"storage_class": "published"}
RESOURCES = ("cpu", "memory", "example.com/gpu")


def amounts(obj: JsonObject) -> list[int]:
    """Every number that parsing makes of the object's quantities."""
    if obj["kind"] == "Node":
        return list(parse_node(obj).allocatable.values())
    parsed = parse_pod(obj).amounts
    maps = (parsed.requests, parsed.scoring_requests, parsed.limits, parsed.overhead)
    numbers = [amount for each in maps for amount in each.values()]
    return [*numbers, parsed.nonzero_cpu_millis, parsed.nonzero_memory_bytes]


@pytest.mark.parametrize("quantity", DIGITS)
@pytest.mark.parametrize("field", [*POD_FIELDS, *NODE_FIELDS])
def test_an_absurd_quantity_is_read_at_once_and_saturates(field: str, quantity: str) -> None:
    pod = field in POD_FIELDS
    obj = make_pod("p") if pod else make_node("n")
    path: Any = POD_FIELDS[field] if pod else NODE_FIELDS[field]
    put(obj, path, dict.fromkeys(RESOURCES, DIGITS[quantity]))
    started = time.thread_time()
    found = amounts(obj)
    assert time.thread_time() - started < MOST_ADDITIONS * addition_seconds()
    assert all(0 <= amount <= SATURATION for amount in found)
    if field != "capacity":  # which no plugin reads
        small = DIGITS[quantity].startswith(("1e-", "0."))
        assert {1 if small else SATURATION} <= set(found)


@pytest.mark.parametrize("quantity", DIGITS)
async def test_decisions_beside_absurd_quantities(quantity: str) -> None:
    most = DIGITS[quantity]
    async with hostile_world(2) as hostile:
        world = hostile.world
        node = make_node("absurd")
        node["status"]["allocatable"] |= dict.fromkeys(RESOURCES, most)
        world.apply(
            node,
            make_pod("bound", node_name="n0", requests=dict.fromkeys(RESOURCES, most)),
            make_pod("pending", requests=dict.fromkeys(RESOURCES, most)),
            make_pod("usual", cpu="100m"),
        )
        await quiet(50)
        assert world.node_of("usual")
        requested = world.cache.update_snapshot().requested
        assert (requested >= 0).all()


@pytest.mark.parametrize("quantity", DIGITS)
def test_a_canonical_form_is_short_and_made_at_once(quantity: str) -> None:
    started = time.thread_time()
    found = canonical_quantity(DIGITS[quantity])
    assert time.thread_time() - started < MOST_ADDITIONS * addition_seconds()
    assert len(found) < 200


def storage_capacity(most: str) -> JsonObject:
    return {
        "metadata": {"name": "room", "namespace": "default"},
        "storageClassName": "published",
        "nodeTopology": {},
        "capacity": most,
        "maximumVolumeSize": most,
    }


@pytest.mark.parametrize("quantity", DIGITS)
async def test_decisions_beside_absurd_amounts_of_storage(quantity: str) -> None:
    most = DIGITS[quantity]
    small = most.startswith(("1e-", "0."))
    async with hostile_world(2) as hostile:
        meter = LoopMeter()
        for kind, obj in (
            *(("StorageClass", make_class(name)) for name in ("wait", "published")),
            ("CSIDriver", {"metadata": {"name": DRIVER}, "spec": {"storageCapacity": True}}),
            ("CSIStorageCapacity", storage_capacity(most)),
            ("PersistentVolume", make_volume("absurd", storage=most)),
            ("PersistentVolumeClaim", make_claim("wait", storage=most)),
            ("PersistentVolumeClaim", make_claim("published", storage=most, **PUBLISHED)),
            ("PersistentVolumeClaim", make_claim("little", **PUBLISHED)),
        ):
            uid = f"{kind}-{obj['metadata']['name']}"
            metadata = {"uid": uid, **obj["metadata"]}
            await hostile.show(meter, "ADDED", {**obj, "kind": kind, "metadata": metadata})
        with meter:
            for claim in ("wait", "published", "little"):
                hostile.world.apply(make_pod(claim, volumes=claim_volume(claim)))
            hostile.world.apply(make_pod("usual", cpu="100m"))
            await quiet(100)
        assert meter.longest_seconds < 2 * MOST_ADDITIONS * addition_seconds()
        assert hostile.world.node_of("usual")
        # The volumes of this world cannot be written: what found a node failed after that.
        refused = [name for name, said in hostile.messages.items() if said.startswith("0/2 nodes")]
        assert "wait" not in refused, "the volume is as large as the claim"
        assert "published" not in refused, "there is as much room as is claimed"
        assert ("little" in refused) is small
