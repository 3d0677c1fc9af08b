"""Tables, as `kubectl get` shows objects: columns by kind, and cells computed by the server.

`Printers` is asked by rendering. Columns are a table of (name, type, priority, text, cell
function); kinds without a row get name and age. Invariant: a cell function reads one object and
nothing else but the clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from stellwerk.models.json_values import JsonObject
from stellwerk_cluster.apiserver.columns import COLUMNS, GENERIC
from stellwerk_cluster.apiserver.objects import JsonValue

if TYPE_CHECKING:
    from stellwerk.clock import Clock
    from stellwerk_cluster.apiserver.kinds import ResourceKind

Cell: TypeAlias = Callable[[JsonObject, datetime], JsonValue]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: str
    format: str
    description: str
    priority: int
    cell: Cell


class Printer:
    """The columns of one kind."""

    def __init__(self, columns: Sequence[Column], clock: Clock) -> None:
        """Print these columns; ages are counted from the clock's time."""
        self._columns = columns
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


class CustomColumns(Protocol):
    """Where the columns of custom resources come from."""

    def columns(self, kind: ResourceKind) -> Sequence[Column]:
        """The columns of a custom kind."""
        ...


class Printers:
    """The printer of every kind."""

    def __init__(self, clock: Clock) -> None:
        """Print with `clock`; custom columns are set when the source of custom kinds exists."""
        self._clock = clock
        self.custom: CustomColumns | None = None

    def printer(self, kind: ResourceKind) -> Printer:
        """The printer of a kind."""
        if kind.custom and self.custom is not None:
            return Printer(self.custom.columns(kind), self._clock)
        rows = COLUMNS.get(kind.kind, GENERIC)
        return Printer([Column(*row) for row in rows], self._clock)
