"""Protobuf over HTTP: bodies that are read or refused, answers in the form that is asked for."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stellwerk_cluster.apimachinery import protobuf
from stellwerk_cluster.apiserver import openapi_protobuf
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from tests.support.served_cluster import send, send_for_headers, served

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/default/pods"
SENT = {"Content-Type": protobuf.MEDIA_TYPE}
ASKED = {"Accept": protobuf.MEDIA_TYPE}
EITHER = {"Accept": f"{protobuf.MEDIA_TYPE},application/json"}
OPENAPI = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def pod(name: str) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "registry.example/x:1"}]},
    }


def definition(name: str) -> dict[str, Any]:
    return {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1",
        "metadata": {"name": f"{name}s.lab.example"},
        "spec": {
            "group": "lab.example",
            "scope": "Cluster",
            "names": {"plural": f"{name}s", "kind": name.capitalize()},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {
                                "spec": {
                                    "type": "object",
                                    "x-kubernetes-preserve-unknown-fields": True,
                                }
                            },
                        }
                    },
                }
            ],
        },
    }


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    options = ClusterOptions(controllers=False, kubelet=None, heartbeats=False)
    with served(EmbeddedCluster(1, options=options)) as cluster:
        yield cluster.url


def test_an_object_is_created_and_read_as_protobuf(url: str) -> None:
    body = protobuf.write_body("Pod", pod("p"))
    status, answer = send(url, "POST", PODS, body, SENT | ASKED)
    created = protobuf.read_message("Pod", protobuf.open_envelope(answer).raw)
    assert status == 201
    assert created["spec"]["restartPolicy"] == "Always"
    stored = json.loads(send(url, "GET", f"{PODS}/p")[1])
    assert stored["metadata"]["uid"] == created["metadata"]["uid"]
    assert send(url, "DELETE", f"{PODS}/p", options(), SENT)[0] == 200


def options() -> bytes:
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
    return protobuf.write_body("DeleteOptions", body)


def test_a_list_is_answered_as_protobuf_to_who_names_it_first(url: str) -> None:
    _status, answer, headers = send_for_headers(url, "GET", "/api/v1/nodes", None, EITHER)
    envelope = protobuf.open_envelope(answer)
    nodes = protobuf.read_message("NodeList", envelope.raw)
    assert (envelope.kind, headers["Content-Type"]) == ("NodeList", protobuf.MEDIA_TYPE)
    assert [each["metadata"]["name"] for each in nodes["items"]] == ["node-1"]


@pytest.mark.parametrize(
    ("path", "accept", "expected"),
    [
        pytest.param("/api/v1/nodes?watch=true&timeoutSeconds=1", EITHER, 200, id="a watch"),
        pytest.param("/api/v1/nodes?watch=true&timeoutSeconds=1", ASKED, 406, id="only that"),
        pytest.param("/apis/lab.example/v1/cogs", EITHER, 200, id="custom objects"),
        pytest.param("/apis/lab.example/v1/cogs", ASKED, 406, id="only those"),
    ],
)
def test_what_has_no_protobuf_is_json_or_not_acceptable(
    url: str, path: str, accept: dict[str, str], expected: int
) -> None:
    send(url, "POST", DEFINITIONS, json.dumps(definition("cog")).encode())
    status, _answer, headers = send_for_headers(url, "GET", path, None, accept)
    assert (status, headers["Content-Type"]) == (expected, "application/json")


REVIEW = b'{"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}}'
REVIEWS = "/apis/authorization.k8s.io/v1"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        pytest.param(f"{REVIEWS}/selfsubjectaccessreviews", REVIEW, id="a review of rights"),
        pytest.param(
            f"{REVIEWS}/selfsubjectrulesreviews", b'{"spec": {"namespace": "x"}}', id="rules"
        ),
        pytest.param(
            "/apis/authentication.k8s.io/v1/selfsubjectreviews", b"{}", id="a review of a user"
        ),
        pytest.param(f"{PODS}/x/eviction", b'{"metadata": {"name": "x"}}', id="an eviction"),
        pytest.param(f"{PODS}/x/binding", b"{}", id="a binding of a pod"),
        pytest.param("/api/v1/namespaces/default/bindings", b"{}", id="a binding"),
        pytest.param("/api/v1/namespaces/default/serviceaccounts/x/token", b"{}", id="a token"),
    ],
)
def test_what_can_only_be_created_has_no_table(url: str, path: str, body: bytes) -> None:
    status, answer = send(url, "POST", path, body, {"Accept": TABLE})
    assert (status, json.loads(answer)["message"]) == (
        406,
        (
            "only the following media types are accepted: application/json, application/yaml, "
            "application/vnd.kubernetes.protobuf"
        ),
    )


def test_a_review_is_answered_in_the_form_that_is_asked_for(url: str) -> None:
    path = f"{REVIEWS}/selfsubjectaccessreviews"
    _status, answer = send(url, "POST", path, REVIEW, {"Accept": f"{TABLE},application/json"})
    assert json.loads(answer)["status"]["allowed"] is True
    metadata = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
    status, answer = send(url, "POST", path, REVIEW, {"Accept": metadata})
    assert (status, json.loads(answer)["kind"]) == (201, "PartialObjectMetadata")
    status, answer = send(url, "POST", path, REVIEW, ASKED)
    review = protobuf.read_message("SelfSubjectAccessReview", protobuf.open_envelope(answer).raw)
    assert (status, review["status"]["allowed"]) == (201, True)


@pytest.mark.parametrize(
    ("timeout", "why"),
    [
        pytest.param("invalid", 'time: invalid duration "invalid"', id="a word"),
        pytest.param("10", 'time: missing unit in duration "10"', id="no unit"),
        pytest.param("1s5", 'time: missing unit in duration "1s5"', id="no unit at the end"),
        pytest.param("5d", 'time: unknown unit "d" in duration "5d"', id="days"),
        pytest.param("-", 'time: invalid duration "-"', id="a sign alone"),
        pytest.param(".s", 'time: invalid duration ".s"', id="a point alone"),
        pytest.param("9999999999h", 'time: invalid duration "9999999999h"', id="too long"),
        pytest.param("9" * 5000 + "s", "time: invalid duration", id="endless"),
        pytest.param("%22%C3%A9", r'time: invalid duration "\"\xc3\xa9"', id="quoted"),
    ],
)
def test_a_timeout_that_is_no_duration_is_refused(url: str, timeout: str, why: str) -> None:
    for method, path in (
        ("GET", "/api/v1/nodes"),
        ("GET", "/version"),
        ("POST", PODS),
        ("DELETE", f"{PODS}/x"),
        ("GET", "/api/v1/namespaces/watch/pods"),
    ):
        status, answer = send(url, method, f"{path}?timeout={timeout}")
        assert status == 400, (method, path)
        message = json.loads(answer)["message"]
        assert message.startswith(f"invalid timeout specified in the request URL - {why}")


@pytest.mark.parametrize(
    "query",
    [
        *("timeout=", "timeout=0", "timeout=1.5h30m", "timeout=-3s", "timeout=%2B2us"),
        *("watch=true&timeoutSeconds=1&timeout=invalid",),
    ],
)
def test_a_timeout_that_is_a_duration_is_taken_and_none_of_a_watch(url: str, query: str) -> None:
    assert send(url, "GET", f"/api/v1/nodes?{query}")[0] == 200


MALFORMED = {
    "no envelope": b"{}",
    "empty": b"",
    "an envelope that is no message": b"k8s\0\xff\xff",
    "another kind": protobuf.write_body("Node", {"kind": "Node", "apiVersion": "v1"}),
    "a kind that does not exist": protobuf.write_body("Pod", pod("x") | {"kind": "Frob"}),
    "an object that is no message": protobuf.write_body("Pod", pod("x"))[:-1],
    "an object without a name": protobuf.write_body("Pod", {"kind": "Pod", "apiVersion": "v1"}),
    "groups without end": b"k8s\0" + b"\x0b" * 100_000,
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", PODS),
        ("PUT", f"{PODS}/x"),
        ("DELETE", f"{PODS}/x"),
        ("POST", f"{PODS}/x/binding"),
        ("POST", f"{PODS}/x/eviction"),
        ("POST", "/api/v1/namespaces/default/serviceaccounts/x/token"),
        ("PUT", "/apis/apps/v1/namespaces/default/deployments/x/scale"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ],
)
def test_a_malformed_body_is_refused_with_a_status(
    url: str, method: str, path: str, body: bytes
) -> None:
    status, answer = send(url, method, path, body, SENT)
    failure = json.loads(answer)
    assert 400 <= status < 500, failure
    assert (failure["kind"], failure["code"]) == ("Status", status)


def test_a_body_of_nothing_but_mistakes_is_answered_with_some_of_them(url: str) -> None:
    containers: list[dict[str, Any]] = [{} for _ in range(5_000)]
    body = protobuf.write_body("Pod", pod("x") | {"spec": {"containers": containers}})
    status, answer = send(url, "POST", PODS, body, SENT)
    assert status == 422
    assert len(answer) < 1 << 20


def test_a_body_beyond_all_limits_is_refused_with_a_status(url: str) -> None:
    status, answer = send(url, "POST", PODS, b"k8s\0" + bytes(4 << 20), SENT)
    assert (status, json.loads(answer)["reason"]) == (413, "RequestEntityTooLarge")


def test_a_definition_is_created_and_read_as_protobuf(url: str) -> None:
    body = protobuf.write_body("CustomResourceDefinition", definition("axle"))
    status, answer = send(url, "POST", DEFINITIONS, body, SENT | EITHER)
    created = protobuf.read_message("CustomResourceDefinition", protobuf.open_envelope(answer).raw)
    assert (status, created["spec"]["scope"]) == (201, "Cluster")
    stored = json.loads(send(url, "GET", f"{DEFINITIONS}/axles.lab.example")[1])
    [version] = stored["spec"]["versions"]
    assert version["schema"] == definition("axle")["spec"]["versions"][0]["schema"]
    axle = {"metadata": {"name": "a"}, "spec": {"kept": [{"x": 1}]}}
    path = "/apis/lab.example/v1/axles"
    assert send(url, "POST", path, json.dumps(axle).encode())[0] == 201
    assert json.loads(send(url, "GET", f"{path}/a")[1])["spec"] == axle["spec"]


def test_a_custom_object_in_protobuf_is_an_unsupported_media_type(url: str) -> None:
    send(url, "POST", DEFINITIONS, json.dumps(definition("cog")).encode())
    assert send(url, "POST", "/apis/lab.example/v1/cogs", b"k8s\0", SENT)[0] == 415


def test_a_token_is_as_long_as_it_is_asked_for_and_no_shorter_than_ten_minutes(url: str) -> None:
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    send(url, "POST", accounts, b'{"metadata": {"name": "robot"}}')
    path = f"{accounts}/robot/token"
    request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"}
    status, answer = send(url, "POST", path, protobuf.write_body("TokenRequest", request), SENT)
    assert (status, json.loads(answer)["spec"]["expirationSeconds"]) == (201, 3600)
    assert send(url, "POST", path, b'{"spec": {"expirationSeconds": 599}}')[0] == 422
    assert send(url, "POST", f"{accounts}/nobody/token", b"{}")[0] == 404


def test_an_autoscaler_is_one_object_in_two_versions(url: str) -> None:
    first = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    second = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/web"
    body = {
        "metadata": {"name": "web"},
        "spec": {
            "maxReplicas": 3,
            "targetCPUUtilizationPercentage": 50,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        },
    }
    assert send(url, "POST", first, json.dumps(body).encode())[0] == 201
    stored = json.loads(send(url, "GET", second)[1])
    [metric] = stored["spec"]["metrics"]
    assert metric["resource"]["target"] == {"type": "Utilization", "averageUtilization": 50}
    assert stored["apiVersion"] == "autoscaling/v2"
    [listed] = json.loads(send(url, "GET", first)[1])["items"]
    assert listed["spec"]["targetCPUUtilizationPercentage"] == 50


def test_openapi_2_says_in_protobuf_what_it_says_in_json(url: str) -> None:
    assert send(url, "POST", DEFINITIONS, json.dumps(definition("gear")).encode())[0] == 201
    document = json.loads(send(url, "GET", "/openapi/v2", None, {"Accept": "application/json"})[1])
    _status, answer, headers = send_for_headers(
        url, "GET", "/openapi/v2", None, {"Accept": OPENAPI}
    )
    assert headers["Content-Type"] == openapi_protobuf.MEDIA_TYPE
    message: Any = openapi_protobuf.message_class("Document")()
    message.ParseFromString(answer)
    named = {each.name: each.value for each in message.definitions.additional_properties}
    assert set(named) == set(document["definitions"])
    for name, schema in document["definitions"].items():
        properties = [each.name for each in named[name].properties.additional_properties]
        assert properties == list(schema.get("properties") or ()), name
    extensions = {
        each.name: each.value.yaml for each in named["example.lab.v1.Gear"].vendor_extension
    }
    assert json.loads(extensions["x-kubernetes-group-version-kind"]) == [
        {"group": "lab.example", "version": "v1", "kind": "Gear"}
    ]
    assert {each.name for each in message.paths.path} == set(document["paths"])


@pytest.mark.parametrize(
    ("path", "part"),
    [
        pytest.param("/openapi/v2", ("definitions",), id="of version 2"),
        pytest.param(
            "/openapi/v3/apis/apiextensions.k8s.io/v1", ("components", "schemas"), id="of version 3"
        ),
    ],
)
def test_openapi_lets_kubectl_write_any_value_into_a_schema(
    url: str, path: str, part: tuple[str, ...]
) -> None:
    """Kubectl checks the items of a List by itself, with these types."""
    described = json.loads(send(url, "GET", path)[1])
    for name in part:
        described = described[name]
    [schema] = [each for name, each in described.items() if name.endswith("JSONSchemaProps")]
    fields = schema["properties"]
    for name in ("default", "example", "additionalProperties", "items"):
        assert "type" not in fields[name], name
    assert fields["enum"]["type"] == "array"
    assert "type" not in fields["enum"]["items"]


@pytest.mark.parametrize("subresource", ["attach", "exec", "log", "portforward"])
def test_what_needs_a_process_says_that_there_is_none(url: str, subresource: str) -> None:
    body = json.dumps(pod("hollow")).encode()
    send(url, "POST", PODS, body)
    status, answer = send(url, "GET", f"{PODS}/hollow/{subresource}?command=ls")
    assert (status, json.loads(answer)["reason"]) == (405, "MethodNotAllowed")
    assert "run no processes" in json.loads(answer)["message"]
    assert send(url, "GET", f"{PODS}/missing/{subresource}")[0] == 404
