"""What a run of `bench` made goes by its uid; what only looks like it stays."""

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk_cli.commands import bench_objects
from stellwerk_cli.commands.bench_objects import (
    LABEL,
    NAMESPACES,
    NODES,
    RECORDS,
    WRITERS,
    Made,
    RunObjects,
    delete_exactly,
    find_left,
)
from stellwerk_kube.errors import ApiError, Conflict, SchedulerError
from stellwerk_kube.json_values import JsonObject
from tests.support.memory_client import MemoryClient

NAME = "bench-0123456789abcdef0123"


class Numbering(MemoryClient):
    """An API server that gives uids, and can lose the answer to one creation."""

    def __init__(self) -> None:
        super().__init__()
        self.lost = ""

    @override
    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]:
        below = f"{path.partition('?')[0]}/"
        found = [p for p in self.objects if p.startswith(below) and "/" not in p[len(below) :]]
        return [self.objects[each] for each in found], ""

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        name = body["metadata"]["name"]
        if f"{path}/{name}" in self.objects:
            raise Conflict(f"create {name}", 409, "AlreadyExists", "it is there")
        uid = f"uid-{len(self.requests)}"
        made = await super().create(path, {**body, "metadata": {**body["metadata"], "uid": uid}})
        if name == self.lost:
            raise ApiError(f"create {name}", 500, "InternalError", "the answer was lost")
        return made


def node(name: str) -> JsonObject:
    return {"metadata": {"name": name, "labels": {LABEL: NAME}}}


def nodes(number: int) -> list[JsonObject]:
    return [node(f"{NAME}-{index:05d}") for index in range(number)]


async def killed(client: MemoryClient, number: int = 2) -> None:
    """A run that made nodes and a namespace, and was killed."""
    made = RunObjects(client, NAME)
    await made.open()
    await made.create("node", nodes(number))
    await made.create("namespace", [node(f"{NAME}-basic-ab12")])


def names(client: MemoryClient) -> list[str]:
    return sorted(path.rpartition("/")[2] for path in client.objects)


async def test_a_run_deletes_what_it_made_and_its_record() -> None:
    client = Numbering()
    made = RunObjects(client, NAME)
    await made.open()
    await made.create("node", nodes(WRITERS + 1))
    assert names(client) == [
        *(f"{NAME}-{index:05d}" for index in range(WRITERS + 1)),
        f"stellwerk-{NAME}",
    ]
    await made.delete_all()
    assert client.objects == {}


async def test_what_a_killed_run_left_is_found_and_exactly_that_goes() -> None:
    client = Numbering()
    await killed(client)
    client.put(f"{NAMESPACES}/{NAME}-basic-ab12/pods/pod-1", {"metadata": {"name": "pod-1"}})
    left = await find_left(client)
    assert str(left) == f"2 nodes ({NAME}-00000, …), namespace {NAME}-basic-ab12 (1 pod)"
    # Made between question and act: a node with the label of the run and a name like its others.
    client.put(f"{NODES}/{NAME}-00002", {"metadata": {**node(f"{NAME}-00002")["metadata"]}})
    assert await delete_exactly(client, left) == []
    assert names(client) == [f"{NAME}-00002", "pod-1"]


async def test_an_object_that_took_the_name_meanwhile_stays() -> None:
    client = Numbering()
    await killed(client)
    left = await find_left(client)
    path = f"{NODES}/{NAME}-00001"
    client.put(path, {"metadata": {**client.objects[path]["metadata"], "uid": "another"}})
    assert await delete_exactly(client, left) == [f"node/{NAME}-00001"]
    assert names(client) == [f"{NAME}-00001"]


@pytest.mark.parametrize("label", [NAME, "x"])
async def test_a_label_alone_shows_nothing(label: str) -> None:
    client = Numbering()
    await killed(client)
    labels = {"labels": {LABEL: label}}
    client.put(f"{NAMESPACES}/production", {"metadata": {"name": "production", **labels}})
    client.put(f"{NODES}/node-1", {"metadata": {"name": "node-1", "uid": "n", **labels}})
    left = await find_left(client)
    assert left.unproven == ["node/node-1", "namespace/production"]
    await delete_exactly(client, left)
    assert names(client) == ["node-1", "production"]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param(f"stellwerk-{NAME}", {"node.1": "node-1 n\n"}, id="another name"),
        pytest.param(f"stellwerk-{NAME}", {"node.1": "-1 n\n-00001\n- n"}, id="no suffix of a run"),
        pytest.param("stellwerk-bench-", {"node.1": "-00001 n\n"}, id="no id"),
        pytest.param("stellwerk-node", {"node.1": "-1 n\n"}, id="another prefix"),
        pytest.param(f"stellwerk-{NAME}", {"pod.1": "-00001 n\n", "x": ""}, id="another kind"),
    ],
)
async def test_a_record_that_no_run_writes_names_nothing(name: str, data: JsonObject) -> None:
    client = Numbering()
    metadata = {"name": name, "uid": "r", "labels": {LABEL: NAME}}
    client.put(f"{RECORDS}/{name}", {"metadata": metadata, "data": data})
    client.put(f"{NODES}/node-1", {"metadata": {"name": "node-1", "uid": "n"}})
    client.put(f"{NODES}/{NAME}-1", {"metadata": {"name": f"{NAME}-1", "uid": "n"}})
    assert (await find_left(client)).made == []


async def test_a_node_whose_creation_was_not_answered_goes_with_the_run() -> None:
    client = Numbering()
    client.lost = f"{NAME}-00001"
    made = RunObjects(client, NAME)
    await made.open()
    with pytest.raises(ApiError, match="the answer was lost"):
        await made.create("node", nodes(2))
    await made.delete_all()
    assert client.objects == {}


async def test_a_strangers_node_with_a_name_of_the_run_stays() -> None:
    client = Numbering()
    client.put(f"{NODES}/{NAME}-00001", node(f"{NAME}-00001"))
    made = RunObjects(client, NAME)
    await made.open()
    with pytest.raises(Conflict):
        await made.create("node", nodes(3))
    await made.delete_all()
    assert names(client) == [f"{NAME}-00001"]


async def test_what_does_not_go_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_objects, "_CLEAN_SECONDS", 0.0)
    client = Numbering()
    await killed(client, 1)
    left = await find_left(client)

    async def nothing(path: str, uid: str) -> None:
        """A finalizer keeps it."""

    monkeypatch.setattr(client, "delete", nothing)
    with pytest.raises(SchedulerError, match=f"left: 1 node .{NAME}-00000.*--clean"):
        await delete_exactly(client, left)


def test_an_object_is_shown_as_kubectl_names_it() -> None:
    assert str(Made("priorityclass", NAME, "u")) == f"priorityclass/{NAME}"
