"""Objects inside custom objects, where a schema says x-kubernetes-embedded-resource.

Asked by the rules of custom kinds, and for the defaults of their schemas. Invariant: an object that
passes names its kind and version, and its metadata could be stored.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.names import dns_1035_errors, path_segment_errors
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.metadata import metadata_create_errors
from stellwerk_kube.schema.decoder import decode
from stellwerk_kube.schema.mismatches import DecodeError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_kube.json_values import JsonObject, JsonValue

EMBEDDED: Final = "x-kubernetes-embedded-resource"
_ANY_NAME: Final = "fakename"
"""Stands in for a name, which embedded objects need not have."""


def embedded_errors(value: JsonValue, schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors of the objects inside a value, itself included."""
    if not schema:
        return
    if isinstance(value, list):
        items = schema.get("items") or EMPTY
        for position, item in enumerate(value):
            yield from embedded_errors(item, items, f"{path}[{position}]")
    if not isinstance(value, dict):
        return
    if schema.get(EMBEDDED):
        yield from _object_errors(value, path)
    properties, additional = schema.get("properties") or EMPTY, schema.get("additionalProperties")
    for name, item in sorted(value.items()):
        if name in properties:
            where = f"{path}.{name}" if path else name
            yield from embedded_errors(item, properties[name], where)
        elif isinstance(additional, dict):
            yield from embedded_errors(item, additional, f"{path}[{name}]")


def _object_errors(obj: JsonObject, path: str) -> Iterator[FieldError]:
    for name in ("apiVersion", "kind"):
        if name not in obj:
            yield required(f"{path}.{name}", "must not be empty")
        elif not isinstance(obj[name], str):
            yield bad_value(f"{path}.{name}", obj[name], "must be a string")
        elif not obj[name]:
            yield bad_value(f"{path}.{name}", "", "must not be empty")
        else:
            yield from _name_errors(name, obj[name], f"{path}.{name}")
    if "metadata" in obj:
        yield from _metadata_errors(obj["metadata"], f"{path}.metadata")


def _name_errors(field: str, text: str, path: str) -> Iterator[FieldError]:
    if field == "apiVersion":
        if text.count("/") > 1:
            yield bad_value(path, text, f"unexpected GroupVersion string: {text}")
        return
    errors = dns_1035_errors(text.lower())
    if errors:
        why = f"may have mixed case, but should otherwise match: {','.join(errors)}"
        yield bad_value(path, text, why)


def _metadata_errors(metadata: JsonValue, path: str) -> Iterator[FieldError]:
    try:
        known, _unknown = decode("ObjectMeta", metadata)
    except DecodeError as error:
        yield bad_value(path, metadata, str(error))
        return
    named = {"metadata": {**known, "name": known.get("name") or _ANY_NAME}}
    for wrong in metadata_create_errors(named, path_segment_errors):
        yield replace(wrong, field=path + wrong.field.removeprefix("metadata"))
