"""A reader of lists beside servers that forget, lack and garble them."""

from collections.abc import Callable, Iterator
from urllib.parse import parse_qs, urlsplit

import pytest
from typing_extensions import override

from stellwerk.client.kubernetes import KubernetesClient
from stellwerk.client.reading import ReadOnlyClient
from stellwerk.framework.offline import Offline, OfflineError
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk_cli.reading.local_port import _ReadCluster
from stellwerk_cli.reading.needs import KINDS
from stellwerk_cli.reading.reader import BY_KIND, KindReader, Unread
from stellwerk_kube.errors import ApiError, Forbidden, NotAList, NotFound, RightsMissingError
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod

ABSENT = NotFound("list", 404, "NotFound", "the server has no such resource")


class Server(Offline):
    """Lists by plural; a function in place of a list gives the answer, or raises."""

    def __init__(self, **lists: list[JsonObject] | Callable[[dict[str, str]], JsonObject]) -> None:
        self.lists = lists
        self.asked: list[str] = []

    @override
    async def get(self, path: str) -> JsonObject:
        parts = urlsplit(path)
        plural = parts.path.rpartition("/")[2]
        query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        if "labelSelector" in query:
            return {"items": []}
        self.asked.append(path)
        found = self.lists.get(plural)
        if found is None:
            raise ABSENT
        return found(query) if callable(found) else a_list(KIND_OF[plural], found)


KIND_OF = {"pods": "Pod", "nodes": "Node", "namespaces": "Namespace", "services": "Service"}


def a_list(kind: str, items: list[JsonObject], token: str = "") -> JsonObject:
    """A page of a list."""
    metadata = {"resourceVersion": "7", "continue": token}
    return {"kind": f"{kind}List", "metadata": metadata, "items": items}


async def filled(server: Server, version: str = "v1.36.2") -> _ReadCluster:
    """The nodes and pods of a server, read."""
    cluster = _ReadCluster(server, "")
    await cluster.read_pods(version)
    return cluster


def test_every_kind_that_decisions_read_has_a_consequence() -> None:
    assert KINDS.keys() == {each.kind for each in WATCHED} - {"Node", "Pod"}


async def test_a_list_that_expires_begins_anew_and_forgets_what_went_meanwhile() -> None:
    answers: Iterator[JsonObject | ApiError] = iter(
        [
            a_list(
                "Pod", [make_pod("gone", node_name="n1"), make_pod("stays", node_name="n1")], "x"
            ),
            ApiError("list pods", 410, "Expired", "the continue token is too old"),
            a_list("Pod", [make_pod("stays", node_name="n1")], "y"),
            a_list("Pod", [make_pod("late")]),
        ]
    )

    def page(_: dict[str, str]) -> JsonObject:
        answer = next(answers)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    cluster = await filled(Server(pods=page, nodes=[make_node("n1")]))
    world = cluster.operator.world
    assert [pod.name for pod in world.cache.pods()] == ["stays"]
    assert [entry.newest.name for entry in world.queue.entries.values()] == ["late"]
    assert cluster.reading("").pods == 2


async def test_a_list_that_expires_again_and_again_is_an_error() -> None:
    def page(query: dict[str, str]) -> JsonObject:
        if "continue" in query:
            raise ApiError("list pods", 410, "Expired", "too old")
        return a_list("Pod", [make_pod("a")], "x")

    with pytest.raises(ApiError, match="410"):
        await filled(Server(pods=page, nodes=[]))


async def test_a_node_that_a_pod_names_and_that_was_not_listed_is_looked_for_once_more() -> None:
    lists = iter([[make_node("n1"), make_node("old")], [make_node("n1"), make_node("new")]])
    server = Server(
        nodes=lambda _: a_list("Node", next(lists)), pods=[make_pod("a", node_name="new")]
    )
    cluster = await filled(server)
    assert {node.name for node in cluster.operator.world.cache.nodes()} == {"n1", "new"}
    assert cluster.progress().startswith("reading the cluster: ")
    assert cluster.progress().endswith("2 nodes, 1 pods")
    assert cluster.reading("").nodes == 2


