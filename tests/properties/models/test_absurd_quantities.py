"""Quantities that say more than any number of a cluster, wherever a quantity may stand."""

import time
from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import parse_node
from stellwerk.models.pod import parse_pod
from stellwerk.models.quantity import SATURATION
from tests.support.builders import make_node, make_pod
from tests.support.hostile_fields import DIGITS, Path, put
from tests.support.hostile_world import hostile_world
from tests.support.in_process import quiet
from tests.support.machine_speed import addition_seconds

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
