"""Rules of the embedded API over HTTP that no recorded scenario shows, each with its cases."""

import json
import socket
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.findings import hold
from tests.support.served_cluster import send, send_for_headers, served

NAMESPACE = "/api/v1/namespaces/default"
PODS = f"{NAMESPACE}/pods"
STREAMS = ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
AVAILABLE = (
    "406: Not Acceptable\n\nAvailable representations: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
MATCH = "name in URL does not match name in Binding object"
OTHER_NAMESPACE = (
    "the namespace of the provided object does not match the namespace sent on the request"
)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    with served(EmbeddedCluster(0, options=options)) as cluster:
        node = {"metadata": {"name": "n", "labels": {ZONE: "z", REGION: "r", "color": "red"}}}
        assert ask(cluster.url, "POST", "/api/v1/nodes", node)[0] == 201
        yield cluster.url


ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


def ask(
    url: str, method: str, path: str, body: Any = None, headers: Any = None
) -> tuple[int, dict[str, Any]]:
    """The status and the JSON of one answer; no JSON: its text under `text`."""
    content = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", **(headers or {})}
    status, answer = send(url, method, path, content, sent)
    try:
        return status, json.loads(answer)
    except json.JSONDecodeError:
        return status, {"text": answer.decode()}


def make_pod(url: str, name: str, labels: Any = None, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "registry.example/x:1"}]
    metadata = {"name": name, **({"labels": labels} if labels else {})}
    status, made = ask(
        url, "POST", PODS, {"metadata": metadata, "spec": {"containers": containers, **spec}}
    )
    assert status == 201, made
    return made


NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations:"
THREE_FORMS = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


# Bindings.


@pytest.mark.parametrize(
    ("path", "metadata", "message"),
    [
        pytest.param(
            f"{NAMESPACE}/bindings", {}, "Name parameter required.", id="the old form, no name"
        ),
        pytest.param(
            f"{NAMESPACE}/bindings",
            {"name": "bound", "namespace": "other"},
            OTHER_NAMESPACE,
            id="the old form, another namespace",
        ),
        pytest.param(f"{PODS}/bound/binding", {}, MATCH, id="no name"),
        pytest.param(f"{PODS}/bound/binding", {"name": "another"}, MATCH, id="another name"),
        pytest.param(
            f"{PODS}/bound/binding",
            {"name": "bound", "namespace": "other"},
            OTHER_NAMESPACE,
            id="another namespace",
        ),
    ],
)
def test_a_binding_of_another_pod_than_its_path_binds_nothing(
    url: str, path: str, metadata: Any, message: str
) -> None:
    make_pod(url, "bound")
    try:
        body = {"kind": "Binding", "metadata": metadata, "target": {"name": "n"}}
        status, answer = ask(url, "POST", path, body)
        assert (status, answer["reason"], answer["message"]) == (400, "BadRequest", message)
        assert "nodeName" not in ask(url, "GET", f"{PODS}/bound")[1]["spec"]
    finally:
        ask(url, "DELETE", f"{PODS}/bound?gracePeriodSeconds=0")


def test_the_old_form_of_a_binding_brings_no_uid_with_it(url: str) -> None:
    """As all that is created through a collection: the API gives uids."""
    make_pod(url, "old-form")
    body = {"metadata": {"name": "old-form", "uid": "another"}, "target": {"name": "n"}}
    assert ask(url, "POST", f"{PODS}/old-form/binding", body)[0] == 409
    assert ask(url, "POST", f"{NAMESPACE}/bindings", body)[0] == 201
    ask(url, "DELETE", f"{PODS}/old-form?gracePeriodSeconds=0")


def test_a_binding_that_names_the_namespace_of_its_path_is_carried_out(url: str) -> None:
    make_pod(url, "named")
    body = {"metadata": {"name": "named", "namespace": "default"}, "target": {"name": "n"}}
    assert ask(url, "POST", f"{PODS}/named/binding", body)[0] == 201
    assert ask(url, "GET", f"{PODS}/named")[1]["spec"]["nodeName"] == "n"


