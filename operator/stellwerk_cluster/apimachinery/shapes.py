"""Whether two objects have the same fields, whatever their values are.

Field ownership asks, so that pods of one template share one set of owned fields. Invariant: of two
values of one shape, writing one or the other into an empty object owns the same fields.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.forms import Form, ListForm, MapForm

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import JsonValue


def same_shape(form: Form | None, one: JsonValue, other: JsonValue) -> bool:
    """Whether the two values have the same fields and items."""
    if one == other:
        return True
    part = form.part(one) if form is not None else ""
    if form is None or one is None or other is None or part is not form.part(other):
        return False
    if isinstance(part, str) or part.atomic:
        return bool(one) == bool(other)  # what is as empty as in no object was not written
    if isinstance(part, ListForm):
        return isinstance(one, list) and isinstance(other, list) and _same_items(part, one, other)
    return isinstance(one, dict) and isinstance(other, dict) and _same_fields(part, one, other)


def _same_fields(form: MapForm, one: JsonObject, other: JsonObject) -> bool:
    if one.keys() != other.keys():
        return False
    for name, item in one.items():
        theirs = other[name]
        if type(item) is str and type(theirs) is str and item and theirs:
            continue  # most that differs between pods is a text
        if item != theirs and not same_shape(form.field(name), item, theirs):
            return False
    return True


def _same_items(form: ListForm, one: list[JsonValue], other: list[JsonValue]) -> bool:
    if not form.keys or len(one) != len(other):
        return False
    return all(
        isinstance(mine, dict)
        and isinstance(theirs, dict)
        and all(mine.get(key) == theirs.get(key) for key in form.keys)
        and same_shape(form.element, mine, theirs)
        for mine, theirs in zip(one, other, strict=True)
    )
