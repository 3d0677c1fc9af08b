"""Objects of custom kinds, from their definition to the store, as public definitions have them."""

from typing import TYPE_CHECKING, Any

import pytest

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.cluster import ClusterOptions, EmbeddedCluster
from stellwerk_cluster.registry.write_options import WriteOptions
from stellwerk_kube.clock import VirtualClock

if TYPE_CHECKING:
    from stellwerk_cluster.registry.api import Api

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
OBJECT: Schema = {"type": "object"}
SHORT_NAME: Schema = {"type": "string", "maxLength": 2}
PRESERVE: Schema = {"x-kubernetes-preserve-unknown-fields": True}
DEFINITION = ("customresourcedefinitions", "apiextensions.k8s.io")


class Freights:
    """A cluster with one custom kind, whose schema a test gives."""

    def __init__(self, root: Schema, *, has_status: bool = False) -> None:
        options = ClusterOptions(seed=1, heartbeats=False, controllers=False, kubelet=None)
        self.api: Api = EmbeddedCluster(0, clock=VirtualClock(), options=options).api
        self._subresources: Schema = {"status": {}} if has_status else {}
        self.api.create(self.api.kinds.resource(*DEFINITION), "", self._definition(root))
        self.kind = self.api.kinds.resource("freights", "rail.example")

    def _definition(self, root: Schema) -> Schema:
        version = {
            "name": "v1",
            "served": True,
            "storage": True,
            "subresources": self._subresources,
            "schema": {"openAPIV3Schema": {"type": "object", **root}},
        }
        names = {"plural": "freights", "singular": "freight", "kind": "Freight"}
        spec = {"group": "rail.example", "scope": "Cluster", "names": names, "versions": [version]}
        return {"metadata": {"name": "freights.rail.example"}, "spec": spec}

    def change_schema(self, root: Schema) -> None:
        kind, key = self.api.kinds.resource(*DEFINITION), ("", "freights.rail.example")
        version = self.api.get(kind, *key).obj["metadata"]["resourceVersion"]
        body = self._definition(root)
        body["metadata"]["resourceVersion"] = version
        self.api.update(kind, key, body)

    def create(self, **body: Any) -> Schema:
        fields = {"metadata": {"name": "f1"}, **body}
        return self.api.create(self.kind, "", fields).obj

    def refusal(self, **body: Any) -> list[str]:
        with pytest.raises(StatusError) as refused:
            self.create(**body)
        return causes(refused.value)

    def patch(self, change: Schema, subresource: str = "") -> list[str]:
        try:
            self.api.patch(self.kind, ("", "f1"), change, subresource=subresource)
        except StatusError as error:
            return causes(error)
        return []

    def unknown_fields(self, **body: Any) -> list[str]:
        options = WriteOptions(field_validation="Warn", dry_run=True)
        self.api.create(self.kind, "", {"metadata": {"name": "f1"}, **body}, options)
        return options.warnings


def causes(error: StatusError) -> list[str]:
    return [f"{each['field']}: {each['message']}" for each in (error.details or {})["causes"]]


# The object that is validated has its apiVersion, kind and metadata.


@pytest.mark.parametrize(
    "root",
    [
        pytest.param({"required": ["metadata", "spec"]}, id="metadata is required"),
        pytest.param({"required": ["apiVersion", "kind"]}, id="kind and apiVersion are required"),
        pytest.param(
            {"anyOf": [{"required": ["metadata"]}]}, id="one of several parts requires metadata"
        ),
        pytest.param({"minProperties": 4}, id="the fields of every object count"),
        pytest.param(
            {
                "required": ["metadata"],
                "properties": {
                    "kind": {"type": "string", "enum": ["Freight"]},
                    "metadata": {"type": "object", "properties": {"name": SHORT_NAME}},
                    "spec": OBJECT,
                },
            },
            id="the kind is named, and the name is short enough",
        ),
    ],
)
def test_what_every_object_has_is_there_for_its_schema(root: Schema) -> None:
    freights = Freights({"properties": {"spec": OBJECT}, **root})
    assert freights.create(spec={})["metadata"]["name"] == "f1"
    assert freights.patch({"metadata": {"labels": {"a": "b"}}}) == []


