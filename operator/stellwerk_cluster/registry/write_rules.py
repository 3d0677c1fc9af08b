"""The rules of writes: which fields they may change, and the refusals of all others.

Called by `api` for every write. Invariant: the functions that put stored fields back change only
the fresh object they are given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    StatusError,
    bad_request,
    bad_value,
    conflict,
    forbidden,
    internal,
    invalid_as,
    modified_meanwhile,
)
from stellwerk_cluster.apimachinery.objects import Key, go_text
from stellwerk_kube.json_values import JsonValue

if TYPE_CHECKING:
    from collections.abc import Iterable

    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_kube.json_values import JsonObject, JsonValue


_MAX_WARNING_CHARACTERS: Final = 4096
"""Characters of all warnings of one write, about a page. Further ones are left out."""
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "generateName",
)
NEVER_GIVEN: Final = (
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
)
"""Metadata that a new object does not have, whatever the body says."""


def check_body_name(name: str, given: str) -> None:
    """Refuse a body whose name is not that of the path.

    Raises:
        StatusError: it is another one, or none (400).
    """
    if not given:
        raise bad_request(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if given != name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def check_body_namespace(namespace: str, metadata: JsonObject) -> None:
    """Refuse a body whose namespace is not that of the path.

    Raises:
        StatusError: it is another one (400).
    """
    if namespace and metadata.get("namespace", namespace) != namespace:
        message = (
            "the namespace of the provided object does not match the namespace sent on the request"
        )
        raise bad_request(message)


def kind_as_given(kind: ResourceKind, body: JsonObject) -> ResourceKind:
    """The kind under the name that the body gives it: so errors call a custom object."""
    return replace(kind, kind=body.get("kind") or kind.kind) if kind.custom else kind


def kind_errors(kind: ResourceKind, body: JsonObject) -> list[FieldError]:
    """The errors of the kind that the body of a custom object names."""
    given = body.get("kind") or kind.kind
    if not kind.custom or given == kind.kind:
        return []
    return [bad_value("kind", given, f"must be {kind.kind}")]


def shown_warnings(texts: Iterable[str]) -> list[str]:
    """The warnings that an answer carries: each once, and together no more than a page."""
    shown: dict[str, None] = {}
    letters = 0
    for text in texts:
        letters += 0 if text in shown else len(text)
        if letters > _MAX_WARNING_CHARACTERS:
            break
        shown[text] = None
    return list(shown)


def keep_server_owned(obj: JsonObject, old: JsonObject) -> None:
    """Put back the metadata that only the server writes."""
    metadata = obj["metadata"] = {**(obj.get("metadata") or {})}
    for name in _SERVER_OWNED:
        keep_field(metadata, old["metadata"], name)
    metadata.pop("managedFields", None)
    for name in ("name", "namespace", "resourceVersion"):
        if name in old["metadata"]:
            metadata[name] = old["metadata"][name]


_METADATA_ORDER: Final = (
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
)


def in_order(metadata: JsonObject) -> JsonObject:
    """The metadata with its fields in the order in which the API writes them."""
    return {name: metadata[name] for name in _METADATA_ORDER if name in metadata}


def set_entries(obj: JsonObject, entries: list[JsonObject], old: JsonObject) -> None:
    """Put the ownership into an object, with the old times if nothing else of it changed."""
    metadata, stored = obj["metadata"], old["metadata"].get("managedFields") or []
    if _without_times(entries) == _without_times(stored):
        untimed = {**obj, "metadata": {**metadata, "managedFields": stored}}
        if untimed == {**old, "metadata": {**old["metadata"], "managedFields": stored}}:
            entries = stored
    if entries:
        metadata["managedFields"] = entries
    else:
        metadata.pop("managedFields", None)
    obj["metadata"] = in_order(metadata)


def _without_times(entries: list[JsonObject]) -> list[JsonObject]:
    return [{name: part for name, part in each.items() if name != "time"} for each in entries]


def waits_for_more(kind: ResourceKind, obj: JsonObject) -> bool:
    """Whether a terminating object waits for something else than finalizers in its metadata."""
    if kind.kind == "Namespace":
        return bool((obj.get("spec") or {}).get("finalizers"))
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def specification(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The part of an object whose changes its generation counts."""
    if not kind.custom:
        return obj.get("spec") or {}
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def keep_field(obj: JsonObject, old: JsonObject, name: str) -> None:
    """Put back one field as it is stored."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)


def keep_all_but_status(
    obj: JsonObject, old: JsonObject, kept_metadata: tuple[str, ...] | None
) -> None:
    """Put back everything that a write of the status may not change; None: all metadata, too."""
    for name in {*obj, *old} - {"status", "metadata"}:
        keep_field(obj, old, name)
    if kept_metadata is None:
        obj["metadata"] = dict(old["metadata"])
    for name in kept_metadata or ():
        keep_field(obj["metadata"], old["metadata"], name)


def check_version(kind: ResourceKind, name: str, version: str, stored: Entry) -> None:
    """Refuse a write that was made for another version of the object.

    Raises:
        StatusError: it is not the stored version (409), or no version at all (500).
    """
    if version and not version.isdigit():
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if version in ("", "0"):
        if kind.needs_version_on_update:
            error = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_as(kind.plural, kind.group, name, [error])
    elif int(version) != stored.revision:
        raise modified_meanwhile(kind, name)


def wrong_uid(kind: ResourceKind, key: Key, uid: str, stored: Entry) -> StatusError:
    """The conflict of a write that was made for another object of the same name."""
    return precondition_failed(
        kind,
        key,
        f"UID in precondition: {uid}, UID in object meta: {stored.obj['metadata']['uid']}",
    )


def precondition_failed(kind: ResourceKind, key: Key, what: str) -> StatusError:
    """A conflict as the storage layer of the API server words it."""
    path = "/".join(filter(None, ("/registry", kind.plural, *key)))
    return conflict(
        kind,
        key[1],
        f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, "
        f"AdditionalErrorMsg: Precondition failed: {what}",
    )


def cannot_handle(kind: ResourceKind, why: str) -> StatusError:
    """A body that cannot be read as an object of the kind."""
    return bad_request(
        f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {why}'
    )


def bad_patch(shown: JsonValue, why: str, *, as_map: bool = False) -> StatusError:
    """A patch whose result cannot be read; what is shown of it as JSON, or as Go prints maps."""
    text = go_text(shown) if as_map else orjson.dumps(shown).decode()
    return invalid_as("", "", "", [bad_value("patch", text, why)])


def terminating_definition(kind: ResourceKind) -> StatusError:
    """The refusal of a new custom object whose definition is terminating."""
    message = "create not allowed while custom resource definition is terminating"
    details = {"group": kind.group, "kind": kind.plural}
    return StatusError(405, "MethodNotAllowed", message, details=details)


def terminating_namespace(kind: ResourceKind, name: str, namespace: str) -> StatusError:
    """The refusal of a new object in a namespace that is terminating."""
    error = forbidden(
        kind,
        name,
        f"unable to create new content in namespace {namespace} because it is being terminated",
    )
    error.details = {
        **(error.details or {}),
        "causes": [
            {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
        ],
    }
    return error
