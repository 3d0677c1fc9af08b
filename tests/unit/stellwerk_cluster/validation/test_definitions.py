"""Defaults in the schemas of definitions are what the schemas ask for."""

from typing import Any

import pytest

from stellwerk_cluster.validation.definitions import default_errors

FREE = "x-kubernetes-preserve-unknown-fields"
EMBEDDED = "x-kubernetes-embedded-resource"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        pytest.param({"type": "integer", "default": 3}, [], id="fine"),
        pytest.param({"type": "string", "default": None}, [], id="null is none"),
        pytest.param(
            {"type": "integer", "default": "x"},
            ['default: Invalid value: "string": s.properties[a].default in body must be of type'],
            id="another type",
        ),
        pytest.param(
            {"type": "integer", "default": 0, "minimum": 1},
            ["default: Invalid value: 0: s.properties[a].default in body should be greater"],
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
