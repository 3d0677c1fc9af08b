"""Field ownership of the kinds that are served: what a write makes of `metadata.managedFields`.

The verbs ask for the entries that belong to a write; `managed_fields` has the rules. Like the API
server, an object without entries stays without them until something is applied to it: so writers in
process that name no manager cost nothing. Invariant: objects of one shape that one manager wrote
share one set of fields.
"""

from __future__ import annotations

from collections import deque
from functools import cache
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.comparison import compare
from stellwerk_cluster.apimachinery.conversion import from_storage, is_converted
from stellwerk_cluster.apimachinery.failures import StatusError, bad_request, internal
from stellwerk_cluster.apimachinery.field_sets import difference
from stellwerk_cluster.apimachinery.merge_types import MergeType, built_in_merge_type, same_shape
from stellwerk_cluster.apimachinery.objects import EMPTY, timestamp
from stellwerk_cluster.apimachinery.typed_values import (
    MergeTypeError,
    field_set,
    problems,
    problems_text,
)
from stellwerk_cluster.registry.managed_fields import (
    APPLY,
    BEFORE_FIRST_APPLY,
    UPDATE,
    ApplyConflictError,
    Owned,
    Owner,
    Ownership,
    Writing,
    applied,
    given_or_stored,
    rendered,
    updated,
    without_conflicts_of,
)
from stellwerk_kube.schema.decoder import zero

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.field_sets import FieldSet
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import KindStrategy
    from stellwerk_cluster.registry.custom_kinds import CustomKinds
    from stellwerk_kube.clock import Clock
    from stellwerk_kube.json_values import JsonObject, JsonValue

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
_KUBECTL: Final = "kubectl"
_STATUS_ONLY: Final[FieldSet] = {"f:status": {}}
_MAX_RECENT_SHAPES: Final = 8
"""Shapes of objects whose field sets are kept for each manager and kind."""
_MAX_NOTED_CHARACTERS: Final = 256 << 10
"""Characters of an object's annotations. If the note of what was applied would make them longer, it
is left out."""


