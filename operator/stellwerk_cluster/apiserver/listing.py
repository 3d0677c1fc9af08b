"""Lists: selectors, pages, and which version of the collection a list shows.

Called by the HTTP layer for list and deletecollection. Invariant: all pages of one list show the
collection at the version of its first page, or the answer is that this version is no longer kept;
whatever a client sends to go on with is a token, of the API server's own form, or a 400.
"""

from __future__ import annotations

import base64
import posixpath
import re
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.conversion import stored_field_path
from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    StatusError,
    bad_request,
    expired,
    forbidden_field,
    internal,
    invalid_as,
    unsupported,
)
from stellwerk_cluster.apimachinery.json_text import JsonError, read_json
from stellwerk_cluster.apimachinery.objects import path_of
from stellwerk_cluster.apimachinery.query import flag, integer, version_error
from stellwerk_cluster.apimachinery.selectors import (
    FieldSelectorRequirement,
    Selection,
    parse_fields,
    parse_labels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_cluster.registry.store import Collection, Store
    from stellwerk_kube.json_values import JsonValue


_FORMAT: Final = "meta.k8s.io/v1"
_INCONSISTENT: Final = -1
"""The version in a token that goes on with a list as of now, because the list's own version is
gone."""
_NOT_BASE64: Final = re.compile(r"[^A-Za-z0-9_\r\n-]")
_BREAKS: Final = re.compile(r"[\r\n]")
_BASE64_QUANTUM: Final = 4
"""Characters of base64 for each three bytes."""
_FIELDS: Final = {"v": "string", "rv": "int64", "start": "string"}
_NAMES: Final = {str: "string", bool: "bool", list: "array", dict: "object"}
_AFTER: Final = "\0"
"""Ends the key of the last object shown, which makes it the first key that may come next."""


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """The place at which a list goes on."""

    revision: int
    """The version of the first page; below 0: the present one, whatever was shown before."""
    after: Key

    @property
    def of_present(self) -> bool:
        """Whether the rest is shown as it is now."""
        return self.revision < 0

    @property
    def of_present_instead(self) -> ContinueToken:
        """The token that goes on at the same object, in the present."""
        return ContinueToken(_INCONSISTENT, self.after)


def write_token(token: ContinueToken, namespace: str | None) -> str:
    """The token as a client gets it; `namespace` is the one that the list is of."""
    path = token.after[1] if namespace or not token.after[0] else "/".join(token.after)
    start = f"{'' if token.of_present else '/'}{path}{_AFTER}"
    payload = orjson.dumps({"v": _FORMAT, "rv": token.revision, "start": start})
    return base64.urlsafe_b64encode(payload).decode().rstrip("=")


def read_token(text: str, namespace: str | None) -> ContinueToken:
    """The token that a client sends for a list of the namespace.

    Raises:
        StatusError: it is no token (400).
    """
    fields = _fields(_payload(text))
    if fields["v"] != _FORMAT:
        raise _bad_token(f"server does not recognize this encoded version {fields['v']}")
    if fields["rv"] == 0:
        raise _bad_token(f"incorrect encoded start resourceVersion (version {_FORMAT})")
    start = fields["start"]
    if not start:
        raise _bad_token(f"encoded start key empty (version {_FORMAT})")
    path = start if start.startswith("/") else f"/{start}"
    # A key that leads out of the collection would list others; two slashes are one to Python only.
    if path.startswith("//") or posixpath.normpath(path) != path:
        raise _bad_token(start)
    of_path, _, name = path[1:].removesuffix(_AFTER).rpartition("/")
    return ContinueToken(fields["rv"], (namespace or of_path, name))


def _payload(text: str) -> bytes:
    wrong = _NOT_BASE64.search(text)
    if wrong is not None:
        place = len(text[: wrong.start()].encode())
        raise _bad_token(f"illegal base64 data at input byte {place}")
    encoded = _BREAKS.sub("", text)
    if len(encoded) % _BASE64_QUANTUM == 1:
        raise _bad_token(f"illegal base64 data at input byte {len(encoded) - 1}")
    return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % _BASE64_QUANTUM))


def _fields(payload: bytes) -> JsonValue:
    try:
        content = read_json(payload)
    except JsonError as error:
        raise _bad_token(str(error)) from None
    fields: JsonValue = {"v": "", "rv": 0, "start": ""}
    if content is None:
        return fields
    if not isinstance(content, dict):
        found = _NAMES.get(type(content), "number")
        raise _bad_token(
            f"json: cannot unmarshal {found} into Go value of type storage.continueToken"
        )
    for name, value in content.items():
        field = name.lower()  # Go finds fields without regard to case
        if field not in _FIELDS or value is None:
            continue
        if not _fits(value, _FIELDS[field]):
            raise _bad_token(
                f"json: cannot unmarshal {_found(value, _FIELDS[field])} into Go struct field "
                f"continueToken.{field} of type {_FIELDS[field]}"
            )
        fields[field] = value
    return fields


def _fits(value: JsonValue, type_name: str) -> bool:
    if type_name == "string":
        return isinstance(value, str)
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _found(value: JsonValue, type_name: str) -> str:
    if type_name == "int64" and type(value) in (int, float):
        return f"number {orjson.dumps(value).decode()}"
    return _NAMES.get(type(value), "number")


def _bad_token(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


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
