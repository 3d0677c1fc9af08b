from datetime import UTC, datetime

import pytest

from stellwerk_cluster.apimachinery.decoder import zero
from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_cluster.apiserver.columns import columns_of, parse_columns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FILE = """
generic = ["name"]

[shared]
name = { name = "Name", format = "name", path = "metadata.name", description = "The name." }

[kinds]
Deployment = [
  "name",
  { name = "Ready", cell = "fraction", of = ["status.ready", "spec.replicas"], description = "R." },
  { name = "Paused", type = "boolean", path = "spec.paused", default = false, description = "P." },
]
"""


def test_a_column_shows_a_value_of_the_object_or_what_its_function_computes() -> None:
    columns = parse_columns(FILE)["Deployment"]
    obj = {"metadata": {"name": "web"}, "spec": {"replicas": 3}, "status": {"ready": 2}}
    assert [column.cell(obj, NOW) for column in columns] == ["web", "2/3", False]


def test_a_column_is_plain_text_and_always_shown_unless_it_says_otherwise() -> None:
    _, ready, paused = parse_columns(FILE)["Deployment"]
    assert (ready.type, ready.format, ready.priority) == ("string", "", 0)
    assert paused.type == "boolean"


@pytest.mark.parametrize(
    ("old", "new", "error", "text"),
    [
        pytest.param('"fraction"', '"ratio"', ValueError, "Ready", id="an unknown function"),
        pytest.param('path = "spec.paused", ', "", ValueError, "Paused", id="nothing to show"),
        pytest.param("of =", "about =", ValueError, "about", id="an unknown key"),
        pytest.param(
            'Deployment = [\n  "name"', 'Deployment = [\n  "age"', KeyError, "age", id="unshared"
        ),
    ],
)
def test_a_mistake_in_the_file_is_named(
    old: str, new: str, error: type[Exception], text: str
) -> None:
    assert old in FILE
    with pytest.raises(error, match=text):
        parse_columns(FILE.replace(old, new))


@pytest.mark.parametrize("kind", [kind.type_name for kind in built_in_kinds()], ids=str)
def test_every_kind_can_show_an_object_of_which_nothing_is_known(kind: str) -> None:
    empty = {**zero(kind), "metadata": {"name": "empty"}}
    columns = columns_of(kind)
    assert len([column.cell(empty, NOW) for column in columns]) == len(columns)


def test_a_kind_without_columns_of_its_own_shows_name_and_creation() -> None:
    assert [column.name for column in columns_of("LimitRange")] == ["Name", "Created At"]
