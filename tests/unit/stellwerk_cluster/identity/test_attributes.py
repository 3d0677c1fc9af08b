import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.identity.attributes import Attributes, refusal, request_attributes


def asked(method: str, path: str, **query: str) -> Attributes:
    return request_attributes(method, [part for part in path.split("/") if part], path, query)


PODS = {"version": "v1", "resource": "pods", "namespace": "ns"}


@pytest.mark.parametrize(
    ("method", "path", "query", "expected"),
    [
        pytest.param("GET", "/api", {}, Attributes("get", path="/api"), id="discovery"),
        pytest.param("GET", "/", {}, Attributes("get", path="/"), id="the root"),
        pytest.param(
            "GET", "/apis/apps/v1", {}, Attributes("get", path="/apis/apps/v1"), id="a version"
        ),
        pytest.param(
            "POST", "/metrics", {}, Attributes("post", path="/metrics"), id="a verb of a URL"
        ),
        pytest.param(
            "GET", "/api/v1/namespaces/ns/pods", {}, Attributes("list", **PODS), id="a list"
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/ns/pods",
            {"watch": "1"},
            Attributes("watch", **PODS),
            id="a watch",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/ns/pods",
            {"fieldSelector": "spec.nodeName=n,metadata.name=x"},
            Attributes("list", **PODS, name="x"),
            id="a list of one name",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/ns/pods",
            {"fieldSelector": "metadata.name!=x"},
            Attributes("list", **PODS),
            id="a list of all names but one",
        ),
        pytest.param(
            "DELETE",
            "/api/v1/namespaces/ns/pods",
            {},
            Attributes("deletecollection", **PODS),
            id="a collection deleted",
        ),
        pytest.param(
            "PATCH",
            "/api/v1/namespaces/ns/pods/x/status",
            {},
            Attributes("patch", **PODS, name="x", subresource="status"),
            id="a subresource",
        ),
        pytest.param(
            "GET",
            "/api/v1/namespaces/ns",
            {},
            Attributes("get", "", "v1", "namespaces", name="ns", namespace="ns"),
            id="a namespace lies in itself",
        ),
        pytest.param(
            "PUT",
            "/api/v1/namespaces/ns/finalize",
            {},
            Attributes("update", "", "v1", "namespaces", "finalize", "ns", "ns"),
            id="a namespace finalised",
        ),
        pytest.param(
            "GET",
            "/api/v1/watch/namespaces/ns/pods/x",
            {},
            Attributes("watch", **PODS, name="x"),
            id="a watch in the old style",
        ),
        pytest.param(
            "GET", "/api/v1/watch", {}, Attributes("get", path="/api/v1/watch"), id="a bare verb"
        ),
        pytest.param(
            "GET",
            "/apis/a.example/v1/nosuch",
            {},
            Attributes("list", "a.example", "v1", "nosuch"),
            id="what is not served is asked for, too",
        ),
    ],
)
def test_a_request_asks_for_an_act(
    method: str, path: str, query: dict[str, str], expected: Attributes
) -> None:
    assert asked(method, path, **query) == expected


@given(
    st.sampled_from(["GET", "POST", "OPTIONS"]),
    st.lists(st.sampled_from(["api", "apis", "v1", "namespaces", "watch", "proxy", "x", "status"])),
)
def test_every_path_asks_for_something(method: str, parts: list[str]) -> None:
    act = request_attributes(method, parts, "/" + "/".join(parts), {})
    assert bool(act.path) != bool(act.resource)


def test_markup_in_names_is_escaped_in_the_refusal() -> None:
    act = Attributes("get", "", "v1", "pods", name="<b>", namespace="a&b")
    error = refusal("x<y", act, "RBAC: gone")
    assert error.code == 403
    assert error.message == (
        'pods "<b>" is forbidden: User "x&lt;y" cannot get resource "pods" in API group "" in the '
        'namespace "a&amp;b": RBAC: gone'
    )
