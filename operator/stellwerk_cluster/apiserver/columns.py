"""The columns of the built-in kinds: columns.toml, read and checked.

Asked by `tables`. Invariant: a column that exists can show every stored object of its kind.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Final, TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apimachinery.objects import JsonValue, pick
from stellwerk_cluster.apiserver.cells import CELLS

Cell: TypeAlias = Callable[[JsonObject, datetime], JsonValue]
"""(object, present time) → what the column shows of the object."""

_KEYS: Final = frozenset(
    {"name", "type", "format", "priority", "description", "path", "default", "cell", "of"}
)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: what the Table object declares, and the function of its cells."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Cell


def columns_of(kind: str) -> tuple[Column, ...]:
    """The columns of a built-in kind; kinds without columns of their own share the generic ones."""
    columns = _columns_file()
    return columns.get(kind) or columns["generic"]


def name_column() -> Column:
    """The column that every table begins with."""
    return columns_of("generic")[0]


@cache
def _columns_file() -> dict[str, tuple[Column, ...]]:
    directory = resources.files("stellwerk_cluster.apiserver")
    return parse_columns(directory.joinpath("columns.toml").read_text("utf-8"))


def parse_columns(text: str) -> dict[str, tuple[Column, ...]]:
    """The columns by kind of a file like columns.toml, and those of `generic`.

    Raises:
        ValueError: the text is no TOML; a column has an unknown key, or shows nothing.
        KeyError: a column lacks its name or description, or a shared one does not exist.
    """
    content = tomllib.loads(text)
    shared = {name: _column(row) for name, row in content["shared"].items()}
    return {
        kind: tuple(shared[row] if isinstance(row, str) else _column(row) for row in rows)
        for kind, rows in {"generic": content["generic"], **content["kinds"]}.items()
    }


def _column(row: JsonObject) -> Column:
    unknown = sorted(set(row) - _KEYS)
    if unknown:
        raise ValueError(f"column {row['name']}: unknown keys: {', '.join(unknown)}")
    return Column(
        row["name"],
        row.get("type", "string"),
        row.get("format", ""),
        row["description"],
        row.get("priority", 0),
        _cell(row),
    )


def _cell(row: JsonObject) -> Cell:
    if "path" in row:
        return _value_at(tuple(row["path"].split(".")), row.get("default", ""))
    function = CELLS.get(row.get("cell", ""))
    if function is None:
        raise ValueError(f"column {row['name']}: neither a path nor a known cell")
    of = tuple(row.get("of", ()))
    return (lambda obj, now: function(obj, now, *of)) if of else function


def _value_at(path: tuple[str, ...], default: JsonValue) -> Cell:
    def cell(obj: JsonObject, _now: datetime) -> JsonValue:
        found = pick(obj, path)
        return default if found in (None, "") else found

    return cell