SERVICE_ACCOUNT_TOKEN = f"{NAMESPACE}/serviceaccounts/bodies/token"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        pytest.param(
            f"{PODS}/bodies/binding",
            {"kind": "Pod", "apiVersion": "v1", "target": {"name": "n"}},
            'Pod in version "v1" cannot be handled as a Binding: converting (v1.Pod) to '
            "(core.Binding): unknown conversion",
            id="a pod as a binding",
        ),
        pytest.param(
            f"{PODS}/bodies/binding",
            {"kind": "Binding", "apiVersion": "v2", "target": {"name": "n"}},
            'Binding in version "v2" cannot be handled as a Binding: no kind "Binding" is '
            'registered for version "v2" in scheme "pkg/api/legacyscheme/scheme.go:30"',
            id="a binding of no version",
        ),
        pytest.param(
            f"{PODS}/bodies/binding?fieldValidation=Strict",
            {"target": {"name": "n"}, "foo": 1},
            'Binding in version "v1" cannot be handled as a Binding: strict decoding error: '
            'unknown field "foo"',
            id="an unknown field of a binding",
        ),
        pytest.param(
            SERVICE_ACCOUNT_TOKEN,
            {"kind": "Pod", "apiVersion": "v1", "spec": {}},
            'Pod in version "v1" cannot be handled as a TokenRequest: converting (v1.Pod) to '
            "(authentication.TokenRequest): unknown conversion",
            id="a pod as a request for a token",
        ),
        pytest.param(
            SERVICE_ACCOUNT_TOKEN,
            {"spec": {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": ""}}},
            "Name parameter required.",
            id="a token bound to nothing",
        ),
    ],
)
def test_what_a_subresource_is_given_is_of_its_kind(
    url: str, path: str, body: Any, message: str
) -> None:
    make_pod(url, "bodies")
    ask(url, "POST", f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": "bodies"}})
    try:
        status, answer = ask(url, "POST", path, {"metadata": {"name": "bodies"}, **body})
        assert (status, answer["message"]) == (400, message)
        assert "nodeName" not in ask(url, "GET", f"{PODS}/bodies")[1]["spec"]
    finally:
        ask(url, "DELETE", f"{PODS}/bodies?gracePeriodSeconds=0")


def test_the_options_of_a_binding_are_checked_and_its_unknown_fields_named(url: str) -> None:
    make_pod(url, "options")
    body = {"metadata": {"name": "options"}, "target": {"name": "n"}, "foo": 1}
    status, answer = ask(url, "POST", f"{PODS}/options/binding?dryRun=Some", body)
    assert (status, answer["details"]["causes"][0]["field"]) == (422, "dryRun")
    content, sent = json.dumps(body).encode(), {"Content-Type": "application/json"}
    path = f"{PODS}/options/binding?dryRun=All"
    status, _, headers = send_for_headers(url, "POST", path, content, sent)
    assert (status, headers.get_all("Warning")) == (201, ['299 - "unknown field \\"foo\\""'])
    assert "nodeName" not in ask(url, "GET", f"{PODS}/options")[1]["spec"]
    ask(url, "DELETE", f"{PODS}/options?gracePeriodSeconds=0")


# Labels of the topology.


@pytest.mark.parametrize(
    ("node", "labels", "expected"),
    [
        pytest.param("n", {"a": "b"}, {"a": "b", ZONE: "z", REGION: "r"}, id="beside its own"),
        pytest.param("n", {ZONE: "mine"}, {ZONE: "z", REGION: "r"}, id="over its own"),
        pytest.param("ghost", {"a": "b"}, {"a": "b"}, id="of no node"),
    ],
)
def test_a_pod_made_on_a_node_has_the_labels_that_a_binding_would_give(
    url: str, node: str, labels: Any, expected: Any
) -> None:
    for name, bound_later in (("at-once", False), ("later", True)):
        made = make_pod(url, name, labels, **({} if bound_later else {"nodeName": node}))
        if bound_later:
            body = {"metadata": {"name": name}, "target": {"name": node}}
            assert ask(url, "POST", f"{PODS}/{name}/binding", body)[0] == 201
            made = ask(url, "GET", f"{PODS}/{name}")[1]
        assert made["metadata"]["labels"] == expected
        ask(url, "DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


# Bodies of deletions.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        pytest.param(
            {"kind": "Pod", "apiVersion": "v1"},
            'no kind "Pod" is registered for version "v1" in scheme '
            '"pkg/apis/meta/internalversion/scheme/register.go:27"',
            id="of another kind",
        ),
        pytest.param(
            {"kind": "fixed"},
            'no kind "fixed" is registered for version "meta.k8s.io/v1" in scheme '
            '"pkg/apis/meta/internalversion/scheme/register.go:27"',
            id="of another kind, without a version",
        ),
        pytest.param(
            {"gracePeriodSeconds": "soon"},
            "json: cannot unmarshal string into Go struct field "
            "DeleteOptions.gracePeriodSeconds of type int64",
            id="with a field of another type",
        ),
        pytest.param(
            {"dryRun": "All"},
            "json: cannot unmarshal string into Go struct field DeleteOptions.dryRun of type "
            "[]string",
            id="with a text for a list",
        ),
    ],
)
@pytest.mark.parametrize("collection", [False, True])
def test_a_body_that_is_no_delete_options_deletes_nothing(
    url: str, body: Any, message: str, *, collection: bool
) -> None:
    maps = f"{NAMESPACE}/configmaps"
    ask(url, "POST", maps, {"metadata": {"name": "kept"}})
    status, answer = ask(url, "DELETE", maps if collection else f"{maps}/kept", body)
    assert (status, answer["reason"], answer["message"]) == (400, "BadRequest", message)
    assert ask(url, "GET", f"{maps}/kept")[0] == 200


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({}, id="empty"),
        pytest.param({"kind": "DeleteOptions"}, id="by kind"),
        pytest.param({"kind": "DeleteOptions", "apiVersion": "v1"}, id="of the core group"),
        pytest.param({"kind": "DeleteOptions", "apiVersion": "policy/v1"}, id="of another group"),
    ],
)
def test_a_body_that_is_delete_options_deletes(url: str, body: Any) -> None:
    maps = f"{NAMESPACE}/configmaps"
    ask(url, "POST", maps, {"metadata": {"name": "gone"}})
    assert ask(url, "DELETE", f"{maps}/gone", body)[0] == 200
    assert ask(url, "GET", f"{maps}/gone")[0] == 404


@pytest.mark.parametrize(
    ("path", "message", "details"),
    [
        ("/version", f"{NOT_ACCEPTABLE} application/json", {}),
        ("/api", f"{NOT_ACCEPTABLE} {THREE_FORMS}", {}),
        ("/api/v1", f"{NOT_ACCEPTABLE} {THREE_FORMS}", {}),
        ("/apis/apps/v1", f"{NOT_ACCEPTABLE} {THREE_FORMS}", {}),
        ("/apis", f"only the following media types are accepted: {THREE_FORMS}", None),
        ("/apis/apps", f"only the following media types are accepted: {THREE_FORMS}", None),
    ],
)
def test_documents_about_the_api_are_refused_in_other_forms(
    url: str, path: str, message: str, details: Any
) -> None:
    status, answer = send(url, "GET", path, headers={"Accept": "text/html"})
    body = json.loads(answer)
    assert (status, body["message"], body.get("details")) == (406, message, details)
    for accept in ("*/*", "application/json;q=0.5, text/html"):
        assert send(url, "GET", path, headers={"Accept": accept})[0] == 200


# Slashes.


