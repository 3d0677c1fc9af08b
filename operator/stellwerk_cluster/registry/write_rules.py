"""What an update may change and what stays, and the refusals that follow from it.

Called by `api` for every write. Invariant: the functions that put stored fields back change only
the fresh object they are given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from stellwerk_cluster.apimachinery.failures import (
    Cause,
    StatusError,
    bad_request,
    bad_value,
    conflict,
    forbidden,
    forbidden_field,
    internal,
    invalid_as,
    modified_meanwhile,
)
from stellwerk_cluster.apimachinery.objects import JsonValue, Key, is_terminating

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.registry.store import Entry


def waits_for_more(kind: ResourceKind, obj: JsonObject) -> bool:
    """Whether a terminating object waits for something else than finalizers in its metadata."""
    if kind.kind == "Namespace":
        return bool((obj.get("spec") or {}).get("finalizers"))
    return bool(obj["metadata"].get("deletionGracePeriodSeconds"))


def specification(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """What the generation of an object counts changes of."""
    if not kind.custom:
        return obj.get("spec") or {}
    return {name: value for name, value in obj.items() if name not in ("metadata", "status")}


def keep_field(obj: JsonObject, old: JsonObject, name: str) -> None:
    """Put back one field as it is stored."""
    if name in old:
        obj[name] = old[name]
    else:
        obj.pop(name, None)


def keep_all_but_status(obj: JsonObject, old: JsonObject, *, with_metadata: bool) -> None:
    """Put back everything that a write of the status may not change."""
    for name in {*obj, *old} - {"status", "metadata"}:
        keep_field(obj, old, name)
    if not with_metadata:
        obj["metadata"] = dict(old["metadata"])


def check_version(kind: ResourceKind, name: str, version: str, stored: Entry) -> None:
    """Refuse a write that was made for another version of the object.

    Raises:
        StatusError: it is not the stored version (409), or no version at all (500).
    """
    if version and not version.isdigit():
        raise internal(f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if version in ("", "0"):
        if kind.needs_version_on_update:
            cause = bad_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_as(kind.plural, kind.group, name, [cause])
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


def bad_patch(shown: JsonValue, why: str) -> StatusError:
    """A patch whose result cannot be read."""
    return invalid_as("", "", "", [bad_value("patch", orjson.dumps(shown).decode(), why)])


def terminating_namespace(kind: ResourceKind, name: str, namespace: str) -> StatusError:
    """The refusal of a new object in a namespace that is on its way out."""
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


def finalizer_causes(obj: JsonObject, old: JsonObject) -> list[Cause]:
    """Finalizers that an update adds although the object is being deleted."""
    if not is_terminating(old):
        return []
    had = old["metadata"].get("finalizers") or ()
    added = [name for name in obj["metadata"].get("finalizers") or () if name not in had]
    if not added:
        return []
    shown = ", ".join(f'"{name}"' for name in added)
    text = (
        "no new finalizers can be added if the object is being deleted, found new finalizers "
        f"[]string{{{shown}}}"
    )
    return [forbidden_field("metadata.finalizers", text)]
