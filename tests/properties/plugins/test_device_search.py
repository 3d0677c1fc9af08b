"""A search that leaves out dead ends finds the devices that one finds which tries everything."""

from random import Random
from typing import Any

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.plugins.dynamic_resources import allocator as allocator_module
from stellwerk.plugins.dynamic_resources.allocating_state import AllocatingState
from stellwerk.plugins.dynamic_resources.allocator import (
    Allocator,
    FilterTimeout,
    FilterTimeoutError,
)
from stellwerk.plugins.dynamic_resources.claims import (
    AllocationError,
    AllocationRequest,
    ClaimToAllocate,
)
from stellwerk.plugins.dynamic_resources.node_verdicts import NodeAllocator
from stellwerk_kube.compatibility import AS_RECORDED, Compatibility, Release
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import device_claim_of
from tests.support.builders import make_cache, make_node
from tests.support.examples import examples

DRIVER = "gpu.example.com"
ENOUGH_STEPS = 20_000
FEW_STEPS = 6_000
TOO_OFTEN = 1 << 40
MENDED = Compatibility.with_release(Release.V1_37)
MODEL = f'device.attributes["{DRIVER}"].model'
SELECTORS = (
    f'{MODEL} == "large"',
    f'{MODEL} == "small"',
    f'{MODEL} != "tiny"',
    f'device.attributes["{DRIVER}"].group == 1',
)