@pytest.mark.parametrize(
    "path", [f"{PODS}/", "/api/v1/nodes/", "/apis/apps/v1/deployments/", "/api/v1/", "/apis/"]
)
def test_a_slash_at_the_end_changes_nothing(url: str, path: str) -> None:
    assert ask(url, "GET", path) == ask(url, "GET", path.rstrip("/"))
    assert ask(url, "GET", path)[0] == 200


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1//pods",
        "/api/v1/namespaces///pods",
        f"{NAMESPACE}//pods",
        f"{PODS}//log",
        "/api//v1/pods",
        "/apis/apps/v1//deployments",
    ],
)
def test_an_empty_part_of_a_path_names_no_resource(url: str, path: str) -> None:
    status, answer = ask(url, "GET", path)
    assert (status, answer.get("reason")) == (404, "NotFound")
    assert answer["message"] == "the server could not find the requested resource"


@pytest.mark.parametrize("path", ["//api/v1/pods", "/apis//v1/pods", "/apis/nowhere//pods"])
def test_an_empty_part_of_a_path_outside_all_versions_is_no_page(url: str, path: str) -> None:
    assert ask(url, "GET", path)[0] == 404


NOT_FOUND = "the server could not find the requested resource"
NOT_ALLOWED = "the server does not allow this method on the requested resource"
NO_PAGE = "404 page not found\n"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/livez/", 404, NO_PAGE),
        ("GET", "/readyz//", 404, NO_PAGE),
        ("GET", "/livez/ping/", 404, NO_PAGE),
        ("GET", "/openapi/v2/", 404, NO_PAGE),
        ("GET", "/apis//", 404, NO_PAGE),
        ("GET", "/apis//apps", 404, NO_PAGE),
        ("GET", "//", 404, NO_PAGE),
        ("GET", "/version/x", 404, NOT_FOUND),
        ("GET", "/apis/apps//v1/deployments", 404, NOT_FOUND),
        ("GET", "/apis/apps//deployments", 404, NOT_FOUND),
        ("POST", "/version", 405, NOT_ALLOWED),
        ("DELETE", "/api", 405, NOT_ALLOWED),
        ("PUT", "/apis/apps/v1", 405, NOT_ALLOWED),
        ("POST", "/api/v9", 404, NOT_FOUND),
        ("POST", "/api/v1/bindings", 404, NOT_FOUND),
        ("POST", "/apis/authorization.k8s.io/v1/localsubjectaccessreviews", 404, NOT_FOUND),
        ("POST", "/api/v1/pods", 405, NOT_ALLOWED),
    ],
)
def test_paths_that_nothing_is_served_under(
    url: str, method: str, path: str, status: int, message: str
) -> None:
    found, answer = ask(url, method, path)
    assert (found, answer.get("message", answer.get("text"))) == (status, message)


@pytest.mark.parametrize(
    "path", ["/api/", "/api//", "/api/v1/", "/apis/", "/apis/apps/", "/apis/apps/v1/", "/version/"]
)
def test_documents_about_the_api_are_served_with_a_slash_at_the_end(url: str, path: str) -> None:
    assert ask(url, "GET", path)[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "pods/x", 400, "Namespace parameter required."),
        ("GET", "pods/x/status", 400, "Namespace parameter required."),
        ("DELETE", "configmaps", 400, "Namespace parameter required."),
        ("PUT", "configmaps/x", 400, "Namespace parameter required."),
        ("GET", "nodes", 404, NOT_FOUND),
        ("GET", "nothing", 404, NOT_FOUND),
        ("GET", "bindings", 405, NOT_ALLOWED),
        ("GET", "status", 404, NOT_FOUND),
        (
            "POST",
            "configmaps",
            422,
            'ConfigMap "x" is invalid: metadata.namespace: Required value',
        ),
    ],
)
def test_an_empty_namespace_is_none_of_a_pod_or_config_map(
    url: str, method: str, path: str, status: int, message: str
) -> None:
    body = {"metadata": {"name": "x"}} if method in ("POST", "PUT") else None
    found, answer = ask(url, method, f"/api/v1/namespaces//{path}", body)
    assert (found, answer["message"]) == (status, message)


def test_an_empty_namespace_lists_what_is_in_all(url: str) -> None:
    make_pod(url, "listed")
    try:
        status, found = ask(url, "GET", "/api/v1/namespaces//pods")
        assert (status, found["kind"]) == (200, "PodList")
        assert "listed" in {each["metadata"]["name"] for each in found["items"]}
    finally:
        ask(url, "DELETE", f"{PODS}/listed?gracePeriodSeconds=0")


# Accept headers.


AMONG = (
    "only the following media types are accepted: "
    "application/json, application/yaml, application/vnd.kubernetes.protobuf"
)
META = "v=v1;g=meta.k8s.io"
NODES = "/api/v1/nodes"
WATCH = f"{NODES}?watch=true&timeoutSeconds=1"


@pytest.mark.parametrize(
    ("accept", "path", "message"),
    [
        (f"application/json;as=Nothing;{META}", NODES, AMONG),
        ("application/json;as=Table;v=v1;g=x", NODES, AMONG),
        ("application/json;as=Table;v=v1", NODES, AMONG),
        ("application/json;v=v1", f"{NODES}/n", AMONG),
        ("application/json;stream=x", WATCH, AMONG),
        (f"application/vnd.kubernetes.protobuf;as=Table;{META}", NODES, AMONG),
        ("application/*", NODES, AVAILABLE + STREAMS),
        ("application/*", "/api/v1", AVAILABLE),
        ("application/*", "/version", AVAILABLE.partition(", ")[0]),
        (f"application/json;as=Table;{META}", "/api/v1", AMONG),
        (f"application/json;as=Table;{META}", "/apis", AMONG),
        ("application/json;v=v1", "/apis/apps", AMONG),
        (
            "application/yaml",
            WATCH,
            f"only the following media types are accepted: {STREAMS.removeprefix(', ')}",
        ),
        (
            f"application/json;as=PartialObjectMetadata;{META}",
            NODES,
            (
                "you requested PartialObjectMetadata, but the requested object is a list "
                "(*core.NodeList)"
            ),
        ),
    ],
)
def test_parameters_of_media_types_are_refused_after_the_router_let_them_pass(
    url: str, accept: str, path: str, message: str
) -> None:
    status, answer = ask(url, "GET", path, headers={"Accept": accept})
    assert (status, answer.get("message", answer.get("text"))) == (406, message)