class FieldManager:
    """Finds who owns what after a write."""

    def __init__(self, custom: CustomKinds, clock: Clock) -> None:
        """`custom` has the schemas of definitions."""
        self._custom = custom
        self._clock = clock
        self._recent: dict[tuple[str, str, str], deque[tuple[JsonObject, FieldSet]]] = {}

    def created(
        self, kind: ResourceKind, obj: JsonObject, manager: str, given: JsonValue
    ) -> list[JsonObject]:
        """The entries of a new object; `given` are those that the client sent."""
        new = from_storage(kind, obj) if is_converted(kind) else obj
        writing = self._writing(kind, Owner(manager, UPDATE, kind.api_version, ""))
        try:
            before = given_or_stored(given, None, whole_object=True)
            if before:
                return rendered(updated(writing, _empty(kind), new, before))
            fields = self._fields_of_new(kind, writing, new)
        except (MergeTypeError, RecursionError):
            return []
        owned = {writing.owner: Owned(fields, kind.api_version, writing.time)}
        return rendered(owned) if fields else []

    def _fields_of_new(self, kind: ResourceKind, writing: Writing, new: JsonObject) -> FieldSet:
        """The fields of an object's creator; for a shape seen lately, the same set again."""
        key = (kind.group, kind.version, kind.plural)
        recent = self._recent.setdefault(key, deque(maxlen=_MAX_RECENT_SHAPES))
        for seen, fields in recent:
            if same_shape(writing.form, seen, new):
                return fields
        ownership = updated(writing, _empty(kind), new, {})
        fields = ownership[writing.owner].fields if ownership else {}
        # A copy: admission goes on to change the object.
        recent.appendleft((orjson.loads(orjson.dumps(new)), fields))
        return fields

    def forget(self, kind: ResourceKind) -> None:
        """Forget the shapes of a kind whose schema changes."""
        self._recent.pop((kind.group, kind.version, kind.plural), None)

    def updated(
        self,
        kind: ResourceKind,
        old: JsonObject,
        new: JsonObject,
        owner: tuple[str, str],
        given: JsonValue,
        path: str,
        strategy: KindStrategy,
    ) -> list[JsonObject]:
        """The entries after an update or patch by `owner`: (manager, subresource it is shown with).

        `path` is the subresource that is written, which decides about what is left alone. A writer
        without a manager leaves the entries as they are.
        """
        manager, subresource = owner
        stored = old["metadata"].get("managedFields")
        if not manager:
            return list(stored or ())
        before = given_or_stored(given, stored, whole_object=not subresource)
        if not before:
            return []
        writing = self._writing(
            kind,
            Owner(manager, UPDATE, kind.api_version, subresource),
            ignored=_ignored(kind, old, new, path, strategy.kept_by_status),
        )
        if is_converted(kind):
            old, new = from_storage(kind, old), from_storage(kind, new)
        try:
            return rendered(updated(writing, old, new, before))
        except (MergeTypeError, RecursionError):
            return list(stored or ())

    def applied(
        self,
        kind: ResourceKind,
        live: JsonObject | None,
        config: JsonObject,
        owner: tuple[str, str],
        *,
        path: str,
        kept_by_status: tuple[str, ...] | None,
        force: bool,
    ) -> tuple[JsonObject, list[JsonObject]]:
        """The object after an apply, as its kind shows it, and its entries.

        Raises:
            StatusError: the body is no object of the kind (400), does not have its form (500), or
                would change what others own (409).
        """
        manager, subresource = owner
        writing = self._writing(
            kind,
            Owner(manager, APPLY, "", subresource),
            ignored=_ignored(kind, live or EMPTY, config, path, kept_by_status),
        )
        shown = from_storage(kind, live) if live is not None else _empty(kind)
        entries = shown.get("metadata", EMPTY).get("managedFields")
        shown = _without_entries(shown)
        try:
            self._check(kind, writing.form, config)
            before = given_or_stored(None, entries, whole_object=False)
            if not before and live is not None:
                before = self._owned_before(kind, shown)
            obj, after = _applied(writing, shown, config, before, force=force)
        except ApplyConflictError as error:
            raise error.status() from error
        except MergeTypeError as error:
            raise internal(f"failed to merge config: {error}") from error
        except RecursionError as error:
            message = "error decoding YAML: exceeded max depth"
            raise bad_request(message) from error
        if manager == _KUBECTL:
            obj = _with_last_applied(obj, config)
        return obj, rendered(after)

    def _writing(
        self, kind: ResourceKind, owner: Owner, ignored: FieldSet | None = None
    ) -> Writing:
        if ignored is None:
            ignored = _STATUS_ONLY if kind.subresource("status") is not None else {}
        now = timestamp(self._clock.now())
        return Writing(self.form(kind), owner, kind.api_version, now, ignored)

    def form(self, kind: ResourceKind) -> MergeType:
        """The form of the objects of a kind."""
        return self._custom.form(kind) if kind.custom else built_in_merge_type(kind.type_name)

    def _owned_before(self, kind: ResourceKind, live: JsonObject) -> Ownership:
        """Give an owner of its own to what was there before anything was applied."""
        owner = Owner(BEFORE_FIRST_APPLY, UPDATE, kind.api_version, "")
        return updated(self._writing(kind, owner, ignored={}), _empty(kind), live, {})

    @staticmethod
    def _check(kind: ResourceKind, form: MergeType, config: JsonObject) -> None:
        if (config.get("apiVersion"), config.get("kind")) != (kind.api_version, kind.kind):
            raise invalid_type(config)
        metadata = config.get("metadata")
        if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
            message = "metadata.managedFields must be nil"
            raise bad_request(message)
        wrong = problems(form, config)
        if wrong:
            named = metadata if isinstance(metadata, dict) else EMPTY
            which = (
                f"{named.get('namespace', '')}/{named.get('name', '')}; "
                f"{kind.group}/{kind.version}, Kind={kind.kind}"
            )
            raise internal(f"failed to create typed patch object ({which}): {problems_text(wrong)}")


