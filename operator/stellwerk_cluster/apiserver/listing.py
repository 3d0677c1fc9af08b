"""Lists: selectors, pages, and which version of the collection a list shows.

Called by the HTTP layer for list and deletecollection. Invariant: all pages of one list show the
collection at the version of its first page, or the answer is that this version is no longer kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.conversion import stored_field_path
from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_request,
    expired,
    forbidden_field,
    internal,
    invalid_as,
    unsupported,
)
from stellwerk_cluster.apimachinery.label_selectors import parse_labels
from stellwerk_cluster.apimachinery.objects import path_of
from stellwerk_cluster.apimachinery.query import flag, integer, version_error
from stellwerk_cluster.apimachinery.selectors import (
    FieldSelectorRequirement,
    Selection,
    parse_fields,
)
from stellwerk_cluster.apiserver.continue_tokens import ContinueToken, read_token, write_token

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_cluster.registry.store import Collection, Store

_NOT_OLDER_THAN: Final = "NotOlderThan"
_MATCHES: Final = ("Exact", _NOT_OLDER_THAN, "")
_NO_MATCH_WITH_CONTINUE: Final = "resourceVersionMatch is forbidden when continue is provided"
_EXPIRED: Final = (
    "The provided continue parameter is too old to display a consistent list result. "
    "You can start a new list without the continue parameter, or use the continue token in this "
    "response to retrieve the remainder of the results. Continuing with the provided token results "
    "in an inconsistent list - objects that were created, modified, or deleted between the time "
    "the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The query of a list or watch, parsed and free of contradictions."""

    selection: Selection
    limit: int = 0
    token: ContinueToken | None = None
    resource_version: str = ""
    match: str = ""
    watch: bool = False
    timeout_seconds: int | None = None
    bookmarks: bool = False
    send_initial_events: bool | None = None

    @property
    def revision(self) -> int:
        """The version asked for; 0: any."""
        if self.token is not None:
            return max(self.token.revision, 0)
        return int(self.resource_version or 0)


@dataclass(frozen=True, slots=True)
class ListPage:
    """The objects in one answer of a list, and the token that continues it."""

    entries: list[Entry]
    revision: int
    token: str = ""
    remaining: int | None = None


def parse_list_options(
    kind: ResourceKind, namespace: str | None, name: str, query: dict[str, str]
) -> ListOptions:
    """The options of a query; `name` narrows the list to one object.

    Raises:
        StatusError: an option is malformed (400), or options contradict each other (422).
    """
    fields = parse_fields(
        query.get("fieldSelector", ""), kind, lambda field: stored_field_path(kind, field)
    )
    if name:
        fields = (*fields, FieldSelectorRequirement(("metadata", "name"), name))
    selection = Selection(namespace, parse_labels(query.get("labelSelector", "")), fields)
    options = ListOptions(
        selection=selection,
        limit=max(integer(query, "limit") or 0, 0),
        resource_version=query.get("resourceVersion", ""),
        match=query.get("resourceVersionMatch", ""),
        watch=flag(query, "watch"),
        timeout_seconds=integer(query, "timeoutSeconds"),
        bookmarks=flag(query, "allowWatchBookmarks"),
        send_initial_events=flag(query, "sendInitialEvents")
        if "sendInitialEvents" in query
        else None,
    )
    continues = query.get("continue", "")
    errors = list(_contradictions(options, continues=bool(continues)))
    if errors:
        raise invalid_as("ListOptions", "meta.k8s.io", "", errors)
    if not continues or options.watch:
        _check_revision(options)
        return options
    token = read_token(continues, namespace)
    if options.resource_version not in ("", "0"):
        message = "specifying resource version is not allowed when using continue"
        raise bad_request(message)
    return replace(options, token=token)


