from datetime import UTC, datetime
from typing import Any

import pytest

from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_cluster.apiserver.tables import columns_by_kind, columns_of, custom_columns
from stellwerk_kube.schema.decoder import zero
from stellwerk_kube.schema.tables import parse_tables

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TEXT = """
columns
  name "Name" format=name path=metadata.name | The name.
kind apps/v1 deployments Deployment
  column name
  column "Ready" cell=fraction of=status.ready,spec.replicas | R.
  column "Paused" type=boolean path=spec.paused default=false | P.
"""


def test_a_column_shows_a_value_of_the_object_or_what_its_function_computes() -> None:
    columns = columns_by_kind(parse_tables(TEXT))["Deployment"]
    obj = {"metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"ready": 2}}
    assert [column.cell(obj, NOW) for column in columns] == ["web", "2/3", False]


def test_a_column_is_plain_text_and_always_shown_unless_it_says_otherwise() -> None:
    _, ready, paused = columns_by_kind(parse_tables(TEXT))["Deployment"]
    assert (ready.type, ready.format, ready.priority) == ("string", "", 0)
    assert paused.type == "boolean"


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        pytest.param("=fraction", "=ratio", ValueError, "Ready", id="an unknown function"),
        pytest.param("path=spec.paused ", "", ValueError, "Paused", id="nothing to show"),
        pytest.param(" of=", " about=", ValueError, "about", id="an unknown word"),
        pytest.param("column name", "column age", KeyError, "age", id="unshared"),
    ],
)
def test_a_mistake_in_a_table_is_named(
    old: str, new: str, error: type[Exception], text: str
) -> None:
    assert old in TEXT
    with pytest.raises(error, match=text):
        columns_by_kind(parse_tables(TEXT.replace(old, new)))


@pytest.mark.parametrize("kind", [kind.type_name for kind in built_in_kinds()], ids=str)
def test_every_kind_can_show_an_object_of_which_nothing_is_known(kind: str) -> None:
    empty = {**zero(kind), "metadata": {"name": "empty"}}
    columns = columns_of(kind)
    assert len([column.cell(empty, NOW) for column in columns]) == len(columns)


def test_a_kind_without_columns_of_its_own_shows_name_and_creation() -> None:
    assert [column.name for column in columns_of("LimitRange")] == ["Name", "Created At"]


TWO_MINUTES_LATER = datetime(2026, 1, 1, 0, 2, tzinfo=UTC)
OBJECT: dict[str, Any] = {
    "metadata": {"name": "web", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {"size": 3, "on": True, "parts": [{"id": "a"}, {"id": "b"}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}


def shown(path: str, type_: str = "string") -> Any:
    _, column = custom_columns([{"name": "Column", "type": type_, "jsonPath": path}])
    return column.cell(OBJECT, TWO_MINUTES_LATER)


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