def test_a_schema_may_restrict_the_name() -> None:
    name = {"type": "string", "maxLength": 3}
    metadata = {"type": "object", "properties": {"name": name}}
    freights = Freights({"properties": {"metadata": metadata}})
    assert freights.refusal(metadata={"name": "long"}) == [
        "metadata.name: Too long: may not be more than 3 bytes"
    ]


def test_a_default_for_metadata_does_not_replace_it() -> None:
    freights = Freights({"properties": {"metadata": {"type": "object", "default": {}}}})
    assert freights.create()["metadata"]["name"] == "f1"


# What a schema keeps and what it drops.


@pytest.mark.parametrize(
    ("field", "value", "unknown"),
    [
        pytest.param(PRESERVE, [{"image": "one"}], [], id="a list without a type"),
        pytest.param(
            {"type": "array", "items": OBJECT, **PRESERVE},
            [{"id": "main", "deep": {"er": [{"x": 1}]}}],
            [],
            id="a list",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "array", "items": OBJECT}, **PRESERVE},
            [[{"id": "main"}]],
            [],
            id="a list of lists",
        ),
        pytest.param(
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"known": {"type": "object", "properties": {"a": TEXT}}},
                },
                **PRESERVE,
            },
            [{"other": 1, "known": {"a": "x"}}],
            [],
            id="a list of objects that have some fields",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "array", "items": PRESERVE}},
            {"a": [{"b": 1}, [{"c": 2}]]},
            [],
            id="a map of lists of anything",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": OBJECT}, **PRESERVE},
            {"a": {"b": 1}, "c": {"d": 1}},
            ["spec.f.a.b"],
            id="a named field is dropped from again",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": {"type": "object"}, **PRESERVE},
            {"a": {"b": 1}},
            ["spec.f.a.b"],
            id="so are the values of a map",
        ),
        pytest.param(
            {"type": "object", "additionalProperties": True},
            {"a": 1, "b": [2], "c": {"d": 1}, "e": [{"f": 1}]},
            ["spec.f.c.d", "spec.f.e[0].f"],
            id="of a map of anything, one level is kept",
        ),
        pytest.param(
            {"type": "array", "items": OBJECT},
            [{"id": "main"}],
            ["spec.f[0].id"],
            id="a list that keeps nothing",
        ),
        pytest.param(
            {
                "type": "object",
                "x-kubernetes-embedded-resource": True,
                "properties": {"metadata": OBJECT, "spec": OBJECT},
            },
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "x", "labels": {"a": "b"}, "other": 1},
                "spec": {"a": 1},
            },
            ["spec.f.metadata.other", "spec.f.spec.a"],
            id="the metadata of an object inside has the fields of all metadata",
        ),
    ],
)
def test_fields_are_kept_as_far_as_the_schema_says_and_dropped_with_a_word(
    field: Schema, value: Any, unknown: list[str]
) -> None:
    freights = Freights({"properties": {"spec": {"type": "object", "properties": {"f": field}}}})
    assert freights.unknown_fields(spec={"f": value}) == [
        f'unknown field "{path}"' for path in unknown
    ]
    if not unknown:
        assert freights.create(spec={"f": value})["spec"]["f"] == value


def test_a_null_that_may_not_be_gets_the_default_or_is_left_out() -> None:
    with_default = {"type": "string", "default": "x"}
    spec = {
        "type": "object",
        "properties": {
            "map": {"type": "object", "additionalProperties": TEXT},
            "defaults": {"type": "object", "additionalProperties": with_default},
            "list": {"type": "array", "items": with_default},
        },
    }
    freights = Freights({"properties": {"spec": spec}})
    given = {
        "map": {"a": None, "b": "y"},
        "defaults": {"a": None, "b": "y"},
        "list": [None, "y"],
    }
    assert freights.create(spec=given)["spec"] == {
        "map": {"b": "y"},
        "defaults": {"a": "x", "b": "y"},
        "list": ["x", "y"],
    }


