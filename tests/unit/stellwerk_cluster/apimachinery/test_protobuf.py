from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.models.schema.decoder import decode
from stellwerk.models.schema.types import types
from stellwerk_cluster.apimachinery.messages import (
    field_numbers,
    message_class,
)
from stellwerk_cluster.apimachinery.protobuf import (
    MalformedError,
    open_envelope,
    read_message,
    write_body,
)

POD: dict[str, Any] = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "web",
        "labels": {"app": "web", "empty": ""},
        "creationTimestamp": "2026-11-20T15:40:41Z",
        "generation": 7,
    },
    "spec": {
        "nodeName": "node-1",
        "hostNetwork": True,
        "priority": -5,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": "c",
                "command": ["sh", ""],
                "resources": {"requests": {"cpu": "100m"}},
                "livenessProbe": {"httpGet": {"port": "http"}, "periodSeconds": 3},
                "ports": [{"containerPort": 80}],
            }
        ],
        "volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "configMap": {"name": "m"}}],
    },
}


def read_back(body: dict[str, Any], type_name: str = "") -> dict[str, Any]:
    envelope = open_envelope(write_body(type_name or body["kind"], body))
    named = {"kind": envelope.kind, "apiVersion": envelope.api_version}
    return {**named, **read_message(type_name or body["kind"], envelope.raw)}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(POD, id="a pod with inline structs, maps, quantities and zero values"),
        pytest.param(
            {"kind": "Secret", "apiVersion": "v1", "data": {"key": "AAH/"}},
            id="bytes are base64 in the object",
        ),
        pytest.param(
            {
                "kind": "Lease",
                "apiVersion": "coordination.k8s.io/v1",
                "spec": {"renewTime": "1969-12-31T23:59:59.000001Z"},
            },
            id="a moment before 1970, with microseconds",
        ),
        pytest.param(
            {
                "kind": "PodDisruptionBudget",
                "apiVersion": "policy/v1",
                "spec": {"minAvailable": "50%", "maxUnavailable": 0},
            },
            id="a number or a text",
        ),
        pytest.param(
            {
                "kind": "ControllerRevision",
                "apiVersion": "apps/v1",
                "data": {"spec": {"template": None}},
                "revision": 3,
            },
            id="any JSON",
        ),
        pytest.param(
            {
                "kind": "SubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                "spec": {"user": "bob", "extra": {"scopes": ["a", "b"]}},
            },
            id="a map of lists",
        ),
    ],
)
def test_an_object_that_is_written_is_read_as_the_same(body: dict[str, Any]) -> None:
    assert read_back(body) == body


def test_a_list_is_written_with_its_items() -> None:
    items = [{key: value for key, value in POD.items() if key not in ("kind", "apiVersion")}]
    body = {"kind": "PodList", "apiVersion": "v1", "metadata": {"continue": "x"}, "items": items}
    assert read_back(body) == body


def test_the_zero_time_is_no_time() -> None:
    message: Any = message_class("ObjectMeta")()
    message.creationTimestamp.SetInParent()
    pod: Any = message_class("Pod")()
    pod.metadata.CopyFrom(message)
    assert read_message("Pod", pod.SerializeToString()) == {"metadata": {}}


def length_delimited(number: int, content: bytes) -> bytes:
    length, size = len(content), b""
    while True:
        length, seven = length >> 7, length & 127
        size += bytes([seven | (128 if length else 0)])
        if not length:
            return bytes([number << 3 | 2]) + size + content


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"\x0a\xff\xff\xff\xff\x0f", id="a length of four gigabytes"),
        pytest.param(b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", id="a negative length"),
        pytest.param(b"\xff" * 64, id="a number without end"),
        pytest.param(b"\x0b" * 100_000, id="groups nested without end"),
        pytest.param(length_delimited(1, length_delimited(1, b"\xff")), id="no UTF-8"),
        pytest.param(length_delimited(1, b"\x0a\x05ab"), id="cut off"),
        pytest.param(
            length_delimited(1, length_delimited(8, b"\x08" + b"\xff" * 8 + b"\x7f")),
            id="a time beyond all calendars",
        ),
    ],
)
def test_a_malformed_message_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedError):
        read_message("Pod", raw)


def test_fields_that_are_not_known_are_left_out() -> None:
    assert read_message("Pod", b"\xb8\x3e\x01" + length_delimited(2, b"")) == {"spec": {}}


@pytest.mark.parametrize("content", [b"", b"k8s", b"{}", b"k8s\x01", b"k8s\0\xff"])
def test_a_body_without_an_envelope_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedError):
        open_envelope(content)


@given(st.binary(max_size=200), st.sampled_from(sorted(field_numbers())))
def test_arbitrary_bytes_are_an_object_or_malformed(raw: bytes, type_name: str) -> None:
    try:
        found = read_message(type_name, raw)
    except MalformedError:
        return
    assert set(found) <= set(field_numbers()[type_name])


def test_every_field_of_a_type_with_numbers_has_one() -> None:
    for type_name, numbers in field_numbers().items():
        fields = set(types()[type_name])
        assert fields - set(numbers) <= {"kind", "apiVersion"}, type_name
        assert set(numbers) <= fields, type_name
        paths = list(numbers.values())
        assert len(set(paths)) == len(paths), type_name


def test_what_is_left_out_in_protobuf_is_what_the_schema_fills_in() -> None:
    decoded, unknown = decode("Pod", POD)
    assert unknown == []
    assert decode("Pod", read_back(decoded | {"kind": "Pod", "apiVersion": "v1"}))[0] == decoded
