"""Defaults in the schemas of definitions are what the schemas ask for."""

import copy
import json
from typing import Any

import pytest

from stellwerk_cluster.validation.definitions import (
    default_errors,
    topology_errors,
    validate_definition,
    validate_definition_update,
)

FREE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param({"type": "integer", "default": 3}, [], id="fine"),
        pytest.param({"type": "string", "default": None}, [], id="null is none"),
        pytest.param(
            {"type": "integer", "default": "x"},
            ['default: Invalid value: "string":  in body must be of type'],
            id="another type",
        ),
        pytest.param(
            {"type": "integer", "default": 0, "minimum": 1},
            ["default: Invalid value: 0:  in body should be greater"],
            id="too small",
        ),
        pytest.param(
            {"type": "object", "properties": {"b": {"type": "string"}}, "default": {"c": 1}},
            ['default: Invalid value: {"c":1}: must not have unknown fields'],
            id="unknown fields",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "string", "default": 1}},
            ["items.default: Invalid value"],
            id="further down",
        ),
        pytest.param(
            {"type": "object", EMBEDDED: True, FREE: True, "default": {"kind": "Pod"}},
            ["default.apiVersion: Required value: must not be empty"],
            id="an object without a version",
        ),
        pytest.param(
            {"type": "object", EMBEDDED: True},
            ["properties: Required value: must not be empty if"],
            id="an embedded object about which nothing is said",
        ),
        pytest.param(
            {"type": "string", EMBEDDED: True, FREE: True},
            ['type: Invalid value: "string": must be object if'],
            id="an embedded object that is none",
        ),
    ],
)
def test_a_default_is_checked_by_its_own_schema(part: dict[str, Any], expected: list[str]) -> None:
    schema = {"type": "object", "properties": {"a": part}}
    found = [f"{error.field}: {error.message}" for error in default_errors(schema, "s")]
    assert len(found) == len(expected)
    prefix = "s.properties[a]."
    assert all(
        text.removeprefix(prefix).startswith(start)
        for text, start in zip(found, expected, strict=True)
    ), found


def test_what_is_within_a_default_is_named_by_its_place_in_it() -> None:
    part = {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"a": {**part, "default": {"b": [1]}}}}
    assert [(error.field, error.message) for error in default_errors(schema, "s")] == [
        (
            "s.properties[a].default.b[0]",
            'Invalid value: "integer": b[0] in body must be of type string: "integer"',
        )
    ]


