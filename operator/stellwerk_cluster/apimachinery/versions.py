"""The versions of a custom kind, between which objects are converted by their apiVersion alone.

Called by views on the way out and by the verbs before they store. Invariant: what is stored has the
form of the storage version, and what is shown that of the version that was asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.structural import prune, with_defaults

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind

_OF_EVERY_OBJECT = ("kind", "apiVersion", "metadata")


def in_version(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """A stored object in the version of the kind: its known fields, and its defaults."""
    content = _content(obj, kind.version_schema)
    return _named(kind, kind.api_version, obj, with_defaults(content, kind.version_schema))


def for_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """An object of the version of the kind as it is stored."""
    if not kind.converted:
        return obj
    api_version = f"{kind.group}/{kind.storage_version}"
    return _named(kind, api_version, obj, _content(obj, kind.storage_schema))


def _content(obj: JsonObject, schema: JsonObject) -> JsonObject:
    content = {name: value for name, value in obj.items() if name not in _OF_EVERY_OBJECT}
    pruned: JsonObject = prune(content, schema, "", [])
    return pruned


def _named(
    kind: ResourceKind, api_version: str, obj: JsonObject, content: JsonObject
) -> JsonObject:
    return {
        "kind": kind.kind,
        "apiVersion": api_version,
        "metadata": obj["metadata"],
        **content,
    }