# What was wrong before may stay as it is.


def freights_that_were_tightened(before: Schema, after: Schema, **spec: Any) -> Freights:
    def schema(fields: Schema) -> Schema:
        return {
            "properties": {
                "spec": {"type": "object", "properties": {"other": TEXT}, **fields},
                "status": {"type": "object", **PRESERVE},
            }
        }

    freights = Freights(schema(before), has_status=True)
    freights.create(spec=spec)
    freights.change_schema(schema(after))
    return freights


def fields(**properties: Schema) -> Schema:
    return {"properties": {"other": TEXT, **properties}}


KEYED: Schema = {
    "type": "array",
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}


def elements(value: Schema) -> Schema:
    return {"type": "object", "required": ["k"], "properties": {"k": TEXT, "v": value}}


SHORT: Schema = {"type": "string", "maxLength": 1}


@pytest.mark.parametrize(
    ("before", "after", "spec", "change"),
    [
        pytest.param(
            fields(f=TEXT),
            fields(f={"type": "string", "enum": ["bar"]}),
            {"f": "foo"},
            {"metadata": {"labels": {"x": "y"}}},
            id="a label, beside a value that is no longer allowed",
        ),
        pytest.param(
            fields(f=TEXT),
            fields(f={"type": "string", "pattern": "^b"}),
            {"f": "foo"},
            {"spec": {"other": "new"}},
            id="another field of the same object",
        ),
        pytest.param(
            fields(f=TEXT),
            {"required": ["g"], **fields(f=TEXT, g=TEXT)},
            {"f": "foo"},
            {"metadata": {"labels": {"x": "y"}}},
            id="an object that lacks a field, and is not touched",
        ),
        pytest.param(
            fields(l={**KEYED, "items": elements(TEXT)}),
            fields(l={**KEYED, "items": elements(SHORT)}),
            {"l": [{"k": "a", "v": "long"}, {"k": "b", "v": "b"}]},
            {"spec": {"l": [{"k": "c", "v": "c"}, {"k": "a", "v": "long"}]}},
            id="an element that has the same key at another place",
        ),
        pytest.param(
            fields(l={"type": "array", "items": TEXT}),
            fields(l={"type": "array", "items": SHORT}),
            {"l": ["long"]},
            {"spec": {"other": "new"}},
            id="a list that is left as it is",
        ),
        pytest.param(
            fields(l={"type": "array", "items": TEXT}),
            fields(l={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}),
            {"l": ["a", "a"]},
            {"spec": {"other": "new"}},
            id="a list that became a set",
        ),
    ],
)
def test_what_a_write_does_not_touch_may_be_against_a_newer_schema(
    before: Schema, after: Schema, spec: Schema, change: Schema
) -> None:
    assert freights_that_were_tightened(before, after, **spec).patch(change) == []


@pytest.mark.parametrize(
    ("before", "after", "spec", "change", "refusal"),
    [
        pytest.param(
            fields(f=TEXT),
            fields(f={"type": "string", "enum": ["bar"]}),
            {"f": "foo"},
            {"spec": {"f": "baz"}},
            'spec.f: Unsupported value: "baz": supported values: "bar"',
            id="the value itself",
        ),
        pytest.param(
            fields(f=TEXT),
            {"required": ["g"], **fields(f=TEXT, g=TEXT)},
            {"f": "foo"},
            {"spec": {"other": "new"}},
            "spec.g: Required value",
            id="the object that lacks a field",
        ),
        pytest.param(
            fields(l={"type": "array", "items": TEXT}),
            fields(l={"type": "array", "items": SHORT}),
            {"l": ["long"]},
            {"spec": {"l": ["long", "b"]}},
            "spec.l[0]: Too long: may not be more than 1 byte",
            id="a list whose elements have no keys",
        ),
        pytest.param(
            fields(l={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}),
            fields(l={"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"}),
            {"l": ["a"]},
            {"spec": {"l": ["a", "a"]}},
            'spec.l[1]: Duplicate value: "a"',
            id="a set that was none before",
        ),
        pytest.param(
            {"properties": {"f": {"type": "integer"}}},
            {"properties": {"f": {"type": "boolean"}}},
            {"f": 1},
            {"spec": {"f": 0}},
            'spec.f: Invalid value: "integer": spec.f in body must be of type boolean: "integer"',
            id="a number where a truth value is wanted now",
        ),
    ],
)
def test_what_a_write_touches_has_to_fit_the_newer_schema(
    before: Schema, after: Schema, spec: Schema, change: Schema, refusal: str
) -> None:
    freights = freights_that_were_tightened(before, after, **spec)
    assert refusal in freights.patch(change)


