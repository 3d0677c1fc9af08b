"""The difference between two values as three sets of fields: the base of field ownership.

Called for every write whose manager is recorded. Invariant: no field is in two of the sets, and
equal values give three empty ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.field_sets import (
    SELF,
    FieldSet,
    closed,
    union,
    without_trees,
)
from stellwerk_cluster.apimachinery.merge_types import MergeList, MergeMap, MergeType
from stellwerk_cluster.apimachinery.typed_values import ABSENT, indexed, whole

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonValue


@dataclass(slots=True)
class Comparison:
    """The fields that the second of two values added, changed and no longer has."""

    added: FieldSet = field(default_factory=dict)
    modified: FieldSet = field(default_factory=dict)
    removed: FieldSet = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return bool(self.added or self.modified or self.removed)

    @property
    def written(self) -> FieldSet:
        """The fields of the second value that differ from the first, or are new."""
        return union(self.modified, self.added)

    def without(self, ignored: FieldSet) -> Comparison:
        """Copy the comparison without some fields and all below them."""
        return Comparison(
            without_trees(self.added, ignored),
            without_trees(self.modified, ignored),
            without_trees(self.removed, ignored),
        )

    def _attach(self, element: str, below: Comparison) -> None:
        """Put what was found below a path element into the sets."""
        if below.added:
            self.added[element] = closed(below.added)
        if below.modified:
            self.modified[element] = closed(below.modified)
        if below.removed:
            self.removed[element] = closed(below.removed)


def compare(form: MergeType, old: JsonValue, new: JsonValue) -> Comparison:
    """The changes from `old` to `new`.

    Raises:
        FormError: an item of a list lacks its keys.
    """
    found = Comparison()
    if old is new or old == new:
        return found
    part, was = form.part(new), form.part(old)
    if part is not was and old is not None and new is not None:
        found.modified[SELF] = {}
    elif isinstance(part, MergeMap) and not part.atomic and (old or new):
        _compare_maps(part, old or {}, new or {}, found)
    elif isinstance(part, MergeList) and not part.atomic and (old or new):
        _compare_lists(part, old or [], new or [], found)
    else:
        found.modified[SELF] = {}
    return found


def _compare_maps(form: MergeMap, old: JsonValue, new: JsonValue, found: Comparison) -> None:
    for name, item in new.items():
        before = old.get(name, ABSENT)
        if before is item:
            continue
        inner = form.field(name)
        if before is ABSENT:
            found.added[f"f:{name}"] = whole(inner, item) if inner is not None else {}
        elif inner is not None and before != item:
            found._attach(f"f:{name}", compare(inner, before, item))  # noqa: SLF001  (its builder)
    for name in old.keys() - new.keys():
        inner = form.field(name)
        found.removed[f"f:{name}"] = whole(inner, old[name]) if inner is not None else {}


def _compare_lists(form: MergeList, old: JsonValue, new: JsonValue, found: Comparison) -> None:
    before, after = indexed(form, old), indexed(form, new)
    for element in [*before, *(each for each in after if each not in before)]:
        was, now = before.get(element, []), after.get(element, [])
        if len(was) == 1 and len(now) == 1:
            found._attach(element, compare(form.element, was[0], now[0]))  # noqa: SLF001
        elif len(was) > 1 and len(now) > 1:
            if was != now:
                found.modified[element] = {}
        else:
            # Duplicates are owned as one thing, whose parts nothing owns.
            if was:
                found.removed[element] = whole(form.element, was[0]) if len(was) == 1 else {}
            if now:
                found.added[element] = whole(form.element, now[0]) if len(now) == 1 else {}
