"""Equal nodes share one search: what each is told equals what a search of its own finds."""

from random import Random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.backend.cache import Cache
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import OK
from stellwerk.plugins.dynamic_resources.claims import AllocationError
from stellwerk.plugins.dynamic_resources.node_verdicts import (
    BROKEN,
    FOUND,
    INVALID,
    NONE,
    NodeAllocator,
)
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_claim import device_claim_of
from tests.support.builders import make_cache, make_node
from tests.support.examples import examples

NODES = 6
DRIVERS = ("a.example.com", "b.example.com")
SELECTORS = (
    'device.driver == "a.example.com"',
    'device.attributes["a.example.com"].model == "large"',
    'device.attributes["b.example.com"].uuid.endsWith("1")',
    'device.attributes.exists(d, d == "b.example.com")',
    'device.capacity["a.example.com"].memory.isGreaterThan(quantity("1Gi"))',
    "device.allowMultipleAllocations",
)


class Dice(Random):
    """Chance, by the seed."""

    def maybe(self, chance: float = 0.5) -> bool:
        return self.random() < chance


def device(rng: Dice, name: str, *, counting: bool) -> JsonObject:
    found: JsonObject = {"name": name, "attributes": {"uuid": {"string": str(rng.random())}}}
    attributes = found["attributes"]
    if rng.maybe():
        attributes["model"] = {"string": rng.choice(("large", "small"))}
    if rng.maybe():
        attributes["group"] = rng.choice(({"int": 1}, {"int": 2}, {"bool": True}))
    if rng.maybe(0.4):
        found["capacity"] = {"memory": {"value": rng.choice(("1Gi", "2Gi"))}}
        found["allowMultipleAllocations"] = rng.maybe()
    if rng.maybe(0.15):
        found["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    if counting and rng.maybe():
        used = {"parts": {"value": str(rng.randint(1, 2))}}
        found["consumesCounters"] = [{"counterSet": "card", "counters": used}]
    return found


def slices(rng: Dice) -> list[JsonObject]:
    found = []
    for number in range(rng.randint(2, 9)):
        node = f"node-{rng.randrange(NODES)}"
        where: JsonObject = rng.choice(
            (
                {"nodeName": node},
                {"nodeName": node},
                {"allNodes": True},
                {"nodeSelector": _zone(rng.choice("xy"))},
                {"perDeviceNodeSelection": True},
            )
        )
        pool = f"pool-{number}" if rng.maybe(0.8) else "pool-0"
        counting, count = rng.maybe(0.3), 1
        devices = [device(rng, f"d{each}", counting=counting) for each in range(rng.randint(1, 4))]
        if "perDeviceNodeSelection" in where:
            for each in devices:
                each.update(rng.choice(({"allNodes": True}, {"nodeName": node})))
        if counting:
            count = 2
            sets = [{"name": "card", "counters": {"parts": {"value": "2"}}}]
            found.append(_slice(f"s{number}-sets", pool, count, {**where, "sharedCounters": sets}))
        found.append(_slice(f"s{number}", pool, count, {**where, "devices": devices}, rng))
    return found


def _zone(zone: str) -> JsonObject:
    requirement = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def _slice(
    name: str, pool: str, count: int, spec: JsonObject, rng: Dice | None = None
) -> JsonObject:
    pools = {"name": pool, "generation": 1, "resourceSliceCount": count}
    driver = DRIVERS[0] if rng is None or rng.maybe(0.7) else DRIVERS[1]
    return {"metadata": {"name": name}, "spec": {"driver": driver, "pool": pools, **spec}}


def claim(rng: Dice) -> JsonObject:
    requests = [
        {"name": f"r{number}", **_request(rng, alternatives=rng.maybe(0.3))}
        for number in range(rng.randint(1, 2))
    ]
    devices: JsonObject = {"requests": requests}
    if rng.maybe(0.4):
        kind = rng.choice(("matchAttribute", "distinctAttribute"))
        devices["constraints"] = [{kind: f"a.example.com/{rng.choice(('group', 'uuid'))}"}]
    return {"spec": {"devices": devices}}


def _request(rng: Dice, *, alternatives: bool) -> JsonObject:
    if alternatives:
        return {"firstAvailable": [{"name": f"s{each}", **_exactly(rng)} for each in range(2)]}
    return {"exactly": _exactly(rng)}


def _exactly(rng: Dice) -> JsonObject:
    chosen: JsonObject = {"deviceClassName": "any", "count": rng.randint(1, 2)}
    if rng.maybe(0.15):
        chosen = {"deviceClassName": "any", "allocationMode": "All"}
    if rng.maybe(0.6):
        chosen["selectors"] = [{"cel": {"expression": rng.choice(SELECTORS)}}]
    if rng.maybe(0.2):
        chosen["capacity"] = {"requests": {"memory": "1Gi"}}
    return chosen


def hold(rng: Dice, objects: IndexedObjectStore, name: str, spec: Any) -> None:
    """Let another claim have some device of a slice."""
    chosen = rng.choice(spec["devices"]) if spec.get("devices") else {"name": "d0"}
    result = {"driver": spec["driver"], "pool": spec["pool"]["name"], "device": chosen["name"]}
    if chosen.get("allowMultipleAllocations"):
        result |= {"shareID": name, "consumedCapacity": {"memory": "1Gi"}}
    status = {"allocation": {"devices": {"results": [result]}}}
    objects.set("ResourceClaim", {"metadata": {"name": name, "namespace": "x"}, "status": status})


def alone(node_allocator: NodeAllocator, snapshot: Snapshot, key: Any, row: int) -> tuple[int, str]:
    """What a search of one node finds: its verdict, and the text of what went wrong."""
    known, node = node_allocator.known(key), snapshot.node_at(row)
    try:
        solution = node_allocator.solution(known.allocation_request, node)
    except AllocationError as error:
        return BROKEN, error.text(["x/c"])
    if solution is not None:
        return FOUND, ""
    return (INVALID if node_allocator.resource_pools.pools(node).invalid else NONE), ""


def change(
    rng: Dice,
    cache: Cache,
    objects: IndexedObjectStore,
    published: list[JsonObject],
    step: int,
) -> None:
    """Something happens: devices are taken, a node is labelled, comes or goes, slices change."""
    number = rng.randrange(NODES)
    match rng.randrange(6):
        case 0 | 1:
            hold(rng, objects, f"held-{step}", rng.choice(published)["spec"])
        case 2:
            cache.set_node(parse_node(node(number, rng.choice("xyz"))))
        case 3:
            gone = rng.choice(published)
            objects.remove("ResourceSlice", gone)
        case 4:
            newer = rng.choice(published)
            spec = newer["spec"]
            pool = {**spec["pool"], "generation": spec["pool"]["generation"] + 1}
            objects.set("ResourceSlice", {**newer, "spec": {**spec, "pool": pool}})
        case _:
            cache.set_node(parse_node(node(NODES + step, rng.choice("xy"))))
    cache.update_snapshot()


def node(number: int, zone: str) -> JsonObject:
    return make_node(f"node-{number}", labels={"zone": zone})


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32))
def test_a_shared_answer_is_that_of_a_search_of_the_node_itself(seed: int) -> None:
    rng, objects = Dice(seed), IndexedObjectStore()
    cache = make_cache([node(number, "xy"[number % 2]) for number in range(NODES)])
    objects.set("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
    published = slices(rng)
    for each in published:
        objects.set("ResourceSlice", each)
    snapshot = cache.snapshot
    node_allocator = NodeAllocator(snapshot, objects, lambda: 0.0, 0.0)
    keys = [(device_claim_of(claim(rng)),) for _ in range(3)]
    for step in range(5):
        node_allocator.refresh()
        rows = np.array(sorted(snapshot.row_of.values()))
        for key in keys:
            verdicts, failures = node_allocator.ask(node_allocator.known(key), ["x/c"], rows)
            told = [
                (int(verdict), failures.get(position, OK).message)
                for position, verdict in enumerate(verdicts)
            ]
            fresh = NodeAllocator(snapshot, objects, lambda: 0.0, 0.0)
            fresh.refresh()
            assert told == [alone(fresh, snapshot, key, row) for row in rows.tolist()]
        change(rng, cache, objects, published, step)