def test_a_status_may_stay_as_wrong_as_it_is() -> None:
    def schema(phase: Schema) -> Schema:
        status = {"type": "object", "properties": {"phase": phase, "note": TEXT}}
        return {"properties": {"status": status}}

    freights = Freights(schema(TEXT), has_status=True)
    freights.create()
    assert freights.patch({"status": {"phase": "Lost"}}, "status") == []
    freights.change_schema(schema({"type": "string", "enum": ["Moving"]}))
    assert freights.patch({"status": {"note": "seen"}}, "status") == []
    assert freights.patch({"status": {"phase": "Gone"}}, "status") == [
        'status.phase: Unsupported value: "Gone": supported values: "Moving"'
    ]


# Words of CEL as names of fields.

WORDS = "as break const continue else for function if import let loop package namespace return"
ALL_WORDS = f"{WORDS} var void while".split()


@pytest.mark.parametrize("word", [*ALL_WORDS, "in", "true", "false", "null"])
def test_a_field_named_like_a_word_of_cel_can_be_selected(word: str) -> None:
    rules = [f"!has(self.__{word}__) || self.__{word}__ != 'bad'"]
    if word in ALL_WORDS:  # the grammar takes the other four in their escaped form alone
        rules += [
            f"!has(self.{word}) || size(self.{word}) < 5",
            f"self.?{word}.orValue('') == self.?__{word}__.orValue('')",
        ]
    spec = {
        "type": "object",
        "properties": {word: TEXT, "other": TEXT},
        "x-kubernetes-validations": [{"rule": each} for each in rules],
    }
    freights = Freights({"properties": {"spec": spec}})
    freights.create(metadata={"name": "f2"}, spec={word: "fine"})
    freights.create(metadata={"name": "f3"}, spec={"other": "x"})
    assert freights.refusal(spec={word: "bad"}) == [f"spec: Invalid value: failed rule: {rules[0]}"]
    if word in ALL_WORDS:
        assert freights.refusal(spec={word: "longer"}) == [
            f"spec: Invalid value: failed rule: {rules[1]}"
        ]


def test_a_word_of_cel_is_found_in_lists_and_maps_of_objects() -> None:
    meta = {"type": "object", "properties": {"namespace": TEXT, "name": TEXT}}
    spec = {
        "type": "object",
        "properties": {
            "items": {"type": "array", "items": {"type": "object", "properties": {"meta": meta}}},
            "labels": {"type": "object", "additionalProperties": TEXT},
        },
        "x-kubernetes-validations": [
            {
                "rule": "!has(self.items) || self.items.all(i, !has(i.meta.namespace) || "
                "size(i.meta.namespace) == 0)",
                "message": "no namespace",
            },
            {"rule": "!has(self.labels) || self.labels.namespace == 'x'", "message": "no label"},
        ],
    }
    freights = Freights({"properties": {"spec": spec}})
    named = {"meta": {"name": "a", "namespace": "b"}}
    assert freights.refusal(spec={"items": [named]}) == ["spec: Invalid value: no namespace"]
    assert freights.refusal(spec={"labels": {"namespace": "y"}}) == [
        "spec: Invalid value: no label"
    ]
    freights.create(spec={"items": [{"meta": {"name": "a"}}], "labels": {"namespace": "x"}})


