"""Tables, as `kubectl get` shows objects: columns by kind, and their cells.

The columns of built-in kinds come from the tables of `schema`, those of custom kinds from the
additionalPrinterColumns of their definition. A column has a name, a type (string unless it says
otherwise), a format (none), a priority (1: only with -o wide) and a text. It shows the value under
`path` (`default`, or the empty text, where there is none), or what the function `cell` of
`printers` computes with the texts in `of`. Rendering asks `TableConvertors`. Invariant: a row is
computed from one object and the clock, and from nothing else; a column can show every stored object
of its kind, and a JSON path that leads nowhere shows an empty cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Final, TypeAlias

from stellwerk_cluster.apimachinery.objects import pick
from stellwerk_cluster.apiserver.printers import CELLS, age_text
from stellwerk_kube.json_values import JsonObject, JsonValue
from stellwerk_kube.schema.tables import parse_line, tables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.registry.custom_kinds import CustomKinds
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.schema.tables import Tables

Cell: TypeAlias = Callable[[JsonObject, datetime], JsonValue]
"""(object, present time) → what the column shows of the object."""
_GENERIC: Final = "*"
_WORDS: Final = frozenset(("type", "format", "priority", "path", "default", "cell", "of"))
_DEFAULTS: Final[dict[str, Callable[[str], JsonValue]]] = {
    "integer": int,
    "boolean": "true".__eq__,
}
"""Readers of the default of a column that shows no text."""
_AGE: Final[JsonObject] = {
    "name": "Age",
    "type": "date",
    "jsonPath": ".metadata.creationTimestamp",
}
"""Columns that a definition without columns shows beside the name."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: what the Table object declares, and the function of its cells."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Cell


def columns_of(*names: str) -> tuple[Column, ...]:
    """The columns of a built-in kind by its type or its name, the first that has any.

    Kinds without columns of their own share the generic ones.
    """
    columns = _of_built_in_kinds()
    return next((columns[name] for name in names if name in columns), columns[_GENERIC])


def name_column() -> Column:
    """The column that every table begins with."""
    return columns_of(_GENERIC)[0]


@cache
def _of_built_in_kinds() -> dict[str, tuple[Column, ...]]:
    return columns_by_kind(tables())


def columns_by_kind(content: Tables) -> dict[str, tuple[Column, ...]]:
    """The columns that the tables have by type and by kind, and under * the generic ones.

    Of several forms of a kind, its name stands for the first.

    Raises:
        ValueError: a column has an unknown word, or shows nothing.
        KeyError: a shared column does not exist.
    """
    shared = {line.split()[0]: _column(line) for line in content.columns}
    found: dict[str, tuple[Column, ...]] = {}
    for block in content.kinds:
        if block.columns:
            columns = tuple(
                _column(line) if '"' in line else shared[line.strip()] for line in block.columns
            )
            for name in (block.kind, block.words.get("schema", block.kind)):
                found.setdefault(name, columns)
    return found


def _column(line: str) -> Column:
    _, name, rest = line.split('"', 2)
    words, text = parse_line(rest)
    unknown = sorted(set(words) - _WORDS)
    if unknown:
        raise ValueError(f"column {name}: unknown words: {', '.join(unknown)}")
    return Column(
        name,
        words.get("type", "string"),
        words.get("format", ""),
        text,
        int(words.get("priority", 0)),
        _cell(name, words),
    )


def _cell(name: str, words: dict[str, str]) -> Cell:
    if "path" in words:
        default = words.get("default", "")
        read = _DEFAULTS.get(words.get("type", ""), str)
        return _value_at(tuple(words["path"].split(".")), read(default))
    function = CELLS.get(words.get("cell", ""))
    if function is None:
        raise ValueError(f"column {name}: neither a path nor a known cell")
    of = tuple(filter(None, words.get("of", "").split(",")))
    return (lambda obj, now: function(obj, now, *of)) if of else function


def _value_at(path: tuple[str, ...], default: JsonValue) -> Cell:
    def cell(obj: JsonObject, _now: datetime) -> JsonValue:
        found = pick(obj, path)
        return default if found in (None, "") else found

    return cell


def custom_columns(declared: list[JsonObject] | None) -> Iterator[Column]:
    """The name, and the additionalPrinterColumns of a version (None: it declares none)."""
    yield name_column()
    for each in [_AGE] if declared is None else declared:
        yield Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
            each.get("priority", 0),
            _json_path_cell(each["jsonPath"], each["type"]),
        )


@lru_cache(maxsize=1 << 10)
def _json_path_cell(path: str, type_: str) -> Cell:
    parts = tuple(re.findall(r"[^.\[\]]+", path.replace("\\.", "\0")))
    parts = tuple(part.replace("\0", ".").strip("'\"") for part in parts)

    def cell(obj: JsonObject, now: datetime) -> JsonValue:
        found = _follow(obj, parts)
        if found is None:
            return None
        if type_ == "date":
            return age_text(str(found), now)
        return found if type_ in ("integer", "number", "boolean") else _as_text(found)

    return cell


def _follow(obj: JsonValue, parts: tuple[str, ...]) -> JsonValue:
    """The value under a JSON path of names, list positions and filters `?(@.name=="value")`."""
    for position, part in enumerate(parts):
        if isinstance(obj, list):
            chosen = re.match(r"\?\(@$", part)
            if chosen or part.startswith("?("):
                return _filtered(obj, ".".join(parts[position:]))
            if not part.lstrip("-").isdigit() or not -len(obj) <= int(part) < len(obj):
                return None
            obj = obj[int(part)]
        elif isinstance(obj, dict):
            obj = obj.get(part)
        else:
            return None
    return obj


def _filtered(items: list[JsonValue], rest: str) -> JsonValue:
    match = re.match(r"\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\.?(.*)$", rest)
    if match is None:
        return None
    for item in items:
        if isinstance(item, dict) and str(item.get(match[1])) == match[2]:
            return pick(item, tuple(filter(None, match[3].split("."))))
    return None


def _as_text(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class TableConvertor:
    """Writes the rows of one kind, under the columns it declares."""

    def __init__(self, columns: Iterable[Column], clock: Clock) -> None:
        """Print these columns; ages are counted from the clock's time."""
        self._columns = tuple(columns)
        self._clock = clock

    def definitions(self) -> list[JsonObject]:
        """The columns as the Table object declares them."""
        return [
            {
                "name": column.name,
                "type": column.type,
                "format": column.format,
                "description": column.description,
                "priority": column.priority,
            }
            for column in self._columns
        ]

    def cells(self, obj: JsonObject) -> list[JsonValue]:
        """One row."""
        now = self._clock.now()
        return [column.cell(obj, now) for column in self._columns]


class TableConvertors:
    """Finds the printer of a kind, built-in or custom."""

    def __init__(self, clock: Clock, custom: CustomKinds) -> None:
        """Print with `clock`; `custom` says which columns definitions declare."""
        self._clock = clock
        self._custom = custom

    def printer(self, kind: ResourceKind) -> TableConvertor:
        """The printer of a kind."""
        columns = (
            custom_columns(self._custom.printer_columns(kind))
            if kind.custom
            else columns_of(kind.type_name, kind.kind)
        )
        return TableConvertor(columns, self._clock)
