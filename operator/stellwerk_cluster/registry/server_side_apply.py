"""Server-side apply: an object, its status or its scale becomes what one manager wants of it.

Called by the HTTP layer. Invariant: what is applied passes the same rules as a create or an update;
only who owns what, and what goes with it, is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from stellwerk_cluster.apimachinery.failures import (
    bad_request,
    bad_value,
    conflict,
    invalid,
    not_found,
)
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.registry.write_rules import check_body_name, check_version
from stellwerk_kube.schema.mismatches import json_name

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import Entry
    from stellwerk_cluster.registry.write_options import WriteOptions
    from stellwerk_kube.json_values import JsonObject, JsonValue


class Applied(NamedTuple):
    """The object after an apply, and whether the apply made it."""

    entry: Entry
    created: bool


def apply(
    api: Api,
    kind: ResourceKind,
    key: Key,
    config: JsonValue,
    options: WriteOptions,
    subresource: str = "",
) -> Applied:
    """Merge an applied object into the stored one, or create it.

    Raises:
        StatusError: the body is malformed (400, 500), others own what would change, or the object
            changed meanwhile (409), a subresource of no object (404), or as for create and update.
    """
    if not isinstance(config, (dict, type(None))):
        raise bad_request(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {json_name(config)} into Go value of type map[string]interface {{}}"
        )
    config = config or {}
    stored = api.store.collection(kind.storage_name).get(key)
    if stored is None and subresource:
        raise not_found(kind, key[1])
    obj, entries = api.field_manager.applied(
        kind,
        stored.obj if stored is not None else None,
        config,
        (options.manager, options.shown_subresource or subresource),
        path=subresource,
        kept_by_status=api.strategy(kind).kept_by_status,
        force=options.force,
    )
    metadata = obj.get("metadata") or EMPTY
    check_body_name(key[1], metadata.get("name") or "")
    if stored is None:
        if metadata.get("uid"):
            why = (
                f"uid mismatch: the provided object specified uid {metadata['uid']}, "
                "and no existing object was found"
            )
            raise conflict(kind, key[1], why)
        new = {**obj, "metadata": {**metadata, "resourceVersion": ""}}
        return Applied(api.create(kind, key[0], new, options, applied=entries), created=True)
    _check_identity(kind, key, metadata, stored)
    entry = api.replace_applied(kind, stored, obj, entries, options, subresource)
    return Applied(entry, created=False)


def _check_identity(kind: ResourceKind, key: Key, metadata: JsonObject, stored: Entry) -> None:
    check_version(kind, key[1], metadata.get("resourceVersion", ""), stored)
    uid = stored.obj["metadata"]["uid"]
    if metadata.get("uid", uid) != uid:
        # Two layers of the API server check the metadata of an update, and both report.
        error = bad_value("metadata.uid", metadata["uid"], "field is immutable")
        raise invalid(kind, key[1], [error, error])