def test_a_field_whose_name_looks_escaped_is_another_field() -> None:
    spec = {
        "type": "object",
        "properties": {"__namespace__": TEXT, "namespace": TEXT},
        "x-kubernetes-validations": [
            {"rule": "self.__underscores__namespace__underscores__ == 'a' && self.namespace == 'b'"}
        ],
    }
    freights = Freights({"properties": {"spec": spec}})
    freights.create(spec={"__namespace__": "a", "namespace": "b"})


# What OpenAPI shows.


@pytest.mark.parametrize(
    ("field", "third", "second"),
    [
        pytest.param(
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"type": "string", "nullable": True, "enum": ["a"]},
            {"enum": ["a"]},
            id="a value that may be null has no type",
        ),
        pytest.param(
            {"type": "array", "items": OBJECT, **PRESERVE},
            {"type": "array", "items": OBJECT, **PRESERVE},
            PRESERVE,
            id="a list of anything",
        ),
        pytest.param(
            {"type": "object", "properties": {"a": TEXT}, **PRESERVE},
            {"type": "object", "properties": {"a": TEXT}, **PRESERVE},
            PRESERVE,
            id="an object with any field",
        ),
        pytest.param(
            {
                "type": "object",
                "required": ["a", "b"],
                "properties": {"a": {**TEXT, "nullable": True}, "b": TEXT},
                "oneOf": [{"required": ["a"]}],
            },
            {
                "type": "object",
                "required": ["a", "b"],
                "properties": {"a": {**TEXT, "nullable": True}, "b": TEXT},
                "oneOf": [{"required": ["a"]}],
            },
            {"type": "object", "required": ["b"], "properties": {"a": {}, "b": TEXT}},
            id="what may be null is not required, and there are no alternatives",
        ),
    ],
)
def test_openapi_has_the_form_that_kubectl_can_read(
    field: Schema, third: Schema, second: Schema
) -> None:
    freights = Freights({"properties": {"f": {"type": "array", "items": field}}})
    custom = freights.api.custom
    for v2, expected in ((False, third), (True, second)):
        shown = custom.openapi_schema(freights.kind, v2=v2)
        assert shown["properties"]["f"]["items"] == expected
        assert {"apiVersion", "kind", "metadata"} <= shown["properties"].keys()


def test_an_object_inside_has_the_fields_of_every_object() -> None:
    embedded = {"x-kubernetes-embedded-resource": True, "type": "object"}
    freights = Freights(
        {
            "properties": {
                "f": {**embedded, "properties": {"spec": OBJECT}},
                "free": {**embedded, **PRESERVE},
            }
        }
    )
    for v2 in (False, True):
        shown = freights.api.custom.openapi_schema(freights.kind, v2=v2)["properties"]
        assert shown["f"]["required"] == ["kind", "apiVersion"]
        assert {"apiVersion", "kind", "metadata", "spec"} == shown["f"]["properties"].keys()
        assert ("properties" in shown["free"]) is not v2


def test_an_object_that_may_have_any_field_names_none() -> None:
    freights = Freights({**PRESERVE, "properties": {"spec": OBJECT}})
    custom = freights.api.custom
    assert custom.openapi_schema(freights.kind, v2=True) == {"type": "object"}
    assert "spec" in custom.openapi_schema(freights.kind)["properties"]


def test_a_new_object_has_the_default_of_its_status_and_not_that_of_its_body() -> None:
    pending = {"phase": "Pending"}
    root = fields(status={**OBJECT, "properties": {"phase": TEXT}, "default": pending})
    freights = Freights(root, has_status=True)
    assert freights.create(status={"phase": "Done"})["status"] == pending
    assert freights.patch({"status": {"phase": "Done"}}, "status") == []
    assert freights.patch({"metadata": {"labels": {"a": "b"}}}) == []
    assert freights.api.get(freights.kind, "", "f1").obj["status"] == {"phase": "Done"}
