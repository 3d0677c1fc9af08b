"""Tables, as `kubectl get` shows objects: columns by kind, and cells computed by the server.

`Printers` is asked by rendering. Invariant: a row is computed from one object and the clock, and
from nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apiserver.columns import Column, columns_of
from stellwerk_cluster.apiserver.custom_columns import custom_columns

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk.clock import Clock
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import JsonValue
    from stellwerk_cluster.registry.custom_kinds import CustomKinds


class Printer:
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


class Printers:
    """Finds the printer of a kind, built-in or custom."""

    def __init__(self, clock: Clock, custom: CustomKinds) -> None:
        """Print with `clock`; `custom` says which columns definitions declare."""
        self._clock = clock
        self._custom = custom

    def printer(self, kind: ResourceKind) -> Printer:
        """The printer of a kind."""
        columns = (
            custom_columns(self._custom.printer_columns(kind))
            if kind.custom
            else columns_of(kind.kind)
        )
        return Printer(columns, self._clock)