@pytest.mark.parametrize("path", ["/apis", "/apis/apps"])
def test_documents_beside_the_router_are_served_as_any_application(url: str, path: str) -> None:
    assert send(url, "GET", path, headers={"Accept": "application/*"})[0] == 200


@pytest.mark.parametrize(
    ("accept", "begins"),
    [
        ("application/json;q=0.5, application/yaml", b"apiVersion: v1\n"),
        ("application/yaml;q=0.9, */*", b'{"kind":"NodeList"'),
        ("*/*, application/yaml", b"apiVersion: v1\n"),
        (f"application/json;as=Nothing;{META}, application/json", b'{"kind":"NodeList"'),
        (f"application/yaml;as=Table;{META}", b"apiVersion: meta.k8s.io/v1\ncolumnDefinitions:"),
        (
            f"application/yaml;as=PartialObjectMetadataList;{META}",
            b"apiVersion: meta.k8s.io/v1\nitems:",
        ),
        ("application/json;stream=watch;pretty=1", b'{"kind":"NodeList"'),
    ],
)
def test_the_best_form_that_can_be_made_is_answered(url: str, accept: str, begins: bytes) -> None:
    status, body = send(url, "GET", NODES, headers={"Accept": accept})
    assert (status, body[: len(begins)]) == (200, begins)


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        pytest.param("GET", PODS, AVAILABLE + STREAMS, id="list"),
        pytest.param("GET", f"{PODS}/x", AVAILABLE, id="get"),
        pytest.param("POST", PODS, AVAILABLE, id="create"),
        pytest.param("PUT", f"{PODS}/x", AVAILABLE, id="update"),
        pytest.param("DELETE", f"{PODS}/x", AVAILABLE, id="delete"),
        pytest.param("POST", f"{PODS}/x/binding", AVAILABLE, id="bind"),
        pytest.param("POST", f"{PODS}/x/eviction", AVAILABLE, id="evict"),
    ],
)
def test_what_is_not_acceptable_names_the_forms_of_its_path(
    url: str, method: str, path: str, message: str
) -> None:
    body: Any = None if method == "GET" else {}
    status, answer = ask(url, method, path, body, {"Accept": "text/html"})
    assert (status, answer["reason"], answer["message"]) == (406, "NotAcceptable", message)


# Events.


EVENT = {
    "metadata": {"name": "e", "namespace": "default"},
    "eventTime": "2026-01-01T00:00:00.000000Z",
    "reportingController": "example.com/r",
    "reportingInstance": "r-1",
    "action": "Acting",
    "reason": "Because",
    "type": "Normal",
    "regarding": {"kind": "Pod", "namespace": "default", "name": "x"},
}
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
LONG = "can have at most 128 characters"