def invalid_type(config: JsonObject) -> StatusError:
    """The error of an applied object of another type (400); what is no text counts as absent."""
    version, kind = (
        value if isinstance(value, str) else ""
        for value in (config.get("apiVersion"), config.get("kind"))
    )
    group, _, short = version.rpartition("/")
    return bad_request(f"invalid object type: {group}/{short}, Kind={kind}")


def _applied(
    writing: Writing, live: JsonObject, config: JsonObject, before: Ownership, *, force: bool
) -> tuple[JsonObject, Ownership]:
    """An apply, forced where kubectl itself applied the same value on the client's side before."""
    try:
        return applied(writing, live, config, before, force=force)
    except ApplyConflictError as error:
        if writing.owner.name != _KUBECTL:
            raise
        allowed = _unchanged_since_last_applied(writing, live)
        if allowed is None:
            raise
        left = without_conflicts_of(error, allowed)
        if left is not None:
            raise left from error
    return applied(writing, live, config, before, force=True)


def _unchanged_since_last_applied(writing: Writing, live: JsonObject) -> FieldSet | None:
    """The fields with the value that the last client-side apply gave them; None without one."""
    text = (live["metadata"].get("annotations") or EMPTY).get(LAST_APPLIED)
    if not text:
        return None
    try:
        last = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(last, dict) or last.get("apiVersion") != writing.api_version:
        return None
    if problems(writing.form, last):
        return None
    changes = compare(writing.form, last, live)
    mine = difference(field_set(writing.form, last), changes.written)
    return difference(mine, changes.removed)


def _with_last_applied(obj: JsonObject, config: JsonObject) -> JsonObject:
    """The object with its note of what kubectl applied brought up to date, if it has one."""
    annotations = obj["metadata"].get("annotations") or EMPTY
    if not annotations.get(LAST_APPLIED):
        return obj
    noted = {**annotations, LAST_APPLIED: _noted(config)}
    if sum(len(name) + len(value) for name, value in noted.items()) > _MAX_NOTED_CHARACTERS:
        del noted[LAST_APPLIED]
    return {**obj, "metadata": {**obj["metadata"], "annotations": noted}}


def as_applied(config: JsonObject) -> JsonObject:
    """An object as `kubectl apply` creates it: with a note of what was applied."""
    metadata = config.get("metadata") or EMPTY
    annotations = metadata.get("annotations") or EMPTY
    bare = {**config, "metadata": {**metadata, "annotations": {**annotations, LAST_APPLIED: ""}}}
    noted = {**annotations, LAST_APPLIED: _noted(bare)}
    return {**config, "metadata": {**metadata, "annotations": noted}}


def _noted(config: JsonObject) -> str:
    metadata = dict(config.get("metadata") or EMPTY)
    annotations = dict(metadata.get("annotations") or EMPTY)
    if annotations.pop(LAST_APPLIED, None) is not None:
        metadata["annotations"] = annotations
    text = orjson.dumps({**config, "metadata": metadata}, option=orjson.OPT_SORT_KEYS).decode()
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text + "\n"


def _without_entries(obj: JsonObject) -> JsonObject:
    metadata = obj.get("metadata")
    if not metadata or "managedFields" not in metadata:
        return obj
    left = {name: value for name, value in metadata.items() if name != "managedFields"}
    return {**obj, "metadata": left}


def _empty(kind: ResourceKind) -> JsonObject:
    """An object of the kind before anything is said about it."""
    return EMPTY if kind.custom else _empty_built_in(kind.type_name)


@cache
def _empty_built_in(type_name: str) -> JsonObject:
    found: JsonObject = zero(type_name)
    return found


def _ignored(
    kind: ResourceKind,
    old: JsonObject,
    new: JsonObject,
    path: str,
    kept_metadata: tuple[str, ...] | None,
) -> FieldSet:
    """The fields that a write under this path leaves alone."""
    if path == "status":
        kept: FieldSet = {f"f:{name}": {} for name in {*old, *new} - {"status", "metadata"}}
        if kept_metadata is None:
            return {**kept, "f:metadata": {}}
        below: FieldSet = {f"f:{name}": {} for name in kept_metadata}
        return {**kept, "f:metadata": below} if below else kept
    return _STATUS_ONLY if kind.subresource("status") is not None else {}
