from typing import Any

import pytest

from stellwerk_cluster.apimachinery.structural import prune, validate, with_defaults

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
    return [(error.field, error.reason) for error in validate({"spec": spec}, SCHEMA, "")]


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
    assert [each.field for each in validate(text, schema, "f")] == ([] if is_good else ["f"])