KEYED = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]}
SCALAR = {"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}
AMONG = "this property is in x-kubernetes-list-map-keys, so it"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param({**KEYED, "items": SCALAR}, "", id="a map by a required key"),
        pytest.param(
            {**KEYED, "items": {"type": "object", "properties": {"a": {"default": "x"}}}},
            "",
            id="a map by a key with a default",
        ),
        pytest.param({"type": "array"}, "items: Required value: must be specified", id="of what"),
        pytest.param(
            {**KEYED, "items": {"type": "string"}},
            (
                'items.type: Invalid value: "string": must be object if parent array\'s '
                "x-kubernetes-list-type is map"
            ),
            id="a map of texts",
        ),
        pytest.param(
            {**KEYED, "items": SCALAR, "x-kubernetes-list-map-keys": []},
            (
                "x-kubernetes-list-map-keys: Required value: must not be empty if "
                "x-kubernetes-list-type is map"
            ),
            id="a map without keys",
        ),
        pytest.param(
            {**KEYED, "items": {"type": "object"}},
            (
                'x-kubernetes-list-map-keys: Invalid value: ["a"]: entries must all be names of '
                "item properties"
            ),
            id="a key that is no property",
        ),
        pytest.param(
            {**KEYED, "items": {**SCALAR, "required": []}},
            (
                f"items.properties[a].default: Required value: {AMONG} must have a default or be a "
                "required property"
            ),
            id="a key that may be missing",
        ),
        pytest.param(
            {**KEYED, "items": {**SCALAR, "properties": {"a": {"type": "object"}}}},
            (
                'items.properties[a].type: Invalid value: "object": must be a scalar type if '
                "parent array's x-kubernetes-list-type is map"
            ),
            id="a key that is no scalar",
        ),
        pytest.param(
            {**KEYED, "items": {**SCALAR, "properties": {"a": {"nullable": True}}}},
            f"items.properties[a].nullable: Forbidden: {AMONG} cannot be nullable",
            id="a key that may be null",
        ),
        pytest.param(
            {**KEYED, "items": SCALAR, "x-kubernetes-list-map-keys": ["a", "a"]},
            (
                'x-kubernetes-list-map-keys: Invalid value: ["a","a"]: must not contain duplicate '
                "entries"
            ),
            id="a key twice",
        ),
        pytest.param(
            {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
            (
                "items.x-kubernetes-map-type: Invalid value: null: must be atomic as item of a "
                "list with x-kubernetes-list-type=set"
            ),
            id="a set of objects that are merged",
        ),
        pytest.param(
            {"type": "array", "items": {"nullable": True}, "x-kubernetes-list-type": "set"},
            "items.nullable: Forbidden: cannot be nullable when x-kubernetes-list-type is set",
            id="a set of what may be null",
        ),
        pytest.param(
            {"type": "array", "items": {}, "x-kubernetes-list-type": "bag"},
            (
                'x-kubernetes-list-type: Unsupported value: "bag": supported values: "atomic", '
                '"set", "map"'
            ),
            id="an unknown type of list",
        ),
        pytest.param(
            {"type": "string", "x-kubernetes-list-type": "set"},
            'type: Invalid value: "string": must be array if x-kubernetes-list-type is specified',
            id="a list type of a text",
        ),
        pytest.param(
            {"x-kubernetes-map-type": "atomic"},
            "type: Required value: must be object if x-kubernetes-map-type is specified",
            id="a map type of what has no type",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-map-type": "bag"},
            (
                'x-kubernetes-map-type: Unsupported value: "bag": supported values: "atomic", '
                '"granular"'
            ),
            id="an unknown type of map",
        ),
        pytest.param(
            {"type": "array", "items": {}, "x-kubernetes-list-map-keys": ["a"]},
            (
                "x-kubernetes-list-type: Required value: must be map if "
                "x-kubernetes-list-map-keys is non-empty"
            ),
            id="keys of what is no map",
        ),
    ],
)
def test_a_schema_says_how_its_lists_and_maps_are_merged(part: Any, expected: str) -> None:
    schema = {"type": "object", "properties": {"s": part}}
    found = [f"{error.field}: {error.message}" for error in topology_errors(schema, "")]
    assert [text.removeprefix(".properties[s].") for text in found] == (
        [expected] if expected else []
    )


_LABEL = "a DNS-1035 label must consist of lower case alphanumeric characters"
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": {"type": "object"}},
}


def definition(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {
                "plural": "gadgets",
                "singular": "gadget",
                "kind": "Gadget",
                "listKind": "GadgetList",
            },
            "versions": [VERSION],
            "conversion": {"strategy": "None"},
            **spec,
        },
    }


def errors(**spec: Any) -> list[str]:
    return [f"{each.field}: {each.message}" for each in validate_definition(definition(**spec))]


def version(**fields: Any) -> dict[str, Any]:
    return {**copy.deepcopy(VERSION), **fields}


