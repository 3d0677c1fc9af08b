"""The rules of the specification of a CustomResourceDefinition, its schemas aside.

Called by `definitions`. Invariant: the order of the errors is that of the API server, which places
what all versions have in common at the top of the specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import (
    FieldError,
    bad_value,
    forbidden_field,
    required,
    unsupported,
)
from stellwerk_cluster.apimachinery.names import dns_1035_errors, subdomain_errors
from stellwerk_cluster.apimachinery.objects import EMPTY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.objects import JsonValue

_SCOPES: Final = ("Cluster", "Namespaced")
_COLUMN_TYPES: Final = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS: Final = (
    "byte",
    "date",
    "date-time",
    "double",
    "float",
    "int32",
    "int64",
    "password",
)
_REQUIRED_NAMES: Final = ("plural", "singular", "kind", "listKind")
_SHARED: Final = ("schema", "subresources", "additionalPrinterColumns", "selectableFields")
_STRATEGIES: Final = ("None", "Webhook")
_SPEC: Final = ".spec."
_STATUS: Final = ".status."


def is_shared(versions: list[JsonObject], field: str) -> bool:
    """Whether all versions say the same there, so that errors place it outside of them."""
    return all(each.get(field) == versions[0].get(field) for each in versions)


def head_errors(spec: JsonObject) -> Iterator[FieldError]:
    """Errors of group and scope, and of versions without a schema."""
    group, scope = spec["group"], spec["scope"]
    if not group:
        yield required("spec.group")
    elif errors := subdomain_errors(group):
        yield bad_value("spec.group", group, ",".join(errors))
    elif "." not in group:
        yield bad_value("spec.group", group, "should be a domain with at least one dot")
    if not scope:
        yield required("spec.scope")
    elif scope not in _SCOPES:
        yield unsupported("spec.scope", scope, _SCOPES)
    for position, version in enumerate(spec.get("versions") or ()):
        if (version.get("schema") or EMPTY).get("openAPIV3Schema") is None:
            yield required(f"spec.versions[{position}].schema.openAPIV3Schema")


def version_errors(
    version: JsonObject, versions: list[JsonObject], field: str
) -> Iterator[FieldError]:
    """Errors of the parts of a version that it does not share with the others."""
    errors = dns_1035_errors(version["name"])
    if errors:
        yield bad_value(f"{field}.name", version["name"], ",".join(errors))
    if not is_shared(versions, "subresources"):
        yield from _subresource_errors(version.get("subresources"), f"{field}.subresources")
    if not is_shared(versions, "additionalPrinterColumns"):
        columns = version.get("additionalPrinterColumns")
        yield from _column_errors(columns, f"{field}.additionalPrinterColumns")


def list_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    """Errors of the versions together."""
    shown = [_internal(each, versions) for each in versions]
    if len({each["name"] for each in versions}) != len(versions):
        yield bad_value("spec.versions", shown, "must contain unique version names")
    if sum(1 for each in versions if each["storage"]) != 1:
        text = "must have exactly one version marked as storage version"
        yield bad_value("spec.versions", shown, text)


def _internal(version: JsonObject, versions: list[JsonObject]) -> JsonObject:
    """A version as errors quote it: in Go's names, without what it shares with the others."""
    return {
        "Name": version["name"],
        "Served": version["served"],
        "Storage": version["storage"],
        "Deprecated": version.get("deprecated", False),
        "DeprecationWarning": version.get("deprecationWarning"),
        **{
            f"{field[0].upper()}{field[1:]}": (
                None if is_shared(versions, field) else version.get(field)
            )
            for field in _SHARED
        },
    }


def name_errors(names: JsonObject) -> Iterator[FieldError]:
    """Errors of the names of a kind."""
    for name in _REQUIRED_NAMES:
        if not names.get(name):
            yield required(f"spec.names.{name}")
    for name in _REQUIRED_NAMES:
        text = names.get(name) or ""
        mixed = name in ("kind", "listKind")
        errors = dns_1035_errors(text.lower() if mixed else text) if text else ()
        if errors:
            prefix = "may have mixed case, but should otherwise match: " if mixed else ""
            yield bad_value(f"spec.names.{name}", text, prefix + ",".join(errors))
    yield from _label_list_errors(names, "shortNames")
    if names.get("kind") and names["kind"] == names.get("listKind"):
        text = "kind and listKind may not be the same"
        yield bad_value("spec.names.listKind", names["listKind"], text)
    yield from _label_list_errors(names, "categories")


