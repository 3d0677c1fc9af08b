"""Kinds that are several views of one store, and the way between what is stored and what is shown.

Called by the verbs on the way in and by rendering on the way out. Invariant: a kind is a view
if its row in kinds.toml names a storage whose objects have another form than its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery import autoscaler_views, event_views, versions

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind


def is_view(kind: ResourceKind) -> bool:
    """Whether objects of the kind are stored in another form than they are shown."""
    return kind.converted or kind.group == event_views.NEW_GROUP or _is_first_autoscaler(kind)


def to_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The stored form of an object that a client sent."""
    if kind.group == event_views.NEW_GROUP:
        return event_views.to_core(obj)
    return autoscaler_views.to_second_version(obj) if _is_first_autoscaler(kind) else obj


def from_storage(kind: ResourceKind, obj: JsonObject) -> JsonObject:
    """The form of a stored object that clients of the kind see."""
    if kind.converted:
        return versions.in_version(kind, obj)
    if kind.group == event_views.NEW_GROUP:
        return event_views.from_core(obj)
    return autoscaler_views.to_first_version(obj) if _is_first_autoscaler(kind) else obj


def _is_first_autoscaler(kind: ResourceKind) -> bool:
    return (kind.group, kind.version) == (autoscaler_views.GROUP, "v1")
