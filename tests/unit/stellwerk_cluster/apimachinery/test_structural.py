import time
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.structural import (
    list_type_errors,
    prune,
    validate,
    with_defaults,
)
from tests.support.findings import hold

SCHEMA = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "minimum": 1, "maximum": 9},
                "color": {"type": "string", "enum": ["red", "green"], "default": "red"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "any": {"x-kubernetes-int-or-string": True},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                    "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                },
            },
        }
    },
}


def errors(**spec: Any) -> list[tuple[str, str]]:
    obj = {"spec": spec}
    found = (*validate(obj, SCHEMA, ""), *list_type_errors(obj, SCHEMA, ""))
    return [(error.field, error.reason) for error in found]


def test_unknown_fields_are_pruned_except_where_they_are_preserved() -> None:
    unknown: list[str] = []
    value = {
        "spec": {"size": 1, "bogus": 2, "free": {"x": {"y": 1}}, "parts": [{"k": "a", "q": 1}]}
    }
    pruned = prune(value, SCHEMA, "", unknown)
    assert pruned == {"spec": {"size": 1, "free": {"x": {"y": 1}}, "parts": [{"k": "a"}]}}
    assert unknown == ["spec.bogus", "spec.parts[0].q"]


def test_defaults_fill_missing_fields_and_nulls() -> None:
    assert with_defaults({"spec": {"size": 1}}, SCHEMA)["spec"]["color"] == "red"
    assert with_defaults({"spec": {"size": 1, "color": None}}, SCHEMA)["spec"]["color"] == "red"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"size": 3, "any": "50%"}, [], id="fine"),
        pytest.param({}, [("spec.size", "FieldValueRequired")], id="missing"),
        pytest.param({"size": "x"}, [("spec.size", "FieldValueTypeInvalid")], id="wrong type"),
        pytest.param({"size": 0}, [("spec.size", "FieldValueInvalid")], id="too small"),
        pytest.param(
            {"size": 1, "color": "blue"}, [("spec.color", "FieldValueNotSupported")], id="enum"
        ),
        pytest.param(
            {"size": 1, "any": [1]}, [("spec.any", "FieldValueTypeInvalid")], id="int or string"
        ),
        pytest.param(
            {"size": 1, "parts": [{"k": "a"}, {"k": "a"}]},
            [("spec.parts[1]", "FieldValueDuplicate")],
            id="a key twice",
        ),
    ],
)
def test_validation(spec: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    assert errors(**spec) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "is_good"),
    [
        pytest.param("^(a+)+$", "a" * 40 + "!", False, id="exponential for who goes back"),
        pytest.param("^(a+)+$", "a" * 40, True, id="the same that fits"),
        pytest.param("^a$", "a\n", False, id="the end is no line's"),
        pytest.param("b", "abc", True, id="anywhere"),
    ],
)
def test_a_pattern_takes_time_linear_in_the_text(pattern: str, text: str, *, is_good: bool) -> None:
    schema = {"type": "string", "pattern": pattern}
    began = time.thread_time()
    assert [each.field for each in validate(text, schema, "f")] == ([] if is_good else ["f"])
    hold("pattern", 1000 * (time.thread_time() - began))


@pytest.mark.parametrize(
    ("value", "schema", "errors"),
    [
        pytest.param(
            {"a": "x"},
            {
                "type": "object",
                "required": ["b"],
                "minProperties": 2,
                "properties": {"a": {"type": "integer", "enum": [1]}},
            },
            [
                "Invalid value: 1: s in body should have at least 2 properties",
                'Invalid value: "string": s.a in body must be of type integer: "string"',
                'Unsupported value: "x": supported values: "1"',
                "Required value",
            ],
            id="what is lacking comes last, and a wrong type hides no enum",
        ),
        pytest.param(
            [1, "a", "a"],
            {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            [
                'Invalid value: "integer": s[0] in body must be of type string: "integer"',
                "Too many: 3: must have at most 2 items",
            ],
            id="items before their number",
        ),
        pytest.param(
            1 << 31,
            {"type": "integer", "format": "int32", "multipleOf": 3, "maximum": 7},
            [
                'Invalid value: "": Checked value must be of type integer with format int32 in s',
                "Invalid value: 2147483648: s in body should be a multiple of 3",
                "Invalid value: 2147483648: s in body should be less than or equal to 7",
            ],
            id="the range of the format first",
        ),
        pytest.param(
            1 << 63,
            {"type": "integer", "format": "int64"},
            [
                'Invalid value: "float64": s in body must be of type int64: "float64"',
                'Invalid value: "": Checked value must be of type integer with format int64 in s',
            ],
            id="beyond 64 bits",
        ),
        pytest.param((1 << 63) - 1, {"type": "integer", "format": "int64"}, [], id="64 bits"),
        pytest.param(3.0, {"type": "integer", "format": "int32"}, [], id="a whole float"),
        pytest.param(
            1.5,
            {"type": "integer"},
            [
                'Invalid value: "number": s in body must be of type integer: "number"',
                'Invalid value: "": Checked value must be of type integer (default format) in s',
            ],
            id="a fraction",
        ),
        pytest.param(
            1e39,
            {"type": "number", "format": "float"},
            ['Invalid value: "": Checked value must be of type number with format float in s'],
            id="beyond a float of 32 bits",
        ),
        pytest.param(
            5,
            {"type": "integer", "anyOf": [{"maximum": 3}, {"minimum": 9}], "not": {"minimum": 1}},
            [
                'Invalid value: "": "s" must validate at least one schema (anyOf)',
                "Invalid value: 5: s in body should be less than or equal to 3",
                'Invalid value: "": "s" must not validate the schema (not)',
            ],
            id="no alternative, with the errors of one",
        ),
        pytest.param(
            5,
            {"type": "integer", "oneOf": [{"maximum": 9}, {"minimum": 1}]},
            [
                (
                    'Invalid value: "": "s" must validate one and only one schema (oneOf). Found 2 '
                    "valid alternatives"
                )
            ],
            id="two alternatives",
        ),
        pytest.param(
            5,
            {"type": "integer", "allOf": [{"maximum": 3}, {"minimum": 1}]},
            [
                "Invalid value: 5: s in body should be less than or equal to 3",
                'Invalid value: "": "s" must validate all the schemas (allOf)',
            ],
            id="not all",
        ),
        pytest.param(
            {"a": 1, "b": 2},
            {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "integer"}},
            ["Too many: 2: must have at most 1 item"],
            id="too many entries",
        ),
    ],
)
def test_errors_come_in_the_order_and_the_words_of_the_api_server(
    value: Any, schema: Any, errors: list[str]
) -> None:
    assert [each.message for each in validate(value, schema, "s")] == errors


def test_keys_that_stand_twice_are_found_at_every_depth() -> None:
    items = {"type": "object", "properties": {"k": {"type": "string"}}}
    schema = {
        "type": "object",
        "properties": {
            "maps": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k"],
                "items": items,
            },
            "sets": {
                "type": "array",
                "items": {"type": "array", "x-kubernetes-list-type": "set"},
            },
        },
    }
    value = {"maps": [{"k": "a"}, {"k": "b"}, {"k": "a"}], "sets": [[1, 2], [3, 3]]}
    assert [each.field for each in list_type_errors(value, schema, "")] == ["maps[2]", "sets[1][1]"]
    assert validate(value, schema, "") == []
