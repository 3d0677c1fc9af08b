"""Fields behind feature gates, as the words `gate` and `forbidden` of the tables name them.

Called by the verbs, for every write. Invariant: a field that an object has already is left to it,
whatever gates are off.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.failures import FieldError, forbidden_field
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_kube.schema.types import leads_to, types

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from stellwerk_kube.json_values import JsonObject
    from stellwerk_kube.schema.types import Field

_WORDS: Final = ("gate", "forbidden")


class _Gated(NamedTuple):
    """The fields of one type that are behind gates, and those that lead to such."""

    dropped: tuple[tuple[str, str], ...]
    """Field and gate."""
    forbidden: tuple[tuple[str, str], ...]
    parts: tuple[Field, ...]


@cache
def _gated(type_name: str) -> _Gated | None:
    """None: nothing of the type is behind a gate."""
    if type_name not in types() or not any(
        word in field.words
        for each in leads_to(type_name)
        for field in types()[each].values()
        for word in _WORDS
    ):
        return None
    fields = types()[type_name].values()
    dropped, forbidden = (
        tuple((field.name, field.words[word]) for field in fields if word in field.words)
        for word in _WORDS
    )
    parts = tuple(field for field in fields if _gated(field.element) is not None)
    return _Gated(dropped, forbidden, parts)


def drop_disabled(type_name: str, obj: JsonObject, old: JsonObject, gates: Collection[str]) -> None:
    """Drop fields whose gate is off and that the stored object does not have."""
    found = _gated(type_name)
    if found is None:
        return
    for name, gate in found.dropped:
        if gate not in gates and old.get(name) is None:
            obj.pop(name, None)
    for part, had, _at in _parts(found, obj, old, ""):
        drop_disabled(part[0], part[1], had, gates)


def forbidden_errors(
    type_name: str, obj: JsonObject, old: JsonObject, gates: Collection[str], at: str = ""
) -> Iterator[FieldError]:
    """Fields whose gate is off and that are refused for it."""
    found = _gated(type_name)
    if found is None:
        return
    for name, gate in found.forbidden:
        if gate not in gates and obj.get(name) is not None and obj[name] != old.get(name):
            yield forbidden_field(f"{at}{name}", "")
    for part, had, where in _parts(found, obj, old, at):
        yield from forbidden_errors(part[0], part[1], had, gates, f"{where}.")


def _parts(
    found: _Gated, obj: JsonObject, old: JsonObject, at: str
) -> Iterator[tuple[tuple[str, JsonObject], JsonObject, str]]:
    """The parts of an object that may have such fields: (type, part), what it was, and where."""
    for field in found.parts:
        value, was = obj.get(field.name), old.get(field.name)
        if not value:
            continue
        if field.type[0] != "[":
            yield (field.element, value), was or EMPTY, f"{at}{field.name}"
            continue
        key = field.keys[0] if field.keys else ""
        had = {each.get(key): each for each in was or ()} if key else {}
        for position, each in enumerate(value):
            where = f"{at}{field.name}[{position}]"
            yield (field.element, each), had.get(each.get(key), EMPTY), where
