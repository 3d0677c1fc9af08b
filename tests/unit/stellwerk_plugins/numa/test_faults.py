"""Faults of topologies: each is said once, in the condition where there is one."""

import asyncio
from typing import Any

import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.errors import NotFound
from stellwerk_plugins.numa.args import NodeResourceTopologyMatchArgs
from stellwerk_plugins.numa.columns import Zones
from stellwerk_plugins.numa.faults import TopologyFaults
from tests.support.builders import make_cache, make_node
from tests.support.in_process import Notes
from tests.support.plugin_runs import PluginHandle


class Api:
    """Takes patches into the store, as a watch would deliver them."""

    def __init__(self, objects: IndexedObjectStore, *, has_status: bool) -> None:
        self.objects, self.has_status = objects, has_status
        self.patches = 0

    async def patch(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.patches += 1
        name = path.split("/")[-2]
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
