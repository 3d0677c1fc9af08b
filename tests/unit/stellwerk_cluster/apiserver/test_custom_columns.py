from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk_cluster.apiserver.custom_columns import custom_columns

NOW = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"size": 3, "on": True, "parts": [{"id": "a"}, {"id": "b"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def shown(path: str, type_: str = "string") -> Any:
    _, column = custom_columns([{"name": "Column", "type": type_, "jsonPath": path}])
    return column.cell(OBJECT, NOW)


@pytest.mark.parametrize(
    ("path", "type_", "cell"),
    [
        pytest.param(".spec.size", "integer", 3, id="a number"),
        pytest.param(".spec.size", "string", "3", id="a number as text"),
        pytest.param(".spec.on", "string", "true", id="a truth value as text"),
        pytest.param(".spec.parts[-1].id", "string", "b", id="a place in a list"),
        pytest.param(".spec.parts[7].id", "string", None, id="a place outside a list"),
        pytest.param(
            '.status.conditions[?(@.type=="Ready")].status', "string", "True", id="a filter"
        ),
        pytest.param(".metadata.creationTimestamp", "date", "2m", id="an age"),
        pytest.param(".spec.nothing.there", "string", None, id="a path that leads nowhere"),
    ],
)
def test_a_column_follows_its_json_path(path: str, type_: str, cell: Any) -> None:
    assert shown(path, type_) == cell


def test_a_definition_without_columns_shows_name_and_age() -> None:
    assert [column.name for column in custom_columns(None)] == ["Name", "Age"]