def _contradictions(options: ListOptions, *, continues: bool) -> Iterator[FieldError]:
    """The errors of options that do not go together, in the API server's order."""
    if options.watch:
        yield from _watch_contradictions(options, continues=continues)
        return
    field = "resourceVersionMatch"
    if options.match:
        if not options.resource_version:
            yield forbidden_field(
                field, "resourceVersionMatch is forbidden unless resourceVersion is provided"
            )
        if continues:
            yield forbidden_field(field, _NO_MATCH_WITH_CONTINUE)
        if options.match not in _MATCHES:
            yield unsupported(field, options.match, _MATCHES)
        if options.match == "Exact" and options.resource_version == "0":
            text = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            yield forbidden_field(field, text)
    if options.send_initial_events is not None:
        yield forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_contradictions(options: ListOptions, *, continues: bool) -> Iterator[FieldError]:
    field = "resourceVersionMatch"
    if options.send_initial_events is not None and options.match != _NOT_OLDER_THAN:
        text = f"sendInitialEvents requires setting resourceVersionMatch to {_NOT_OLDER_THAN}"
        yield forbidden_field(field, text)
    if not options.match:
        return
    if options.send_initial_events is None:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        yield forbidden_field(field, text)
    if options.match != _NOT_OLDER_THAN:
        yield unsupported(field, options.match, (_NOT_OLDER_THAN,))
    if continues:
        yield forbidden_field(field, _NO_MATCH_WITH_CONTINUE)


def _check_revision(options: ListOptions) -> None:
    version = options.resource_version
    error = version_error(version) if version else ""
    if not error:
        return
    text = f'resourceVersion: Invalid value: "{version}": {error}'
    if options.watch:
        raise internal(text)
    raise bad_request(f"invalid resource version: {text}")


def list_page(store: Store, kind: ResourceKind, options: ListOptions) -> ListPage:
    """The objects a list shows. The caller has waited until the version asked for exists.

    Raises:
        StatusError: the version asked for is no longer known (410).
    """
    collection = store.collection(kind.storage_name)
    revision, after = store.revision, None
    if options.token is not None:
        after = options.token.after
        revision = store.revision if options.token.of_present else options.token.revision
        if revision < collection.compacted:
            token = write_token(options.token.of_present_instead, options.selection.namespace)
            raise expired(_EXPIRED, metadata={"continue": token})
    elif options.match == "Exact":
        revision = options.revision
        if revision < collection.compacted:
            message = "The resourceVersion for the provided list is too old."
            raise expired(message)
    # The API server ignores the limit of a list at version 0, which it serves from its watch cache.
    limit = 0 if options.resource_version == "0" else options.limit
    return _cut(
        collection, options.selection, revision, after, limit, at_present=revision == store.revision
    )


def _cut(
    collection: Collection,
    selection: Selection,
    revision: int,
    after: Key | None,
    limit: int,
    *,
    at_present: bool,
) -> ListPage:
    if at_present:
        candidates = _present(collection, selection, after)
    else:
        candidates = _past(collection, selection.namespace, revision, after)
    selected = candidates if selection.everything else filter(selection.selects, candidates)
    if not limit:
        return ListPage(list(selected), revision)
    entries = list(islice(selected, limit))
    more = next(selected, None)
    if more is None:
        return ListPage(entries, revision)
    last, remaining = entries[-1].key, None
    if selection.everything:
        # Selectors leave the rest unknown; without one, the present is counted without a look.
        count = collection.count(selection.namespace, last)
        remaining = count if at_present else 1 + sum(1 for _ in selected)
    token = write_token(ContinueToken(revision, last), selection.namespace)
    return ListPage(entries, revision, token, remaining)


def _present(collection: Collection, selection: Selection, after: Key | None) -> Iterator[Entry]:
    """The entries that may be selected, in order of their keys."""
    trigger = selection.trigger
    if trigger is not None and trigger[0] == "spec.nodeName":
        bound = collection.on_node(trigger[1])
        return (entry for entry in bound if after is None or path_of(entry.key) > path_of(after))
    if after is None:
        return iter(collection.entries(selection.namespace))
    return filter(None, map(collection.get, collection.keys(selection.namespace, after)))


def _past(
    collection: Collection, namespace: str | None, revision: int, after: Key | None
) -> Iterator[Entry]:
    """The entries of an older version, in order of their keys."""
    was = collection.differences_from(revision)
    keys = list(collection.keys(namespace, after))
    vanished = [
        key
        for key in was
        if collection.get(key) is None
        and (namespace is None or key[0] == namespace)
        and (after is None or path_of(key) > path_of(after))
    ]
    in_order = sorted([*keys, *vanished], key=path_of)
    known = (was[key] if key in was else collection.get(key) for key in in_order)
    return filter(None, known)
