"""A node is uncordoned only by what cordoned it, whatever others do to it meanwhile."""

from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.models.pod import parse_pod
from stellwerk_cli.commands.moving import CORDON_ANNOTATION, Cordon, _evict
from stellwerk_kube.errors import Conflict
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_pod
from tests.support.memory_client import MemoryClient

PATH = "/api/v1/nodes/n1"


class OneNode(MemoryClient):
    """A cluster of one node, in which patches compare uid and resourceVersion."""

    def __init__(self) -> None:
        super().__init__()
        self.put(PATH, {"metadata": {"name": "n1", "uid": "1"}, "spec": {}})
        self.kubelet_writes = 0
        """Writes of another client that come just before ours."""

    def change(self, metadata: JsonObject | None = None, **spec: Any) -> None:
        """Write the node as another client would; None removes an annotation."""
        node = self.objects[PATH]
        annotations = {**node["metadata"].get("annotations", {}), **(metadata or {})}
        kept = {key: value for key, value in annotations.items() if value is not None}
        body = {**node, "metadata": {**node["metadata"], "annotations": kept}}
        self.put(PATH, {**body, "spec": {**node["spec"], **spec}})

    def is_cordoned(self) -> bool:
        return bool(self.objects[PATH]["spec"].get("unschedulable"))

    @override
    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        if self.kubelet_writes:
            self.kubelet_writes -= 1
            self.change()
        for key in ("uid", "resourceVersion"):
            if body["metadata"][key] != self.objects[path]["metadata"][key]:
                raise Conflict(f"patch {path}", 409, "Conflict", "the object has been modified")
        return await super().patch(path, body, content_type=content_type)


async def test_its_own_cordon_is_undone_and_its_mark_removed() -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make()
    assert client.is_cordoned()
    assert CORDON_ANNOTATION in client.objects[PATH]["metadata"]["annotations"]
    client.change({"node.alpha.kubernetes.io/ttl": "0"})
    assert await cordon.undo()
    assert not client.is_cordoned()
    assert CORDON_ANNOTATION not in client.objects[PATH]["metadata"]["annotations"]


@pytest.mark.parametrize("mark", [None, "of an interrupted run"])
async def test_a_node_that_was_cordoned_before_is_left_so(
    mark: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    client = OneNode()
    client.change({CORDON_ANNOTATION: mark}, unschedulable=True)
    cordon = Cordon(client, "n1")
    await cordon.make()
    assert not await cordon.undo()
    assert client.is_cordoned()
    assert client.requests == []
    reason = "by a plan defrag --apply that was interrupted" if mark else "it was cordoned before"
    assert f"n1 stays cordoned: {reason}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        pytest.param({CORDON_ANNOTATION: None}, "of this cordon is gone", id="the mark is gone"),
        pytest.param({CORDON_ANNOTATION: "x"}, "of this cordon is another", id="another mark"),
        pytest.param({"maintenance": "yes"}, "its annotation maintenance was", id="a note"),
    ],
)
async def test_a_cordon_that_was_changed_meanwhile_stays_and_a_line_says_so(
    annotations: JsonObject, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make()
    client.change(annotations, unschedulable=True)
    assert not await cordon.undo()
    assert client.is_cordoned()
    said = capsys.readouterr().err
    assert said.startswith("n1 stays cordoned: ")
    assert reason in said


async def test_a_node_that_was_made_anew_is_not_ours() -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make()
    node = client.objects[PATH]
    client.put(PATH, {**node, "metadata": {**node["metadata"], "uid": "2"}})
    assert not await cordon.undo()
    assert client.is_cordoned()


async def test_a_node_that_is_gone_needs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make()
    del client.objects[PATH]
    assert not await cordon.undo()
    assert capsys.readouterr().err == "n1 is gone\n"


async def test_a_node_that_was_uncordoned_meanwhile_loses_the_mark_alone() -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make()
    client.change(unschedulable=False)
    assert await cordon.undo()
    assert client.objects[PATH]["spec"] == {"unschedulable": False}
    assert CORDON_ANNOTATION not in client.objects[PATH]["metadata"]["annotations"]


async def test_writes_of_a_kubelet_in_between_are_waited_out_but_not_without_end() -> None:
    client = OneNode()
    client.kubelet_writes = 4
    cordon = Cordon(client, "n1")
    await cordon.make()
    client.kubelet_writes = 4
    assert await cordon.undo()
    client.kubelet_writes = 5
    with pytest.raises(Conflict):
        await Cordon(client, "n1").make()
    assert not client.is_cordoned()


async def test_a_lasting_cordon_has_no_mark() -> None:
    client = OneNode()
    cordon = Cordon(client, "n1")
    await cordon.make(lasting=True)
    assert client.is_cordoned()
    assert cordon.is_made
    assert not client.objects[PATH]["metadata"].get("annotations")


async def test_an_eviction_is_of_the_pod_of_the_plan_and_of_no_other_of_its_name() -> None:
    client = OneNode()
    pod = parse_pod(make_pod("a", namespace="default"))
    path = "/api/v1/namespaces/default/pods/a/eviction"
    await _evict(client, pod)  # type: ignore[arg-type]
    (stored,) = (obj for key, obj in client.objects.items() if key.startswith(path))
    assert stored["deleteOptions"] == {"preconditions": {"uid": pod.uid}}