def test_a_definition_of_one_version_is_good() -> None:
    assert errors() == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"scope": ""}, ["spec.scope: Required value"]),
        (
            {"versions": [version(), version(storage=False)]},
            ["spec.versions: Invalid value: ", "must contain unique version names"],
        ),
        ({"versions": [version(name="V_1")]}, ["spec.versions[0].name", _LABEL]),
        (
            {"names": {**definition()["spec"]["names"], "kind": "", "singular": ""}},
            ["spec.names.singular: Required value", "spec.names.kind: Required value"],
        ),
        (
            {"names": {**definition()["spec"]["names"], "kind": "GadgetList"}},
            ["spec.names.listKind", "kind and listKind may not be the same"],
        ),
        (
            {"names": {**definition()["spec"]["names"], "kind": "G_"}},
            ["spec.names.kind", f"may have mixed case, but should otherwise match: {_LABEL}"],
        ),
        (
            {"names": {**definition()["spec"]["names"], "shortNames": ["A"]}},
            ["spec.names.shortNames[0]", _LABEL],
        ),
        (
            {"versions": [version(schema={"openAPIV3Schema": {"type": "string"}})]},
            ["spec.validation.openAPIV3Schema.type", "must be object at the root"],
        ),
        (
            {"versions": [version(subresources={"scale": {"specReplicasPath": ".x.y"}})]},
            [
                (
                    'spec.subresources.scale.specReplicasPath: Invalid value: ".x.y": should be a '
                    "json path under .spec"
                ),
                "spec.subresources.scale.statusReplicasPath: Required value",
            ],
        ),
        (
            {
                "versions": [
                    version(),
                    version(
                        name="v2",
                        storage=False,
                        additionalPrinterColumns=[{"name": "a", "type": "x", "jsonPath": ".a"}],
                    ),
                ]
            },
            [
                "spec.versions[1].additionalPrinterColumns[0].type",
                "must be one of boolean,date,integer,number,string",
            ],
        ),
        (
            {"conversion": {"strategy": "Webhook"}},
            [
                (
                    "spec.conversion.webhookClientConfig: Required value: required when strategy "
                    "is set to Webhook"
                ),
                "spec.conversion.conversionReviewVersions: Required value",
            ],
        ),
    ],
)
def test_what_is_wrong_with_a_definition_is_said(spec: dict[str, Any], expected: list[str]) -> None:
    found = "\n".join(errors(**spec))
    for text in expected:
        assert text in found


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("+", "missing argument to repetition operator: `+`"),
        (r"^(?=.*a)b$", "invalid or unsupported Perl syntax: `(?=`"),
        (r"(?<=a)b", "invalid named capture: `(?<=a)b`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("(a", "missing closing ): `(a`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_a_pattern_that_re2_cannot_run_is_refused(pattern: str, reason: str) -> None:
    part = {"type": "array", "items": {"type": "string", "pattern": pattern}}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"a": part}}}
    [said] = errors(versions=[version(schema=schema)])
    assert said == (
        "spec.validation.openAPIV3Schema.properties[a].items.pattern: "
        f"Invalid value: {json.dumps(pattern)}: must be a valid regular expression, but isn't: "
        f"error parsing regexp: {reason}"
    )


def test_a_list_of_versions_is_quoted_in_the_names_of_the_api_server() -> None:
    found = errors(versions=[version(storage=False)])
    assert found == [
        (
            'spec.versions: Invalid value: [{"Name":"v1","Served":true,"Storage":false,'
            '"Deprecated":false,"DeprecationWarning":null,"Schema":null,"Subresources":null,'
            '"AdditionalPrinterColumns":null,"SelectableFields":null}]: must have exactly one '
            "version marked as storage version"
        ),
        "status.storedVersions: Invalid value: null: must have at least one stored version",
    ]


@pytest.mark.parametrize(("established", "expected"), [("True", 2), ("False", 0)])
def test_scope_and_kind_stay_once_a_definition_is_established(
    established: str, expected: int
) -> None:
    old = definition()
    old["status"] = {
        "conditions": [{"type": "Established", "status": established}],
        "storedVersions": ["v1"],
    }
    names = {**old["spec"]["names"], "kind": "Other"}
    new = {**definition(scope="Cluster", names=names), "status": old["status"]}
    found = [each.field for each in validate_definition_update(new, old, "")]
    assert found == ["spec.scope", "spec.names.kind"][:expected]
