"""The metadata of every object: names, labels, annotations, owners, finalizers.

Called by the verbs. Invariant: the API server checks metadata in several layers, and each layer
reports what it finds; `metadata_update_errors` does too, so that a client counts the same causes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, forbidden_field, required
from stellwerk_cluster.apimachinery.names import (
    annotation_errors,
    labels_errors,
    qualified_name_errors,
    without_trailing_dash,
)
from stellwerk_cluster.apimachinery.objects import is_terminating
from stellwerk_cluster.validation.checks import IMMUTABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from stellwerk_kube.json_values import JsonObject

_STANDARD_FINALIZERS: Final = ("kubernetes", "orphan", "foregroundDeletion")
_OWNER_FIELDS: Final = ("kind", "name", "uid")
_NAMES: Final = ("name", "namespace", "uid")


def metadata_create_errors(
    obj: JsonObject, name_errors: Callable[[str], Iterable[str]], *, custom: bool = False
) -> Iterator[FieldError]:
    """Errors of the metadata of a new object."""
    metadata = obj["metadata"]
    name, prefix = metadata.get("name", ""), metadata.get("generateName", "")
    for error in name_errors(without_trailing_dash(prefix)) if prefix else ():
        yield bad_value("metadata.generateName", prefix, error)
    if not name:
        yield required("metadata.name", "name or generateName is required")
    for error in name_errors(name) if name else ():
        yield bad_value("metadata.name", name, error)
    yield from _object_errors(metadata, custom=custom)


def metadata_update_errors(
    new: JsonObject, old: JsonObject, layers: tuple[int, int], *, custom: bool = False
) -> Iterator[FieldError]:
    """Errors of the metadata of a changed object.

    Besides the layer that all kinds share, a kind looks `layers[0]` times at the change and
    `layers[1]` times at the object.
    """
    changes, objects = layers
    wrong = list(_object_errors(new["metadata"], custom=True))
    change = list(_change_errors(new, old))
    yield from wrong
    yield from change
    finalizers = [] if custom else list(_standard_finalizer_errors(new["metadata"]))
    for _ in range(changes):
        yield from change
        yield from finalizers
    for _ in range(objects):
        yield from wrong
        yield from finalizers


def _object_errors(metadata: JsonObject, *, custom: bool) -> Iterator[FieldError]:
    yield from _mapped_errors(metadata)
    if metadata.get("finalizers"):
        for name in metadata["finalizers"]:
            for error in qualified_name_errors(name):
                yield bad_value("metadata.finalizers", name, error)
        if {"orphan", "foregroundDeletion"} <= set(metadata["finalizers"]):
            text = "finalizer orphan and foregroundDeletion cannot be both set"
            yield bad_value("metadata.finalizers", metadata["finalizers"], text)
        if not custom:
            yield from _standard_finalizer_errors(metadata)


def _mapped_errors(metadata: JsonObject) -> Iterator[FieldError]:
    """Labels, annotations and owners: what creates and updates look at alike."""
    if metadata.get("labels"):
        yield from labels_errors(metadata["labels"], "metadata.labels")
    if metadata.get("annotations"):
        yield from annotation_errors(metadata["annotations"], "metadata.annotations")
    if metadata.get("ownerReferences"):
        yield from _owner_errors(metadata["ownerReferences"])


def _standard_finalizer_errors(metadata: JsonObject) -> Iterator[FieldError]:
    for position, name in enumerate(metadata.get("finalizers") or ()):
        if "/" not in name and name not in _STANDARD_FINALIZERS:
            text = "name is neither a standard finalizer name nor is it fully qualified"
            yield bad_value(f"metadata.finalizers[{position}]", name, text)


def _owner_errors(owners: Sequence[JsonObject]) -> Iterator[FieldError]:
    field, controller = "metadata.ownerReferences", ""
    for owner in owners:
        version = owner.get("apiVersion", "")
        if not version.rpartition("/")[2]:
            yield bad_value(f"{field}.apiVersion", version, "version must not be empty")
        for key in _OWNER_FIELDS:
            if not owner.get(key):
                yield bad_value(f"{field}.{key}", "", "must not be empty")
        if (version, owner.get("kind")) == ("v1", "Event"):
            text = "/v1, Kind=Event is disallowed from being an owner"
            yield bad_value(field, owner, text)
        if not owner.get("controller"):
            continue
        shown = f"{owner.get('kind', '')}/{owner.get('name', '')}"
        if controller:
            text = (
                'Only one reference can have Controller set to true. Found "true" in references '
                f"for {controller} and {shown}"
            )
            yield bad_value(field, owners, text)
        controller = controller or shown


def _change_errors(new: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    yield from _new_finalizer_errors(new["metadata"], old)
    for name in _NAMES:
        if new["metadata"].get(name) != old["metadata"].get(name):
            yield bad_value(f"metadata.{name}", new["metadata"].get(name, ""), IMMUTABLE)
    yield from _mapped_errors(new["metadata"])


def _new_finalizer_errors(metadata: JsonObject, old: JsonObject) -> Iterator[FieldError]:
    """Finalizers that an update adds although the object is being deleted."""
    if not is_terminating(old):
        return
    had = old["metadata"].get("finalizers") or ()
    added = [name for name in metadata.get("finalizers") or () if name not in had]
    if added:
        shown = ", ".join(f'"{name}"' for name in added)
        text = (
            "no new finalizers can be added if the object is being deleted, found new finalizers "
            f"[]string{{{shown}}}"
        )
        yield forbidden_field("metadata.finalizers", text)