def device(rng: Random, name: str, *, complete: bool) -> JsonObject:
    """One of few kinds; not `complete`: attributes may be missing, and selectors then fail."""
    attributes: JsonObject = {"uuid": {"string": name}}
    if complete or rng.random() < 0.9:
        attributes["model"] = {"string": rng.choice(("large", "large", "small", "tiny"))}
    if complete or rng.random() < 0.9:
        attributes["group"] = {"int": rng.randint(1, 3)}
    found: JsonObject = {"name": name, "attributes": attributes}
    if rng.random() < 0.05:
        found["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    return found


def request(rng: Random, name: str, most: int) -> JsonObject:
    def exactly() -> JsonObject:
        found: JsonObject = {"deviceClassName": "any", "count": rng.randint(1, most)}
        if rng.random() < 0.6:
            found["selectors"] = [{"cel": {"expression": rng.choice(SELECTORS)}}]
        return found

    if rng.random() < 0.2:
        return {"name": name, "firstAvailable": [{"name": f"s{n}", **exactly()} for n in range(2)]}
    if rng.random() < 0.04:
        return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All"}}
    return {"name": name, "exactly": exactly()}


def claim(rng: Random, most: int, *, distinct: bool) -> JsonObject:
    requests = [request(rng, f"r{number}", most) for number in range(rng.randint(1, 4))]
    devices: JsonObject = {"requests": requests, "constraints": []}
    for _ in range(rng.choice((0, 1, 1, 2))):
        kind = "distinctAttribute" if distinct and rng.random() < 0.5 else "matchAttribute"
        found: JsonObject = {kind: f"{DRIVER}/{rng.choice(('group', 'model', 'uuid'))}"}
        if rng.random() < 0.5:
            count = rng.randint(1, len(requests))
            found["requests"] = [each["name"] for each in rng.sample(requests, count)]
        devices["constraints"].append(found)
    return {"spec": {"devices": devices}}


class Node:
    """One node with devices, and claims that are searched on it."""

    def __init__(self, devices: list[JsonObject], rules: Compatibility = AS_RECORDED) -> None:
        cache, objects = make_cache([make_node("node")]), IndexedObjectStore()
        objects.set("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
        pool = {"name": "node", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": "node", "pool": pool, "devices": devices}
        objects.set("ResourceSlice", {"metadata": {"name": "node"}, "spec": spec})
        self.node_allocator = NodeAllocator(cache.snapshot, objects, lambda: 0.0, 0.0, rules)
        self.node_allocator.refresh()
        self.pools = self.node_allocator.resource_pools.pools(cache.snapshot.node_at(0))

    def search(self, claims: list[JsonObject], most_steps: int = ENOUGH_STEPS) -> Any:
        """The devices of each claim and the alternatives, or the text of an error."""
        classes, allocated = self.node_allocator.classes, self.node_allocator.allocated
        rules = self.node_allocator.rules
        wanted = AllocationRequest(
            tuple(ClaimToAllocate.of(device_claim_of(each), classes, rules) for each in claims)
        )
        timeout = FilterTimeout(lambda: 0.0, 0.0, most_steps)
        allocating = AllocatingState(allocated, rules)
        searching = Allocator(wanted, self.pools, allocating, timeout).search()
        try:
            while True:
                next(searching)
        except StopIteration as ended:
            if ended.value is None:
                return None
            given_to = [
                [(each.wanted.choice.full_name, each.device.key) for each in results]
                for results in ended.value.results
            ]
            return given_to, ended.value.ranks
        except AllocationError as error:
            return error.text([str(number) for number in range(len(claims))])


def searched(node: Node, claims: list[JsonObject], often: int) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocator_module, "_MAX_GIVEN_BACK", often)
        return node.search(claims)


@settings(max_examples=examples(150), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    often=st.sampled_from([1, 2, 16]),
    distinct=st.booleans(),
    complete=st.booleans(),
    rules=st.sampled_from([AS_RECORDED, MENDED]),
)
def test_the_devices_are_those_of_a_search_that_tries_everything(
    *, seed: int, often: int, distinct: bool, complete: bool, rules: Compatibility
) -> None:
    rng = Random(seed)
    count = rng.randint(1, 14)
    node = Node([device(rng, f"d{number}", complete=complete) for number in range(count)], rules)
    claims = [claim(rng, rng.choice((2, 5)), distinct=distinct) for _ in range(rng.randint(1, 2))]
    try:
        expected = searched(node, claims, TOO_OFTEN)
    except FilterTimeoutError:
        reject()
    assert searched(node, claims, often) == expected


def large_claim(rng: Random, constraint: str) -> JsonObject:
    """A claim for up to 32 devices in up to 8 requests."""
    left, requests = rng.randint(1, 32), list[JsonObject]()
    while left:
        count = rng.randint(1, left) if len(requests) < 7 else left
        exactly: JsonObject = {"deviceClassName": "any", "count": count}
        if rng.random() < 0.6:
            exactly["selectors"] = [{"cel": {"expression": rng.choice(SELECTORS)}}]
        requests.append({"name": f"r{len(requests)}", "exactly": exactly})
        left -= count
    devices: JsonObject = {"requests": requests}
    if constraint:
        attribute = f"{DRIVER}/{rng.choice(('group', 'model', 'uuid'))}"
        devices["constraints"] = [{constraint: attribute}]
    return {"spec": {"devices": devices}}


def can_be_met(node: Node, claimed: JsonObject) -> bool:
    """Whether every request can have its devices, by augmenting paths; without constraints."""
    devices = list(node.pools.pools[0].devices())
    classes = node.node_allocator.classes
    to_allocate = ClaimToAllocate.of(device_claim_of(claimed), classes)
    places = [each for (each,) in to_allocate.requests for _ in range(each.choice.count)]
    holder: dict[int, int] = {}

    def placed(place: int, tried: set[int]) -> bool:
        wanted = places[place]
        for number, each in enumerate(devices):
            if number in tried or not wanted.selects(each, 0):
                continue
            if wanted.choice.untolerated(each.traits.taints):
                continue
            tried.add(number)
            if number not in holder or placed(holder[number], tried):
                holder[number] = place
                return True
        return False

    return all(placed(place, set()) for place in range(len(places)))


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    constraint=st.sampled_from(["", "matchAttribute", "distinctAttribute"]),
    rules=st.sampled_from([AS_RECORDED, MENDED]),
)
@example(seed=864, constraint="distinctAttribute", rules=AS_RECORDED)
@example(seed=193, constraint="distinctAttribute", rules=AS_RECORDED)
def test_a_large_claim_is_met_wherever_it_can_be_in_few_steps(
    seed: int, constraint: str, rules: Compatibility
) -> None:
    rng = Random(seed)
    node = Node([device(rng, f"d{n}", complete=True) for n in range(rng.randint(1, 128))], rules)
    claimed = large_claim(rng, constraint)
    found = node.search([claimed], FEW_STEPS)
    assert constraint or (found is not None) == can_be_met(node, claimed)
