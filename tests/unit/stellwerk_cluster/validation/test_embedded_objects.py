"""Objects in custom objects have a kind, a version, and metadata that could be stored."""

from typing import Any

import pytest

from stellwerk_cluster.validation.embedded_objects import embedded_errors

OBJECT = {
    "type": "object",
    "x-kubernetes-embedded-resource": True,
    "x-kubernetes-preserve-unknown-fields": True,
}
SCHEMA = {
    "type": "object",
    "properties": {
        "one": OBJECT,
        "list": {"type": "array", "items": OBJECT},
        "map": {"type": "object", "additionalProperties": OBJECT},
    },
}
GOOD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"labels": {"app": "web"}}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param({"one": GOOD, "list": [GOOD], "map": {"a": GOOD}}, [], id="fine"),
        pytest.param({"one": "text"}, [], id="no object, which the schema's type refuses"),
        pytest.param({"list": [GOOD, {"kind": "Pod"}]}, ["list[1].apiVersion"], id="in a list"),
        pytest.param({"map": {"a": {"apiVersion": "v1"}}}, ["map[a].kind"], id="in a map"),
        pytest.param({"one": {**GOOD, "kind": ""}}, ["one.kind"], id="empty"),
        pytest.param({"one": {**GOOD, "kind": 1}}, ["one.kind"], id="no text"),
        pytest.param({"one": {**GOOD, "kind": "A b"}}, ["one.kind"], id="no kind"),
        pytest.param({"one": {**GOOD, "apiVersion": "a/b/c"}}, ["one.apiVersion"], id="no version"),
        pytest.param({"one": {**GOOD, "metadata": 3}}, ["one.metadata"], id="no metadata"),
        pytest.param(
            {"one": {**GOOD, "metadata": {"labels": {"a b": "c"}}}},
            ["one.metadata.labels"],
            id="a label that cannot be",
        ),
        pytest.param(
            {"one": {**GOOD, "metadata": {"name": "a/b"}}},
            ["one.metadata.name"],
            id="a name that cannot be",
        ),
    ],
)
def test_embedded_objects_are_checked(value: Any, expected: list[str]) -> None:
    assert [error.field for error in embedded_errors(value, SCHEMA, "")] == expected
