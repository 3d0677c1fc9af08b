"""Ownership of fields by managers: `metadata.managedFields`, read, changed and written.

Called by the verbs for every write with a manager. One entry is one manager, operation, version and
subresource. Rules and texts are those of the API server's field managers (1.36). Invariants: the
arguments stay as they are, so that entries and their sets may be shared between objects; an entry
that owns nothing is not kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from stellwerk_cluster.apimachinery.comparison import Comparison, compare
from stellwerk_cluster.apimachinery.failures import FieldError, StatusError
from stellwerk_cluster.apimachinery.field_sets import (
    FieldSet,
    contains,
    difference,
    intersection,
    malformed,
    path_text,
    paths,
    shared,
    union,
    without_trees,
)
from stellwerk_cluster.apimachinery.typed_values import (
    field_set,
    merged,
    with_named_parents,
    without,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.field_sets import Path
    from stellwerk_cluster.apimachinery.merge_types import MergeType
    from stellwerk_kube.json_values import JsonObject, JsonValue

APPLY: Final = "Apply"
UPDATE: Final = "Update"
BEFORE_FIRST_APPLY: Final = "before-first-apply"
_ANCIENT: Final = "ancient-changes"
_MAX_UPDATERS: Final = 10
"""Managers of updates that an object lists; the oldest are joined (`DefaultMaxUpdateManagers`)."""

_NEVER_OWNED: Final[FieldSet] = {
    "f:apiVersion": {},
    "f:kind": {},
    "f:metadata": {
        ".": {},
        **{
            f"f:{name}": {}
            for name in (
                "name",
                "namespace",
                "creationTimestamp",
                "selfLink",
                "uid",
                "clusterName",
                "generation",
                "managedFields",
                "resourceVersion",
            )
        },
    },
}
"""Fields that say which object it is, and those that the server writes itself."""


class Owner(NamedTuple):
    """The identity of an entry of managedFields."""

    name: str
    operation: str
    api_version: str
    """Empty for what is applied: the same manager goes on in another version."""
    subresource: str

    @property
    def shown(self) -> str:
        """The manager as conflicts name it."""
        below = f' with subresource "{self.subresource}"' if self.subresource else ""
        using = f" using {self.api_version}" if self.operation == UPDATE else ""
        return f'"{self.name}"{below}{using}'


@dataclass(frozen=True, slots=True)
class Owned:
    """The fields that one manager owns, and since when."""

    fields: FieldSet
    api_version: str
    time: str = ""


Ownership: TypeAlias = dict[Owner, Owned]


class MalformedEntryError(Exception):
    """An entry that cannot be read."""


def parse(entries: JsonValue) -> Ownership:
    """The ownership that an object's entries tell.

    Raises:
        MalformedEntryError: they tell none.
    """
    found: Ownership = {}
    for entry in entries or ():
        operation, version = entry.get("operation"), entry.get("apiVersion", "")
        fields = entry.get("fieldsV1") or {}
        wrong = operation not in (APPLY, UPDATE) or not version or malformed(fields)
        if wrong or entry.get("fieldsType") != "FieldsV1":
            raise MalformedEntryError
        manager = Owner(
            entry.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        found[manager] = Owned(fields, version, entry.get("time") or "")
    return found


def given_or_stored(given: JsonValue, stored: JsonValue, *, whole_object: bool) -> Ownership:
    """The ownership before a write: what the client sent of it, if that makes sense.

    A client that does not know of ownership sends none, and so keeps what is stored; one empty
    entry stands for none. Subresources do not change ownership by what they send.
    """
    if whole_object and given and given != stored:
        if len(given) == 1 and not any(given[0].values()):
            return {}
        try:
            return parse(given)
        except MalformedEntryError:
            pass
    return _trusted(stored)


def _trusted(stored: JsonValue) -> Ownership:
    """The stored ownership, without checking once more what was checked when it was stored."""
    found: Ownership = {}
    for entry in stored or ():
        operation, version = entry["operation"], entry["apiVersion"]
        manager = Owner(
            entry.get("manager", ""),
            operation,
            version if operation == UPDATE else "",
            entry.get("subresource", ""),
        )
        found[manager] = Owned(entry.get("fieldsV1") or {}, version, entry.get("time") or "")
    return found


def rendered(ownership: Ownership) -> list[JsonObject]:
    """The entries of an ownership, in the order in which the API lists them."""
    return [
        {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": owned.api_version,
            **({"time": owned.time} if owned.time else {}),
            "fieldsType": "FieldsV1",
            "fieldsV1": owned.fields,
            **({"subresource": manager.subresource} if manager.subresource else {}),
        }
        for manager, owned in sorted(
            ownership.items(),
            key=lambda each: (
                each[0].operation,
                each[1].time,
                each[0].name,
                each[1].api_version,
                each[0].subresource,
            ),
        )
    ]


class Writing(NamedTuple):
    """A write, beside its object: its owner, version, time, and what it leaves alone."""

    form: MergeType
    owner: Owner
    api_version: str
    time: str
    ignored: FieldSet
    """Fields that this path does not write, whatever the body says: the status, or all but it."""


# Updates.


def updated(writing: Writing, old: JsonObject, new: JsonObject, before: Ownership) -> Ownership:
    """The ownership after a create, update or patch: what it changed is its manager's alone.

    Raises:
        FormError: the object has list items without keys.
    """
    changes = compare(writing.form, old, new).without(writing.ignored)
    after = _yielded(before, changes)
    taken = difference(changes.written, _NEVER_OWNED)
    if taken:
        previous = after.get(writing.owner)
        fields = union(previous.fields, taken) if previous else taken
        after[writing.owner] = Owned(shared(fields), writing.api_version, writing.time)
    return _capped(after)


def _yielded(before: Ownership, changes: Comparison, but: Owner | None = None) -> Ownership:
    """The fields that managers keep when another one has changed the object."""
    if not changes:
        return dict(before)
    lost = union(changes.written, changes.removed)
    after: Ownership = {}
    for manager, owned in before.items():
        fields = owned.fields if manager == but else difference(owned.fields, lost)
        if fields:
            unchanged = fields is owned.fields
            after[manager] = owned if unchanged else replace(owned, fields=shared(fields))
    return after


def _capped(ownership: Ownership) -> Ownership:
    """At most so many managers of updates: the oldest of a version are thrown together."""
    updaters = sorted(
        (each for each in ownership if each.operation == UPDATE),
        key=lambda each: (ownership[each].time, each),
    )
    surplus = len(updaters) - _MAX_UPDATERS
    first: dict[str, Owner] = {}
    for manager in updaters:
        if surplus <= 0:
            break
        version = manager.api_version
        if version not in first:
            first[version] = manager
            continue
        bucket = Owner(_ANCIENT, UPDATE, version, "")
        if bucket not in ownership:
            ownership[bucket] = ownership.pop(first[version])
        if manager != bucket:
            owned = ownership.pop(manager)
            fields = union(owned.fields, ownership[bucket].fields)
            ownership[bucket] = replace(owned, fields=fields)
            surplus -= 1
    return ownership


# Apply.


class ApplyConflictError(Exception):
    """An apply would change what others own."""

    def __init__(self, conflicts: list[tuple[Owner, Path]]) -> None:
        """Keep who owns which of the fields."""
        super().__init__()
        self.conflicts = conflicts

    def status(self) -> StatusError:
        """The answer of the API."""
        count = len(self.conflicts)
        if count == 1:
            manager, path = self.conflicts[0]
            text = f"1 conflict: conflict with {manager.shown}: {path_text(path)}"
        else:
            text = f"{count} conflicts: {_listed(self.conflicts)}"
        errors = [
            FieldError(path_text(path), "FieldManagerConflict", f"conflict with {manager.shown}")
            for manager, path in self.conflicts
        ]
        details = {
            "causes": [
                {"reason": each.reason, "message": each.message, "field": each.field}
                for each in errors
            ]
        }
        return StatusError(409, "Conflict", f"Apply failed with {text}", details=details)


def _listed(conflicts: Iterable[tuple[Owner, Path]]) -> str:
    lines = []
    for manager, fields in groupby(sorted(conflicts, key=_manager_of), key=_manager_of):
        lines.append(f"conflicts with {manager.shown}:")
        lines += [f"- {path_text(path)}" for _, path in fields]
    return "\n".join(lines)


def _manager_of(conflict: tuple[Owner, Path]) -> Owner:
    return conflict[0]


def applied(
    writing: Writing,
    live: JsonObject,
    config: JsonObject,
    before: Ownership,
    *,
    force: bool,
) -> tuple[JsonObject, Ownership]:
    """The object and its ownership after an apply; the same object if nothing changed.

    What the manager applied before and no longer names goes, unless another one owns it.

    Raises:
        ApplyConflictError: others own what would change, and it is not forced.
        FormError: the object has list items without keys.
    """
    mine = shared(without_trees(field_set(writing.form, config), writing.ignored))
    last = before.get(writing.owner)
    claimed = {**before, writing.owner: Owned(mine, writing.api_version, last.time if last else "")}
    new = merged(writing.form, live, config)
    if last is not None:
        new = _pruned(writing.form, new, last.fields, claimed)
    changes = compare(writing.form, live, new).without(writing.ignored)
    if not force:
        _refuse_conflicts(claimed, changes, writing.owner)
    after = _yielded(claimed, changes, but=writing.owner)
    owned = replace(after[writing.owner], fields=difference(mine, _NEVER_OWNED)) if mine else None
    after.pop(writing.owner, None)
    changed = new != live
    if owned is not None and owned.fields:
        after[writing.owner] = replace(owned, time=writing.time) if changed else owned
    return (new if changed else live), after


def _refuse_conflicts(claimed: Ownership, changes: Comparison, but: Owner) -> None:
    conflicts = [
        (manager, path)
        for manager, owned in claimed.items()
        if manager != but
        for path in paths(intersection(owned.fields, changes.written))
    ]
    if conflicts:
        raise ApplyConflictError(conflicts)


def _pruned(form: MergeType, value: JsonObject, last: FieldSet, claimed: Ownership) -> JsonObject:
    """The merged object without what was applied before and no manager owns any longer."""
    gone_first = with_named_parents(form, last)
    kept = without(form, value, gone_first) or {}
    all_owned: FieldSet = {}
    for owned in claimed.values():
        all_owned = union(all_owned, owned.fields)
    present = with_named_parents(form, field_set(form, value))
    remaining = with_named_parents(form, field_set(form, kept))
    unclaimed = difference(present, union(remaining, with_named_parents(form, all_owned)))
    kept = without(form, value, unclaimed) or {}
    remaining = with_named_parents(form, field_set(form, kept))
    dangling = intersection(difference(present, remaining), gone_first)
    return without(form, value, dangling) or {}


def without_conflicts_of(error: ApplyConflictError, allowed: FieldSet) -> ApplyConflictError | None:
    """The conflict without the fields that are allowed; None if nothing of it is left."""
    left = [each for each in error.conflicts if not contains(allowed, each[1])]
    return ApplyConflictError(left) if left else None
