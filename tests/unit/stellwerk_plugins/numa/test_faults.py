"""Faults of topologies: each is said once, in the condition where there is one."""

import asyncio
from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk_kube.errors import ApiError, NotFound
from stellwerk_plugins.numa.args import NodeResourceTopologyMatchArgs
from stellwerk_plugins.numa.columns import Zones
from stellwerk_plugins.numa.faults import TopologyFaults
from stellwerk_plugins.numa.topology import parse_topology
from tests.support.builders import make_cache, make_node
from tests.support.in_process import Notes
from tests.support.plugin_runs import PluginHandle


class Api:
    """Takes patches into the store, as a watch would deliver them."""

    def __init__(self, objects: IndexedObjectStore, *, has_status: bool) -> None:
        self.objects, self.has_status = objects, has_status
        self.patches = 0
        self.refused: set[str] = set()

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.patches += 1
        name = path.split("/")[-2]
        if name in self.refused:
            raise ApiError(f"cannot patch {path}", 422, "Invalid", "status is not an object")
        if not self.has_status:
            raise NotFound(f"cannot patch {path}", 404, "NotFound", "no such path")
        kind = "NodeResourceTopology"
        obj = self.objects.get(kind, "", name)
        assert obj is not None
        self.objects.set(kind, {**obj, **body})
        return body


def topology(name: str, zone: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "zones": [{"name": zone, "type": "Node"}]}


@pytest.mark.parametrize("has_status", [True, False])
def test_a_fault_is_said_once_and_taken_back(*, has_status: bool) -> None:
    cache, objects, notes = make_cache([make_node("a")]), IndexedObjectStore(), Notes()
    handle: Any = PluginHandle(cache.snapshot, objects)
    task = TopologyFaults(objects, Zones(handle, NodeResourceTopologyMatchArgs()), notes)
    api: Any = Api(objects, has_status=has_status)
    objects.set("NodeResourceTopology", topology("a", "node-99"))
    objects.set("NodeResourceTopology", topology("b", "node-0"))
    for _ in range(3):
        asyncio.run(task.run(api))
    ((_, reason, note),) = notes.about("a")
    assert reason == "Invalid"
    assert "its name is not node-0 to node-63" in note
    assert notes.about("b") == []
    assert api.patches == 1
    right = topology("a", "node-1")
    status = (objects.get("NodeResourceTopology", "", "a") or {}).get("status")
    objects.set("NodeResourceTopology", {**right, "status": status} if status else right)
    for _ in range(2):
        asyncio.run(task.run(api))
    assert len(notes.about("a")) == 1
    if has_status:
        written = objects.get("NodeResourceTopology", "", "a") or {}
        assert written["status"]["conditions"][0]["status"] == "True"
        assert api.patches == 2


def test_an_object_that_is_gone_is_forgotten() -> None:
    cache, objects, notes = make_cache([make_node("a")]), IndexedObjectStore(), Notes()
    handle: Any = PluginHandle(cache.snapshot, objects)
    task = TopologyFaults(objects, Zones(handle, NodeResourceTopologyMatchArgs()), notes)
    api: Any = Api(objects, has_status=False)
    wrong = topology("a", "node-99")
    for _ in range(2):
        objects.set("NodeResourceTopology", wrong)
        asyncio.run(task.run(api))
        objects.remove("NodeResourceTopology", wrong)
        asyncio.run(task.run(api))
    assert len(notes.about("a")) == 2


def test_an_object_that_cannot_be_written_costs_no_other_its_condition() -> None:
    cache, objects, notes = make_cache([make_node("a")]), IndexedObjectStore(), Notes()
    handle: Any = PluginHandle(cache.snapshot, objects)
    task = TopologyFaults(objects, Zones(handle, NodeResourceTopologyMatchArgs()), notes)
    api: Any = Api(objects, has_status=True)
    api.refused = {"a"}
    objects.set("NodeResourceTopology", topology("a", "node-99") | {"status": "none"})
    objects.set("NodeResourceTopology", topology("b", "node-99"))
    for _ in range(2):
        with pytest.raises(ApiError, match="status is not an object"):
            asyncio.run(task.run(api))
    assert (objects.get("NodeResourceTopology", "", "b") or {})["status"]
    assert len(notes.about("a")) == len(notes.about("b")) == 1
    api.refused = set()
    asyncio.run(task.run(api))
    assert (objects.get("NodeResourceTopology", "", "a") or {})["status"] != "none"
    assert len(notes.about("a")) == 1


@pytest.mark.parametrize(
    ("zones", "fault"),
    [
        pytest.param([{"name": "node-0", "type": "Node"}] * 10**6, "of 1000000 zones", id="zones"),
        pytest.param(
            [{"name": "node-0", "type": "Node", "resources": [{}] * 10**5}],
            "only the first 256 resources",
            id="resources of a zone",
        ),
    ],
)
def test_of_endless_lists_only_the_beginning_is_read(zones: list[Any], fault: str) -> None:
    parsed = parse_topology({"metadata": {"name": "a"}, "zones": zones})
    assert fault in parsed.faults[0]
    assert len(parsed.faults) <= 8


def test_a_topology_that_was_made_anew_since_it_was_seen_gets_no_condition_of_the_old_one() -> None:
    cache, objects = make_cache([make_node("a")]), IndexedObjectStore()
    handle: Any = PluginHandle(cache.snapshot, objects)
    task = TopologyFaults(objects, Zones(handle, NodeResourceTopologyMatchArgs()), Notes())
    bodies: list[dict[str, Any]] = []

    class Refusing:
        async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
            bodies.append(body)
            message = 'metadata.uid: Invalid value: "old": field is immutable'
            raise ApiError(f"cannot patch {path}", 422, "Invalid", message)

    api: Any = Refusing()
    wrong = topology("a", "node-99")
    objects.set("NodeResourceTopology", {**wrong, "metadata": {"name": "a", "uid": "old"}})
    asyncio.run(task.run(api))
    assert [each["metadata"] for each in bodies] == [{"uid": "old"}]
    # What was made anew is judged when it is seen.
    objects.set("NodeResourceTopology", {**wrong, "metadata": {"name": "a", "uid": "new"}})
    asyncio.run(task.run(api))
    assert [each["metadata"]["uid"] for each in bodies] == ["old", "new"]
