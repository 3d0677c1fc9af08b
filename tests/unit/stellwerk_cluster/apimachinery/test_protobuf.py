from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError
from stellwerk_kube.schema.types import types

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


SCHEMA: dict[str, Any] = {
    "type": "object",
    "$schema": "http://json-schema.org/schema#",
    "required": ["spec"],
    "x-kubernetes-preserve-unknown-fields": True,
    "properties": {
        "colour": {"type": "string", "enum": ["red", None, 1, {"a": []}], "default": "red"},
        "lamps": {"type": "integer", "default": 0, "maximum": 0, "minimum": -1.5, "maxLength": 0},
        "any": {"type": "object", "additionalProperties": True, "example": [{"a": None}]},
        "none": {"type": "object", "additionalProperties": False},
        "named": {"type": "object", "additionalProperties": {"type": "string"}},
        "list": {
            "type": "array",
            "maxItems": 1 << 40,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {"type": "object", "properties": {"k": {"$ref": "#/x"}}},
        },
        "places": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]},
        "needs": {"dependencies": {"a": ["b", "c"], "d": {"type": "string"}}},
        "either": {"oneOf": [{"type": "string"}], "not": {"anyOf": [{"nullable": True}]}},
        "x": {"x-kubernetes-int-or-string": True, "x-kubernetes-validations": [{"rule": "true"}]},
    },
}
DEFINITION: dict[str, Any] = {
    "kind": "CustomResourceDefinition",
    "apiVersion": "apiextensions.k8s.io/v1",
    "metadata": {"name": "signals.rail.example"},
    "spec": {
        "group": "rail.example",
        "scope": "Namespaced",
        "names": {"plural": "signals", "kind": "Signal", "shortNames": ["sg"]},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": SCHEMA},
            }
        ],
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
                "kind": "Lease",
                "apiVersion": "coordination.k8s.io/v1",
                "metadata": {"creationTimestamp": "0987-01-01T00:00:02Z"},
                "spec": {"renewTime": "0001-01-01T00:00:02.000000Z"},
            },
            id="years of less than four digits",
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
        pytest.param(DEFINITION, id="a definition, with schemas that may be something else"),
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


def test_what_go_writes_for_an_empty_schema_is_an_empty_schema() -> None:
    # Go writes the texts and the truth values of a schema that have no value, too.
    message: Any = message_class("JSONSchemaProps")()
    for name in ("id", "schema", "ref", "description", "type", "format", "title", "pattern"):
        setattr(message, {"schema": "_schema", "ref": "_ref"}.get(name, name), "")
    for name in ("exclusiveMaximum", "uniqueItems", "nullable", "x_kubernetes_int_or_string"):
        setattr(message, name, False)
    message.additionalProperties.allows = True
    read = read_message("JSONSchemaProps", message.SerializeToString())
    assert decode("JSONSchemaProps", read)[0] == {"additionalProperties": True}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param({"items": {"type": "string", "title": ""}}, {"items": {"type": "string"}}),
        pytest.param({"items": "x"}, {}, id="items that are no schema count as absent"),
        pytest.param({"items": []}, {}, id="an empty list of items counts as absent"),
        pytest.param({"additionalProperties": False}, {"additionalProperties": False}, id="none"),
        pytest.param({"enum": [None, "a"]}, {"enum": [None, "a"]}, id="null is a value"),
        pytest.param({"default": None}, {}, id="null is no default"),
        pytest.param({"maximum": 5.0}, {"maximum": 5}, id="a whole number has no fraction"),
        pytest.param({"maximum": 1e300}, {"maximum": 1e300}, id="a number too large to be whole"),
        pytest.param({"maxLength": 1 << 40}, {"maxLength": 1 << 40}, id="a length of 64 bits"),
    ],
)
def test_a_schema_is_stored_as_the_api_server_writes_it(
    schema: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert decode("JSONSchemaProps", schema) == (expected, [])


def test_what_is_no_schema_where_only_a_truth_value_may_stand_is_refused() -> None:
    with pytest.raises(DecodeError, match="boolean or JSON schema expected"):
        decode("JSONSchemaProps", {"additionalProperties": 1})