@pytest.mark.parametrize(
    ("change", "errors"),
    [
        pytest.param({"reason": ""}, [("reason", "Required value")], id="no reason"),
        pytest.param(
            {"reason": "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 65},
            [("reason", f'Invalid value: "": {LONG}')],
            id="a reason of more than 128 bytes",
        ),
        pytest.param(
            {"eventTime": None, "reason": "", "action": ""},
            [("eventTime", "Required value")],
            id="no time: nothing is asked of an event of old",
        ),
        pytest.param(
            {"series": {"count": 1}},
            [
                ("series.count", 'Invalid value: "": should be at least 2'),
                ("series.lastObservedTime", "Required value"),
            ],
            id="a series of one, never seen",
        ),
        pytest.param(
            {"type": "Odd", "reason": "", "series": {"count": 0}},
            [
                ("reason", "Required value"),
                ("series.count", 'Invalid value: "": should be at least 2'),
                ("series.lastObservedTime", "Required value"),
                ("type", 'Invalid value: "": has invalid value: Odd'),
            ],
            id="what events of old have to pass comes first",
        ),
        pytest.param(
            {"regarding": {"kind": "Pod", "namespace": "elsewhere", "name": "x"}},
            [],
            id="an object of another namespace",
        ),
    ],
)
def test_events_are_refused_for_what_they_say(url: str, change: Any, errors: Any) -> None:
    body = {name: value for name, value in {**EVENT, **change}.items() if value is not None}
    status, answer = ask(url, "POST", EVENTS, body)
    causes = (answer.get("details") or {}).get("causes") or []
    assert [(each["field"], each["message"]) for each in causes] == errors
    assert status == (422 if errors else 201)
    if not errors:
        ask(url, "DELETE", f"{EVENTS}/e")


@pytest.mark.parametrize(
    ("change", "fields"),
    [
        pytest.param({"reason": "Other"}, ["reason", "reason"], id="the reason, named twice"),
        pytest.param(
            {"reportingController": "example.com/s"}, ["reportingController"], id="the reporter"
        ),
        pytest.param({"reason": ""}, ["reason"] * 3, id="no reason any more"),
        pytest.param(
            {"action": "Other", "note": "n", "type": "Warning"},
            ["message", "type", "action"],
            id="several, in the order of the API server",
        ),
    ],
)
def test_events_stay_as_they_are_reported(url: str, change: Any, fields: list[str]) -> None:
    assert ask(url, "POST", EVENTS, EVENT)[0] == 201
    try:
        status, answer = ask(
            url, "PATCH", f"{EVENTS}/e", change, {"Content-Type": "application/merge-patch+json"}
        )
        assert (status, [each["field"] for each in answer["details"]["causes"]]) == (422, fields)
    finally:
        ask(url, "DELETE", f"{EVENTS}/e")


# Proxies.


@pytest.mark.parametrize(
    ("plural", "kind"), [("nodes", "Node"), ("pods", "Pod"), ("services", "Service")]
)
def test_both_forms_of_discovery_list_proxies(url: str, plural: str, kind: str) -> None:
    verbs = ["create", "delete", "get", "patch", "update"]
    _, legacy = ask(url, "GET", "/api/v1")
    (found,) = (each for each in legacy["resources"] if each["name"] == f"{plural}/proxy")
    assert (found["kind"], found["verbs"]) == (f"{kind}ProxyOptions", verbs)
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    _, aggregated = ask(url, "GET", "/api", None, {"Accept": accept})
    (version,) = aggregated["items"][0]["versions"]
    (row,) = (each for each in version["resources"] if each["resource"] == plural)
    (proxy,) = (each for each in row["subresources"] if each["subresource"] == "proxy")
    assert proxy == {
        "subresource": "proxy",
        "responseKind": {"group": "", "version": "", "kind": f"{kind}ProxyOptions"},
        "verbs": verbs,
    }


@pytest.mark.parametrize("rest", ["", "/", "/healthz", "/a/b?c=d"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_server_answers_behind_a_proxy(url: str, method: str, rest: str) -> None:
    status, answer = ask(url, method, f"/api/v1/nodes/n/proxy{rest}")
    assert (status, answer["reason"]) == (405, "MethodNotAllowed")
    assert answer["message"].endswith("run no processes: node n has no server to talk to")
    assert ask(url, method, f"/api/v1/nodes/ghost/proxy{rest}")[0] == 404


# Requests for tokens.


ACCOUNTS = f"{NAMESPACE}/serviceaccounts"
INVALID = 'TokenRequest.authentication.k8s.io "{}" is invalid: {}'


@pytest.mark.parametrize(
    ("metadata", "spec", "code", "message"),
    [
        pytest.param(
            {"name": "other"},
            {},
            422,
            INVALID.format(
                "robot",
                'metadata.name: Invalid value: "other": must match the service account name if '
                "specified",
            ),
            id="the name of another account",
        ),
        pytest.param(
            {"namespace": "other"}, {}, 400, OTHER_NAMESPACE, id="the namespace of another account"
        ),
        pytest.param(
            {},
            {"expirationSeconds": 599},
            422,
            INVALID.format(
                "",
                "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than "
                "10 minutes",
            ),
            id="too short",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Dog", "apiVersion": "v1", "name": "d"}},
            400,
            "cannot bind token to object of type /v1, Kind=Dog",
            id="bound to a kind that ends no token",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {}},
            400,
            "cannot bind token to object of type /, Kind=",
            id="bound to nothing",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Pod", "apiVersion": "apps/v1", "name": "d"}},
            400,
            "cannot bind token to object of type apps/v1, Kind=Pod",
            id="bound to a kind of another group",
        ),
        pytest.param(
            {},
            {"boundObjectRef": {"kind": "Node", "apiVersion": "v2", "name": "n", "uid": "u"}},
            409,
            'Operation cannot be fulfilled on Node "n": the UID in the bound object reference (u) '
            "does not match the UID in record. The object might have been deleted and then "
            "recreated",
            id="bound to an object that was there before",
        ),
    ],
)
def test_the_refusal_of_a_token_names_what_is_wrong(
    url: str, metadata: Any, spec: Any, code: int, message: str
) -> None:
    ask(url, "POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    body = {"metadata": metadata, "spec": spec}
    status, answer = ask(url, "POST", f"{ACCOUNTS}/robot/token", body)
    assert (status, answer["message"]) == (code, message)


def test_a_token_is_asked_for_one_account_and_no_other_of_its_name(url: str) -> None:
    ask(url, "POST", ACCOUNTS, {"metadata": {"name": "robot"}})
    uid = ask(url, "GET", f"{ACCOUNTS}/robot")[1]["metadata"]["uid"]
    path = f"{ACCOUNTS}/robot/token"
    metadata = {"name": "robot", "namespace": "default", "uid": uid}
    status, answer = ask(url, "POST", path, {"metadata": metadata, "spec": {}})
    assert (status, answer["metadata"]["uid"]) == (201, uid)
    status, answer = ask(url, "POST", path, {"metadata": {"uid": "u"}, "spec": {}})
    assert (status, answer["details"]["kind"]) == (409, "TokenRequest")
    assert answer["message"] == (
        'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "robot": the UID in '
        f"the token request (u) does not match the UID of the service account ({uid})"
    )


# Custom objects.


GADGETS = "/apis/lab.example/v1/namespaces/default/gadgets"
GADGET_SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "required": ["kind"],
            "x-kubernetes-validations": [{"rule": "self.size != 7", "message": "not seven"}],
            "properties": {
                "kind": {"type": "string", "enum": ["a", "b"]},
                "size": {"type": "integer", "format": "int32", "maximum": 5},
                "when": {"type": "string", "format": "date-time"},
                "address": {"type": "string", "format": "ipv4"},
                "set": {
                    "type": "array",
                    "x-kubernetes-list-type": "set",
                    "items": {"type": "integer"},
                },
            },
        }
    },
}
INT32 = "of type integer with format int32"
SIZE = "spec.size: Invalid value:"
NOT_CHECKED = (
    "<nil>: Invalid value: null: some validation rules were not checked because the object was "
    "invalid; correct the existing errors to complete validation"
)