def _label_list_errors(names: JsonObject, field: str) -> Iterator[FieldError]:
    for position, text in enumerate(names.get(field) or ()):
        errors = dns_1035_errors(text)
        if errors:
            yield bad_value(f"spec.names.{field}[{position}]", text, ",".join(errors))


def shared_errors(versions: list[JsonObject]) -> Iterator[FieldError]:
    """Errors of the subresources and columns that all versions have in common."""
    if not versions:
        return
    first = versions[0]
    if is_shared(versions, "subresources"):
        yield from _subresource_errors(first.get("subresources"), "spec.subresources")
    if is_shared(versions, "additionalPrinterColumns"):
        columns = first.get("additionalPrinterColumns")
        yield from _column_errors(columns, "spec.additionalPrinterColumns")


def _subresource_errors(subresources: JsonObject | None, field: str) -> Iterator[FieldError]:
    scale = (subresources or EMPTY).get("scale")
    if scale is None:
        return
    for name, prefix in (("specReplicasPath", _SPEC), ("statusReplicasPath", _STATUS)):
        where, path = f"{field}.scale.{name}", scale.get(name) or ""
        if not path:
            yield required(where)
        elif not path.startswith("."):
            yield bad_value(where, path, "must be a simple json path starting with .")
        elif not path.startswith(prefix):
            place = prefix.removesuffix(".")
            yield bad_value(where, path, f"should be a json path under {place}")
    where, path = f"{field}.scale.labelSelectorPath", scale.get("labelSelectorPath") or ""
    if path and not path.startswith("."):
        yield bad_value(where, path, "must be a simple json path starting with .")
    elif path and not path.startswith((_SPEC, _STATUS)):
        yield bad_value(where, path, "should be a json path under either .spec or .status")


def _column_errors(columns: list[JsonObject] | None, field: str) -> Iterator[FieldError]:
    for position, column in enumerate(columns or ()):
        where = f"{field}[{position}]"
        if not column.get("name"):
            yield required(f"{where}.name")
        types = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not column.get("type"):
            yield required(f"{where}.type", types)
        elif column["type"] not in _COLUMN_TYPES:
            yield bad_value(f"{where}.type", column["type"], types)
        if column.get("format") and column["format"] not in _COLUMN_FORMATS:
            text = f"must be one of {','.join(_COLUMN_FORMATS)}"
            yield bad_value(f"{where}.format", column["format"], text)
        path = column.get("jsonPath") or ""
        if not path:
            yield required(f"{where}.JSONPath")
        elif not path.startswith("."):
            text = "must be a simple json path starting with ."
            yield bad_value(f"{where}.JSONPath", path, text)


def conversion_errors(conversion: JsonObject) -> Iterator[FieldError]:
    """Errors of the conversion of objects between versions."""
    field, strategy = "spec.conversion", conversion.get("strategy") or ""
    if not strategy:
        yield required(f"{field}.strategy")
    elif strategy not in _STRATEGIES:
        yield unsupported(f"{field}.strategy", strategy, _STRATEGIES)
    webhook = conversion.get("webhook")
    if strategy == "Webhook":
        if (webhook or EMPTY).get("clientConfig") is None:
            text = "required when strategy is set to Webhook"
            yield required(f"{field}.webhookClientConfig", text)
        if not (webhook or EMPTY).get("conversionReviewVersions"):
            yield required(f"{field}.conversionReviewVersions")
    elif webhook is not None:
        text = "should not be set when strategy is not set to Webhook"
        yield forbidden_field(f"{field}.webhookClientConfig", text)


def immutable_errors(
    new: JsonObject, old: JsonObject, *, established: bool
) -> Iterator[FieldError]:
    """Errors of a change of a specification."""
    fields: list[tuple[str, JsonValue, JsonValue]] = []
    if established:
        fields = [
            ("spec.scope", new["scope"], old["scope"]),
            ("spec.names.kind", new["names"]["kind"], old["names"]["kind"]),
        ]
    fields += [
        ("spec.group", new["group"], old["group"]),
        ("spec.names.plural", new["names"]["plural"], old["names"]["plural"]),
    ]
    for field, now, before in fields:
        if now != before:
            yield bad_value(field, now, "field is immutable")