async def test_pods_are_listed_without_those_that_have_finished() -> None:
    server = Server(nodes=[], pods=[])
    await filled(server)
    (asked,) = [each for each in server.asked if "/pods?" in each]
    assert "status.phase%21%3DSucceeded" in asked


async def test_a_malformed_object_is_skipped_and_named(caplog: pytest.LogCaptureFixture) -> None:
    malformed: list[JsonObject] = [
        {"metadata": {"name": "bad\x1b[31m", "namespace": "d", "uid": "1"}, "spec": []},
        {"metadata": None},
        make_pod("good"),
    ]
    cluster = await filled(Server(nodes=[], pods=malformed))
    assert [each.newest.name for each in cluster.operator.world.queue.entries.values()] == ["good"]
    assert caplog.text.count("malformed and skipped") == 2


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"kind": "PodList", "metadata": {}, "items": []}, id="no version"),
        pytest.param({"message": "please log in"}, id="a proxy's page"),
        pytest.param(a_list("Node", []), id="another kind"),
    ],
)
async def test_what_is_no_list_is_never_taken_for_an_empty_one(answer: JsonObject) -> None:
    with pytest.raises(NotAList):
        await filled(Server(nodes=[], pods=lambda _: answer))


async def test_without_pods_nothing_is_decided() -> None:
    message = 'pods is forbidden: User "jane" cannot list resource "pods"'

    def page(_: dict[str, str]) -> JsonObject:
        raise Forbidden("list", 403, "Forbidden", message)

    with pytest.raises(RightsMissingError) as refused:
        await filled(Server(nodes=[], pods=page))
    _, binding = refused.value.manifests
    assert binding["subjects"] == [
        {"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}
    ]


async def test_versions_that_cannot_be_read_are_no_empty_kind() -> None:
    groups: JsonObject = {
        "kind": "APIGroupDiscoveryList",
        "items": [
            {
                "metadata": {"name": "resource.k8s.io"},
                "versions": [{"version": "v9", "resources": [{"resource": "resourceclaims"}]}],
            }
        ],
    }
    server = Server(apis=lambda _: groups)
    found = await KindReader(server).read(BY_KIND["ResourceClaim"], lambda _: None)
    assert isinstance(found, Unread)
    assert (found.absent, "v9" in found.reason) == (False, True)


@pytest.mark.parametrize(
    ("version", "release", "remark"),
    [
        ("v1.31.4", "1.33.0", "the server is v1.31.4, older than what is known here: 1.33.0"),
        ("v1.99.0", "1.38", "the server is v1.99.0, newer than what is known here: 1.38"),
        ("red hat", "1.37", "the server has no version of Kubernetes: red hat"),
    ],
)
async def test_a_server_of_an_unknown_release_is_said(
    version: str, release: str, remark: str
) -> None:
    cluster = await filled(Server(nodes=[], pods=[]), version)
    found = cluster.reading("").configuration
    assert found.compatibility.startswith(release)
    assert any(each.startswith(remark) for each in found.remarks or ())


async def test_a_reading_client_refuses_every_write() -> None:
    client = ReadOnlyClient.__new__(ReadOnlyClient)
    for write in (
        client.bind("d", "a", "1", "n"),
        client.create("/api/v1/pods", {}),
        client.replace("/api/v1/pods/a", {}),
        client.patch("/api/v1/pods/a", {}),
        client.delete("/api/v1/pods/a", ""),
        client.delete_pod("d", "a", "1"),
        client.patch_pod_status("d", "a", {}),
    ):
        with pytest.raises(OfflineError):
            await write
    assert ReadOnlyClient.get is not Offline.get
    assert not issubclass(ReadOnlyClient, KubernetesClient)