@pytest.fixture(scope="module")
def gadgets(url: str) -> str:
    names = {"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": GADGET_SCHEMA},
    }
    definition = {
        "metadata": {"name": "gadgets.lab.example"},
        "spec": {
            "group": "lab.example",
            "scope": "Namespaced",
            "names": names,
            "versions": [version],
        },
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert ask(url, "POST", path, definition)[0] == 201
    return url


@pytest.mark.parametrize(
    ("spec", "errors"),
    [
        pytest.param(
            {"kind": "a", "size": 7, "set": [1, 1]},
            [
                "spec.size: Invalid value: 7: spec.size in body should be less than or equal to 5",
                "spec.set[1]: Duplicate value: 1",
                "spec: Invalid value: not seven",
            ],
            id="structure, then keys that stand twice, then rules",
        ),
        pytest.param(
            {"kind": "c", "size": 7, "set": [1, 1]},
            [
                'spec.kind: Unsupported value: "c": supported values: "a", "b"',
                "spec.size: Invalid value: 7: spec.size in body should be less than or equal to 5",
                "spec.set[1]: Duplicate value: 1",
                NOT_CHECKED,
            ],
            id="rules are not checked where a value is none of an enum",
        ),
        pytest.param(
            {"size": 3},
            ["spec.kind: Required value", NOT_CHECKED],
            id="nor where one is lacking",
        ),
        pytest.param(
            {"kind": "a", "size": 1 << 31},
            [
                f'<nil>: Invalid value: "": Checked value must be {INT32} in spec.size',
                f"{SIZE} 2147483648: spec.size in body should be less than or equal to 5",
            ],
            id="a number beyond its format",
        ),
        pytest.param(
            {"kind": "a", "size": 1.5},
            [
                f'{SIZE} "float64": spec.size in body must be of type int32: "float64"',
                f'<nil>: Invalid value: "": Checked value must be {INT32} in spec.size',
                NOT_CHECKED,
            ],
            id="a number that is none of its format",
        ),
        pytest.param(
            {"kind": "a", "when": "yesterday", "address": "1.2.3"},
            [
                (
                    'spec.address: Invalid value: "1.2.3": spec.address in body must be of type '
                    'ipv4: "1.2.3"'
                ),
                (
                    'spec.when: Invalid value: "yesterday": spec.when in body must be of type '
                    'date-time: "yesterday"'
                ),
                NOT_CHECKED,
            ],
            id="rules are not checked where a text is none of its format",
        ),
    ],
)
def test_structure_and_rules_of_custom_objects_report_in_one_answer(
    gadgets: str, spec: Any, errors: list[str]
) -> None:
    body = {
        "apiVersion": "lab.example/v1",
        "kind": "Gadget",
        "metadata": {"name": "g"},
        "spec": spec,
    }
    status, answer = ask(gadgets, "POST", GADGETS, body)
    causes = [f"{each['field']}: {each['message']}" for each in answer["details"]["causes"]]
    assert (status, causes) == (422, errors)


# Strict decoding.


def test_strict_decoding_names_fields_in_the_order_of_the_body(url: str) -> None:
    content = (
        b'{"kind":"ConfigMap","apiVersion":"v1","datta":1,'
        b'"metadata":{"name":"a","name":"strict","labelz":{}},'
        b'"data":{"a":"1","b":"2","a":"3"},"last":1}'
    )
    texts = [
        'unknown field "datta"',
        'duplicate field "metadata.name"',
        'unknown field "metadata.labelz"',
        'duplicate field "data.a"',
        'unknown field "last"',
    ]
    path = f"{NAMESPACE}/configmaps"
    sent = {"Content-Type": "application/json"}
    status, answer = send(url, "POST", f"{path}?fieldValidation=Strict", content, sent)
    assert (status, json.loads(answer)["message"]) == (
        400,
        'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
        + ", ".join(texts),
    )
    status, _, headers = send_for_headers(url, "POST", path, content, sent)
    shown = [f'299 - "{text}"'.replace('field "', 'field \\"') for text in texts]
    assert [each.replace('\\""', '""') for each in headers.get_all("Warning") or ()] == shown
    assert status == 201


def test_fields_that_stand_twice_in_what_is_overwritten_are_named_too(url: str) -> None:
    content = (
        b'{"metadata":{"name":"twice"},'
        b'"data":{"a":"1","a":"2"},"data":{"b":"3"},"binaryData":{},"binaryData":{}}'
    )
    sent = {"Content-Type": "application/json"}
    path = f"{NAMESPACE}/configmaps?fieldValidation=Strict"
    status, answer = send(url, "POST", path, content, sent)
    assert (status, json.loads(answer)["message"]) == (
        400,
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
            'duplicate field "data.a", duplicate field "data", duplicate field "binaryData"'
        ),
    )


def test_what_is_in_an_unknown_field_and_that_it_stands_twice_is_not_looked_at(url: str) -> None:
    content = b'{"metadata":{"name":"x","name":"x"},"new":{"a":1,"a":2},"new":[{"b":1,"b":2}]}'
    path = f"{NAMESPACE}/configmaps?fieldValidation=Strict"
    status, answer = send(url, "POST", path, content, {"Content-Type": "application/json"})
    found = json.loads(answer)["message"].partition("error: ")[2]
    assert (status, found) == (400, 'duplicate field "metadata.name", unknown field "new"')


@pytest.mark.parametrize("end", [b"---\nmetadata: {name: b}\n", b"%YAML 1.2\n", b"...\n}}\n"])
def test_what_follows_the_first_document_of_a_body_is_not_looked_at(url: str, end: bytes) -> None:
    path = f"{NAMESPACE}/configmaps?dryRun=All&fieldValidation=Strict"
    for size in (1, 100_000):  # long ones are read in a thread
        content = b"metadata: {name: first}\ndata: {a: %b}\n%b" % (b"x" * size, end)
        status, answer = send(url, "POST", path, content, {"Content-Type": "application/yaml"})
        assert (status, json.loads(answer)["metadata"]["name"]) == (201, "first")


