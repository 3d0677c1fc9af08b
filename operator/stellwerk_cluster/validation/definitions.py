"""The rules of CustomResourceDefinitions: schemas, their defaults, conversion, names, immutability.

Called through their strategy. Invariant: what a definition brings about is not decided here, but in
`registry.definition_lifecycle`; a default that passes is itself what its schema asks for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError, bad_value, required, unsupported
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.patterns import pattern_error
from stellwerk_cluster.apimachinery.structural import prune, validate
from stellwerk_cluster.validation.definition_rules import rule_errors
from stellwerk_cluster.validation.definition_spec import (
    conversion_errors,
    head_errors,
    immutable_errors,
    is_shared,
    list_errors,
    name_errors,
    shared_errors,
    version_errors,
)
from stellwerk_cluster.validation.embedded_objects import EMBEDDED, embedded_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")


def validate_definition(definition: JsonObject) -> list[FieldError]:
    """Errors of a definition."""
    spec, name = definition["spec"], definition["metadata"].get("name", "")
    errors: list[FieldError] = []
    if name != f"{spec['names']['plural']}.{spec['group']}":
        errors.append(bad_value("metadata.name", name, 'must be spec.names.plural+"."+spec.group'))
    errors += head_errors(spec)
    versions = spec.get("versions") or []
    for position, version in enumerate(versions):
        errors += version_errors(version, versions, f"spec.versions[{position}]")
        if not is_shared(versions, "schema"):
            errors += _schema_errors(version, f"spec.versions[{position}].schema.openAPIV3Schema")
    errors += list_errors(versions)
    errors += name_errors(spec["names"])
    if versions and is_shared(versions, "schema"):
        errors += _schema_errors(versions[0], "spec.validation.openAPIV3Schema")
    errors += shared_errors(versions)
    errors += conversion_errors(spec["conversion"])
    if not any(each["storage"] for each in versions) and not _stored_versions(definition):
        text = "must have at least one stored version"
        errors.append(bad_value("status.storedVersions", None, text))
    return [*errors, *_protected_group_errors(definition)]


def _stored_versions(definition: JsonObject) -> list[str]:
    stored: list[str] = (definition.get("status") or EMPTY).get("storedVersions") or []
    return stored


def _schema_errors(version: JsonObject, path: str) -> Iterator[FieldError]:
    schema = (version.get("schema") or EMPTY).get("openAPIV3Schema")
    if schema is None:
        return
    if not schema.get("type"):
        yield required(f"{path}.type", "must not be empty at the root")
    elif schema["type"] != "object":
        yield bad_value(f"{path}.type", schema["type"], "must be object at the root")
    yield from _pattern_errors(schema, path)
    yield from _untyped_errors(schema, path)
    yield from rule_errors(schema, path)
    yield from default_errors(schema, path)


def _pattern_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Patterns that Go's regexp, which is RE2, cannot run, wherever in a schema they stand."""
    pattern = schema.get("pattern")
    if isinstance(pattern, str) and (error := pattern_error(pattern)):
        text = f"must be a valid regular expression, but isn't: {error}"
        yield bad_value(f"{path}.pattern", pattern, text)
    for name, inner in sorted(schema.items()):
        if name in {"properties", "patternProperties", "definitions"} and isinstance(inner, dict):
            for key, part in inner.items():
                yield from _pattern_errors(part, f"{path}.{name}[{key}]")
        elif name in {"allOf", "anyOf", "oneOf"} and isinstance(inner, list):
            for position, part in enumerate(inner):
                yield from _pattern_errors(part, f"{path}.{name}[{position}]")
        elif name in {"items", "additionalProperties", "not"} and isinstance(inner, dict):
            yield from _pattern_errors(inner, f"{path}.{name}")


def _untyped_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    for name, part in (schema.get("properties") or EMPTY).items():
        where = f"{path}.properties[{name}]"
        free = part.get("x-kubernetes-int-or-string") or part.get(
            "x-kubernetes-preserve-unknown-fields"
        )
        if not part.get("type") and not free:
            yield required(f"{where}.type", "must not be empty for specified object fields")
        elif part.get("type") and part["type"] not in _TYPES:
            yield unsupported(f"{where}.type", part["type"], _TYPES)
        yield from _untyped_errors(part, where)
        if isinstance(part.get("items"), dict):
            yield from _untyped_errors(part["items"], f"{where}.items")


def _protected_group_errors(definition: JsonObject) -> Iterator[FieldError]:
    group = definition["spec"]["group"]
    approval = "api-approved.kubernetes.io"
    if group.endswith((".k8s.io", ".kubernetes.io")) and not (
        definition["metadata"].get("annotations") or EMPTY
    ).get(approval):
        text = (
            f'protected groups must have approval annotation "{approval}", '
            "see https://github.com/kubernetes/enhancements/pull/1111"
        )
        yield required(f"metadata.annotations[{approval}]", text)


def validate_definition_update(
    new: JsonObject, old: JsonObject, subresource: str
) -> list[FieldError]:
    """As for a new definition, and every version that objects may be stored in stays."""
    errors = [] if subresource == "status" else validate_definition(new)
    if subresource != "status":
        established = any(
            each["type"] == "Established" and each["status"] == "True"
            for each in (old.get("status") or EMPTY).get("conditions") or ()
        )
        errors += immutable_errors(new["spec"], old["spec"], established=established)
    versions = {each["name"] for each in new["spec"].get("versions") or ()}
    stored = (new.get("status") or EMPTY).get("storedVersions") or ()
    for position, name in enumerate(stored):
        if name not in versions:
            text = (
                f"missing from spec.versions; {name} was previously a storage version, and must "
                "remain in spec.versions until a storage migration ensures no data remains "
                f"persisted in {name} and removes {name} from status.storedVersions"
            )
            errors.append(bad_value(f"status.storedVersions[{position}]", name, text))
    if not stored and (old.get("status") or EMPTY).get("storedVersions"):
        errors.append(
            bad_value("status.storedVersions", [], "must have at least one stored version")
        )
    return errors


def default_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Errors of the defaults in a schema, and where it says that objects lie in it."""
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
