"""Verdicts for slices and claims that ask for more than any cluster holds, or for nothing."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.plugins.dynamic_resources import node_verdicts
from stellwerk.plugins.dynamic_resources.allocator import Allocator
from stellwerk.plugins.dynamic_resources.node_verdicts import BROKEN, FOUND, NONE, NodeAllocator
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import DeviceClaim, device_claim_of
from stellwerk_kube.resource_slice import PARSED, Slice, kept_slice
from tests.support.builders import make_cache, make_node

DRIVER = "gpu.example.com"
NEVER = 'device.attributes["gpu.example.com"].uuid == "none has this"'


def slice_of(name: str, devices: Sequence[JsonObject], **where: Any) -> JsonObject:
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "devices": list(devices), **where}
    return {"metadata": {"name": name}, "spec": spec}


def gpus(count: int) -> list[JsonObject]:
    return [
        {"name": f"gpu-{each}", "attributes": {"uuid": {"string": str(each)}}}
        for each in range(count)
    ]


def demand(*requests: JsonObject) -> tuple[DeviceClaim, ...]:
    named = [
        {"name": f"r{number}", "exactly": {"deviceClassName": "any", **each}}
        for number, each in enumerate(requests)
    ]
    return (device_claim_of({"spec": {"devices": {"requests": named}}}),)


def selecting(expression: str, **request: Any) -> JsonObject:
    return {"selectors": [{"cel": {"expression": expression}}], **request}


class Cluster:
    def __init__(self, nodes: int, *slices: JsonObject) -> None:
        self.seconds = 0.0
        self.objects = IndexedObjectStore()
        self.objects.set("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
        for each in slices:
            self.objects.set("ResourceSlice", each)
        cache = make_cache([make_node(f"node-{number}") for number in range(nodes)])
        self.rows = np.arange(nodes)
        self.node_allocator = NodeAllocator(
            cache.snapshot, self.objects, lambda: self.seconds, 10.0
        )

    def ask(self, key: tuple[DeviceClaim, ...]) -> tuple[list[int], dict[int, str]]:
        self.node_allocator.refresh()
        verdicts, failures = self.node_allocator.ask(
            self.node_allocator.known(key), ["default/c"], self.rows
        )
        return verdicts.tolist(), {row: status.message for row, status in failures.items()}


def counting(count: int, name: str) -> list[JsonObject]:
    """Slices of a pool whose devices take from a counter that has enough for all of them."""
    sets = [{"name": "card", "counters": {"parts": {"value": str(count)}}}]
    uses = [{"counterSet": "card", "counters": {"parts": {"value": "1"}}}]
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool}
    devices = [{**each, "consumesCounters": uses} for each in gpus(count)]
    return [
        {"metadata": {"name": f"{name}-sets"}, "spec": {**spec, "sharedCounters": sets}},
        {"metadata": {"name": name}, "spec": {**spec, "devices": devices}},
    ]


def test_a_search_without_end_is_given_up_and_others_have_their_answer() -> None:
    # Devices that share counters are tried one by one.
    cluster = Cluster(2, *(each for n in (0, 1) for each in counting(30, f"node-{n}")))
    endless = demand({"count": 15}, selecting(NEVER))
    verdicts, failures = cluster.ask(endless)
    assert verdicts == [BROKEN, BROKEN]
    assert failures[0] == "node node-0: timed out trying to allocate devices"
    assert cluster.ask(demand({"count": 15})) == ([FOUND, FOUND], {})


@pytest.mark.parametrize(
    ("count", "devices"), [(17, (16, 40)), (20, (18, 24)), (32, (31, 64)), (17, (16, 17))]
)
def test_a_node_with_too_few_devices_takes_few_steps(
    monkeypatch: pytest.MonkeyPatch, count: int, devices: tuple[int, int]
) -> None:
    monkeypatch.setattr(node_verdicts, "_STEPS_OF_ONE_NODE", 2_000)
    slices = [slice_of(f"node-{n}", gpus(devices[n]), nodeName=f"node-{n}") for n in (0, 1)]
    cluster = Cluster(2, *slices)
    assert cluster.ask(demand({"count": count})) == ([NONE, FOUND], {})
    assert cluster.ask(demand({"count": 15}, selecting(NEVER))) == ([NONE, NONE], {})


def test_a_claim_for_more_devices_than_a_claim_may_have_is_refused() -> None:
    cluster = Cluster(1, slice_of("node-0", gpus(64), nodeName="node-0"))
    verdicts, failures = cluster.ask(demand({"count": 33}))
    assert verdicts == [BROKEN]
    assert failures[0] == (
        "claim default/c: number of requested devices 33 exceeds the claim limit of 32"
    )


def test_what_took_too_long_is_tried_again_in_a_later_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(1, slice_of("node-0", gpus(8), nodeName="node-0"))
    monkeypatch.setattr(node_verdicts, "_STEPS_OF_ONE_NODE", 2)
    monkeypatch.setattr(node_verdicts, "_STEPS_PER_NODE", 0)
    key = demand(selecting(NEVER))
    assert cluster.ask(key)[0] == [BROKEN]
    monkeypatch.setattr(node_verdicts, "_STEPS_OF_ONE_NODE", 1000)
    assert cluster.ask(key)[0] == [BROKEN]
    cluster.seconds += 1.0
    assert cluster.ask(key)[0] == [NONE]


def test_thousands_of_pools_that_all_nodes_see_are_searched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searches = 0
    search = Allocator.search

    def counted(allocator: Allocator) -> Any:
        nonlocal searches
        searches += 1
        return search(allocator)

    monkeypatch.setattr(Allocator, "search", counted)
    pools = [slice_of(f"net-{number}", gpus(1), allNodes=True) for number in range(2000)]
    local = [slice_of(f"node-{n}", gpus(2), nodeName=f"node-{n}") for n in range(200)]
    cluster = Cluster(200, *pools, *local)
    assert cluster.ask(demand({"count": 32}))[0] == [FOUND] * 200
    assert searches == 1


def test_a_slice_full_of_attributes_costs_no_multiple_of_its_size() -> None:
    names = [f"{letter}{number}" for letter in string.ascii_lowercase for number in range(160)]
    devices = [
        {
            "name": f"d{number}",
            "attributes": {
                f"example.com/{names[(number * 32 + each) % len(names)]}": {"string": "x" * 64}
                for each in range(32)
            },
        }
        for number in range(128)
    ]
    written = slice_of("huge", devices, allNodes=True)
    parsed = kept_slice(written)[PARSED]
    assert isinstance(parsed, Slice)
    held = sum(len(column.values) for column in parsed.columns.values())
    assert held == 128 * 32, "a value is held once, and nothing for devices that have none"
    assert len(orjson.dumps(written)) < 1.5 * 2**20
    assert [len(device.attributes) for device in parsed.devices()] == [32] * 128


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"devices": [{"attributes": {}}]}, id="a device without a name"),
        pytest.param({"pool": {"name": 7}}, id="a pool that is named by a number"),
        pytest.param({"devices": [{"name": "x", "capacity": {"m": {"value": "?"}}}]}, id="no size"),
        pytest.param({"devices": [{"name": "x", "capacity": {"m": 10**40}}]}, id="a huge number"),
        pytest.param({"nodeSelector": {"nodeSelectorTerms": [7]}}, id="a term that is a number"),
    ],
)
def test_a_malformed_slice_is_left_out_and_others_count(change: JsonObject) -> None:
    good = slice_of("node-0", gpus(1), nodeName="node-0")
    bad = slice_of("bad", gpus(1), nodeName="node-0")
    cluster = Cluster(1, good, {**bad, "spec": {**bad["spec"], **change}})
    assert cluster.ask(demand({"count": 1}))[0] == [FOUND]
    assert cluster.ask(demand({"count": 2}))[0] == [NONE]


def test_an_attribute_of_an_unknown_kind_is_an_error_where_it_is_read() -> None:
    devices = gpus(1)
    devices[0]["attributes"]["list"] = {"strings": ["a", "b"]}
    cluster = Cluster(1, slice_of("node-0", devices, nodeName="node-0"))
    assert cluster.ask(demand({}))[0] == [FOUND]
    reading = demand(selecting(f'device.attributes["{DRIVER}"].list == "a"'))
    assert cluster.ask(reading)[1] == {
        0: "claim default/c: selector #0: CEL runtime error: unsupported attribute value"
    }


@pytest.mark.parametrize("groups", [["fast"], []])
def test_devices_in_compatibility_groups_are_left_alone_with_their_pool(groups: list[str]) -> None:
    sets, devices = counting(4, "node-0")
    devices["spec"]["devices"][0]["consumesCounters"] = [
        {**devices["spec"]["devices"][0]["consumesCounters"][0], "compatibilityGroups": groups}
    ]
    cluster = Cluster(1, sets, devices)
    verdicts, _ = cluster.ask(demand({"count": 1}))
    assert verdicts == [NONE if groups else FOUND]