def test_strict_decoding_of_yaml_names_fields_in_the_order_of_their_keys(url: str) -> None:
    content = b"zoo: 1\nmetadata: {name: sorted, foo: 1}\ndata: {}\nbar: 1\n"
    sent = {"Content-Type": "application/yaml"}
    path = f"{NAMESPACE}/configmaps?fieldValidation=Strict"
    status, answer = send(url, "POST", path, content, sent)
    fields = ", ".join(f'unknown field "{each}"' for each in ("bar", "metadata.foo", "zoo"))
    assert (status, json.loads(answer)["message"].partition("error: ")[2]) == (400, fields)


def test_keys_that_stand_twice_in_yaml_are_a_warning_each_and_one_error(url: str) -> None:
    content = b"metadata:\n  name: keys\n  name: keys\ndata:\n  a: b\n  a: c\n"
    sent = {"Content-Type": "application/yaml"}
    path = f"{NAMESPACE}/configmaps"
    status, answer = send(url, "POST", f"{path}?fieldValidation=Strict", content, sent)
    texts = [
        f'line {line}: key "{key}" already set in map' for line, key in ((3, "name"), (6, "a"))
    ]
    assert (status, json.loads(answer)["message"]) == (
        400,
        (
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: '
            f"yaml: unmarshal errors:\n  {texts[0]}\n  {texts[1]}"
        ),
    )
    status, _, headers = send_for_headers(url, "POST", f"{path}?dryRun=All", content, sent)
    shown = [
        f'299 - "{text}"'.replace('key "', 'key \\"').replace('" al', '\\" al') for text in texts
    ]
    assert (status, headers.get_all("Warning")) == (201, shown)


# Names that are taken.


@pytest.mark.parametrize(
    ("path", "qualified", "more"),
    [
        pytest.param("/api/v1/nodes", "nodes", {}, id="a node"),
        pytest.param(f"{NAMESPACE}/configmaps", "configmaps", {}, id="a config map"),
        pytest.param(
            "/apis/scheduling.k8s.io/v1/priorityclasses",
            "priorityclasses.scheduling.k8s.io",
            {"value": 1},
            id="a kind of another group",
        ),
    ],
)
@pytest.mark.parametrize("dry_run", ["", "?dryRun=All"])
def test_a_name_that_is_taken_says_whether_its_object_is_being_deleted(
    url: str, path: str, qualified: str, more: Any, dry_run: str
) -> None:
    body = {"metadata": {"name": "taken", "finalizers": ["example.com/hold"]}, **more}
    assert ask(url, "POST", path, body)[0] == 201
    try:
        taken = f'{qualified} "taken" already exists'
        status, answer = ask(url, "POST", path + dry_run, body)
        assert (status, answer["reason"], answer["message"]) == (409, "AlreadyExists", taken)
        assert ask(url, "DELETE", f"{path}/taken")[0] == 200
        status, answer = ask(url, "POST", path + dry_run, body)
        assert (status, answer["reason"]) == (409, "AlreadyExists")
        assert answer["message"] == f"object is being deleted: {taken}"
    finally:
        ask(url, "DELETE", f"{path}/taken")
        none = {"metadata": {"finalizers": None}}
        merge = {"Content-Type": "application/merge-patch+json"}
        ask(url, "PATCH", f"{path}/taken", none, merge)


# Namespaces that end.

ENDING = "/api/v1/namespaces/ending"


