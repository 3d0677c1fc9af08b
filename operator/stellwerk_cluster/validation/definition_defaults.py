"""The defaults and the embedded objects in the schemas of definitions.

Called with the rules of CustomResourceDefinitions. Invariant: a default that passes is itself what
its schema asks for, so that filling it in makes no object invalid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.structural import list_type_errors, prune, validate
from stellwerk_cluster.validation.embedded_objects import EMBEDDED, embedded_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject


def default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """What is wrong with the defaults in a schema, and where it says that objects lie in it."""
    if schema.get("default") is not None:
        yield from _errors_of(schema, f"{path}.default")
    if schema.get(EMBEDDED):
        yield from _embedding_errors(schema, path)
    for name, part in sorted((schema.get("properties") or EMPTY).items()):
        yield from default_errors(part, f"{path}.properties[{name}]")
    for name in ("additionalProperties", "items"):
        if isinstance(schema.get(name), dict):
            yield from default_errors(schema[name], f"{path}.{name}")


def _errors_of(schema: JsonObject, path: str) -> Iterator[FieldError]:
    default, unknown = schema["default"], list[str]()
    prune(default, schema, "", unknown)
    if unknown:
        yield bad_value(path, default, "must not have unknown fields")
    embedded = list(embedded_errors(default, schema, path))
    yield from embedded or validate(default, schema, path)
    yield from () if embedded else list_type_errors(default, schema, path)


def _embedding_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    text = f"must be object if {EMBEDDED} is true"
    if not schema.get("type"):
        yield required(f"{path}.type", text)
    elif schema["type"] != "object":
        yield bad_value(f"{path}.type", schema["type"], text)
    if not schema.get("properties") and not schema.get("x-kubernetes-preserve-unknown-fields"):
        yield required(
            f"{path}.properties",
            f"must not be empty if {EMBEDDED} is true without x-kubernetes-preserve-unknown-fields",
        )