@pytest.fixture(scope="module")
def ending(url: str) -> Iterator[str]:
    """A namespace that is being deleted, with a pod and a service account that stay for now."""
    held = {"finalizers": ["example.com/hold"]}
    spec = {"containers": [{"name": "c", "image": "registry.example/x:1"}]}
    ask(url, "POST", "/api/v1/namespaces", {"metadata": {"name": "ending"}})
    ask(url, "POST", f"{ENDING}/pods", {"metadata": {"name": "p", **held}, "spec": spec})
    ask(url, "POST", f"{ENDING}/serviceaccounts", {"metadata": {"name": "a", **held}})
    assert ask(url, "DELETE", ENDING)[0] == 200
    yield url
    none = {"metadata": {"finalizers": None}}
    for path in ("pods/p", "serviceaccounts/a"):
        merge = {"Content-Type": "application/merge-patch+json"}
        ask(url, "PATCH", f"{ENDING}/{path}", none, merge)


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        pytest.param("configmaps", {"metadata": {"name": "m"}}, 'configmaps "m"', id="an object"),
        pytest.param(
            "pods/p/binding",
            {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}},
            'pods "p"',
            id="a binding",
        ),
        pytest.param("pods/p/eviction", {"metadata": {"name": "p"}}, 'pods "p"', id="an eviction"),
        pytest.param("serviceaccounts/a/token", {"spec": {}}, 'serviceaccounts "a"', id="a token"),
    ],
)
def test_nothing_is_created_in_a_namespace_that_ends(
    ending: str, path: str, body: Any, named: str
) -> None:
    status, answer = ask(ending, "POST", f"{ENDING}/{path}", body)
    why = "unable to create new content in namespace ending because it is being terminated"
    assert (status, answer["message"]) == (403, f"{named} is forbidden: {why}")
    assert answer["details"]["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize("path", ["pods/p/binding", "pods/p/eviction", "serviceaccounts/a/token"])
def test_what_is_created_below_an_object_needs_its_namespace(url: str, path: str) -> None:
    body = {"metadata": {"name": "p"}} if path[0] == "p" else {"spec": {}}
    if path.endswith("binding"):
        body["target"] = {"kind": "Node", "name": "n"}
    status, answer = ask(url, "POST", f"/api/v1/namespaces/nowhere/{path}", body)
    assert (status, answer["message"]) == (404, 'namespaces "nowhere" not found')


# Bodies that cost much.


@pytest.mark.parametrize(
    ("method", "media_type", "content"),
    [
        pytest.param("POST", "application/json", b"[" * 1_000_000, id="a deep body"),
        pytest.param("PATCH", "application/merge-patch+json", b'{"a":' * 200_000, id="a patch"),
        pytest.param("POST", "application/yaml", b"[" * 100_000, id="deep YAML"),
    ],
)
def test_deep_bodies_are_refused(url: str, method: str, media_type: str, content: bytes) -> None:
    path = f"{NAMESPACE}/configmaps" + ("/kube-root-ca.crt" if method == "PATCH" else "")
    began = time.perf_counter()
    status, answer = send(url, method, path, content, {"Content-Type": media_type})
    # libyaml takes a while for so many brackets; other requests go on meanwhile.
    took = 1000 * (time.perf_counter() - began)
    hold("deep YAML" if "yaml" in media_type else "deep bodies", took)
    assert status == 400
    assert b"exceeded max depth" in answer


LONG_YAML = b"data:\n" + b" %s: v\n" % (b"k" * 100) * 25_000


def longest_wait(url: str, method: str, media_type: str, content: bytes) -> float:
    """The longest time in which /version was answered beside a body."""
    path = f"{NAMESPACE}/configmaps" + ("/kube-root-ca.crt" if method == "PATCH" else "")
    place = f"{path}?dryRun=All"
    sent = threading.Thread(
        target=send, args=(url, method, place, content, {"Content-Type": media_type})
    )
    sent.start()
    waits = []
    while True:
        began = time.perf_counter()
        assert send(url, "GET", "/version")[0] == 200
        waits.append(time.perf_counter() - began)
        if not sent.is_alive():
            return max(waits)


@pytest.mark.parametrize(
    ("method", "media_type", "content"),
    [
        pytest.param("POST", "application/json", b"[" * 1_000_000, id="a deep body"),
        pytest.param("PATCH", "application/merge-patch+json", b'{"a":' * 200_000, id="a patch"),
        pytest.param("POST", "application/yaml", b"[" * 100_000, id="deep YAML"),
        pytest.param("POST", "application/yaml", LONG_YAML, id="long YAML"),
        pytest.param("POST", "application/json", b" " * (10 << 20), id="too large a body"),
    ],
)
def test_others_are_answered_soon_beside_a_costly_body(
    url: str, method: str, media_type: str, content: bytes
) -> None:
    waits: list[float] = []
    while not waits or (min(waits) > 0.2 and len(waits) < 4):  # others may have the processor
        waits.append(longest_wait(url, method, media_type, content))
    hold("beside bodies", 1000 * min(waits))


def test_others_are_answered_while_a_long_body_in_yaml_is_read(url: str) -> None:
    lines = b"".join(b"  k%d: v\n" % number for number in range(40_000))
    content = b"metadata: {name: long}\ndata:\n" + lines
    sent = threading.Thread(
        target=send,
        args=(url, "POST", f"{NAMESPACE}/configmaps?dryRun=All", content),
        kwargs={"headers": {"Content-Type": "application/yaml"}},
    )
    sent.start()
    answers = 0
    while sent.is_alive():
        assert send(url, "GET", "/livez")[0] == 200
        answers += 1
    # Read on the loop, it would let one by before it and one after it, however busy the machine is.
    assert answers > 5


def test_warnings_are_cut_where_headers_would_be_too_long(url: str) -> None:
    key = "k" * 100
    content = f"metadata: {{name: doubled}}\ndata:\n{f'  {key}: v{chr(10)}' * 5_000}".encode()
    place = f"{url}{NAMESPACE}/configmaps?dryRun=All"
    headers = {"Content-Type": "application/yaml"}
    request = urllib.request.Request(place, content, headers)  # noqa: S310 a server of ours
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        warnings = answer.headers.get_all("Warning")
    assert warnings[0] == f'299 - "line 4: key \\"{key}\\" already set in map"'
    # The one with which they are more than 4,096 characters is there, and none after it.
    texts = [each.removeprefix('299 - "').removesuffix('"').replace("\\", "") for each in warnings]
    assert sum(map(len, texts[:-1])) <= 4096 < sum(map(len, texts))


# Watches.


def test_a_write_reaches_watchers_before_its_answer_is_sent(url: str) -> None:
    """The next write of a client goes by what its own watch has shown."""
    host, port = url.removeprefix("http://").split(":")
    path = f"{NAMESPACE}/configmaps"
    with ExitStack() as stack:
        streams = [stack.enter_context(socket.create_connection((host, int(port)))) for _ in "1234"]
        for stream in streams:
            stream.sendall(f"GET {path}?watch=true HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            assert b"200 OK" in stream.recv(1 << 16)
        for number in range(20):
            name = f"written-{number}"
            assert ask(url, "POST", path, {"metadata": {"name": name}})[0] == 201
            for stream in streams:
                assert name.encode() in stream.recv(1 << 20, socket.MSG_DONTWAIT)
            assert ask(url, "DELETE", f"{path}/{name}")[0] == 200
            for stream in streams:
                assert b'"DELETED"' in stream.recv(1 << 20, socket.MSG_DONTWAIT)


def test_a_body_that_is_not_encoded_as_it_says_is_refused(url: str) -> None:
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    path = "/api/v1/namespaces/default/configmaps"
    status, answer = ask(url, "POST", path, {"metadata": {"name": "a"}}, headers)
    assert (status, answer["reason"]) == (400, "BadRequest")


def test_an_applied_object_whose_type_is_no_text_has_none(url: str) -> None:
    headers = {"Content-Type": "application/apply-patch+yaml"}
    path = "/api/v1/namespaces/default/configmaps/a?fieldManager=f"
    body = {"apiVersion": {"v1": None}, "kind": ["ConfigMap"], "metadata": {"name": "a"}}
    status, answer = ask(url, "PATCH", path, body, headers)
    assert (status, answer["message"]) == (400, "invalid object type: /, Kind=")
