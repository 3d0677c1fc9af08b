"""The kinds that CustomResourceDefinitions add: their rows, their rules, their schemas.

`definition_lifecycle` says which versions are served; the verbs, tables and OpenAPI ask. Invariant:
a version is in the table of kinds exactly while its rules are here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import FieldError
from stellwerk_cluster.apimachinery.kinds import METADATA_FIELDS, ResourceKind, subresources
from stellwerk_cluster.apimachinery.merge_types import MergeType, custom_merge_type
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.rules import RuleTree
from stellwerk_cluster.apimachinery.strategy import KindStrategy
from stellwerk_cluster.apimachinery.structural import (
    UNNAMED,
    hides_rules,
    list_type_errors,
    prune,
    validate,
    validate_update,
    with_defaults,
)
from stellwerk_cluster.validation.embedded_objects import embedded_errors
from stellwerk_kube.schema.decoder import decode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk_cluster.apimachinery.kinds import KindTable
    from stellwerk_kube.json_values import JsonObject

_NOT_CHECKED: Final = FieldError(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)

_VERBS: Final = (
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "create",
    "update",
    "watch",
)
"""In the order in which discovery names them for custom kinds."""


_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_COMMON: Final[JsonObject] = {
    "apiVersion": {"type": "string", "description": "Group and version of the object's form."},
    "kind": {"type": "string", "description": "Kind of the object."},
    "metadata": {
        "type": "object",
        "description": "Name, labels and what the server keeps about the object.",
    },
}
_NOT_IN_V2: Final = ("allOf", "anyOf", "oneOf", "not", "nullable")
"""Words of a schema that version 2 of OpenAPI does not have."""


@dataclass(frozen=True, slots=True)
class _CustomVersion:
    """One served version of a definition."""

    schema: JsonObject
    printer_columns: list[JsonObject] | None
    strategy: KindStrategy
    form: MergeType


class CustomKinds:
    """The served versions of definitions, and what each says about its objects."""

    def __init__(self, kinds: KindTable) -> None:
        """Add rows to `kinds` for the versions that are served."""
        self._kinds = kinds
        self._versions: dict[tuple[str, str, str], _CustomVersion] = {}

    def serve(self, row: ResourceKind, version: JsonObject) -> None:
        """Serve a kind under the rules of one version of its definition."""
        schema = _schema(version)
        self._versions[row.group, row.version, row.plural] = _CustomVersion(
            schema,
            version.get("additionalPrinterColumns"),
            _strategy(schema),
            custom_merge_type(schema),
        )
        self._kinds.add(row)

    def withdraw(self, row: ResourceKind) -> None:
        """Serve a kind no longer."""
        self._versions.pop((row.group, row.version, row.plural), None)
        self._kinds.remove(row)

    def decode(
        self, kind: ResourceKind, body: JsonObject, *, as_given: bool = True
    ) -> tuple[JsonObject, list[str]]:
        """The body without unknown fields and with defaults, and the paths of the unknown fields.

        `as_given`: the body may claim to be of another version, whose schema is asked then; no
        schema says anything about the fields of another kind.

        Raises:
            DecodeError: the metadata is malformed.
        """
        schema = self._claimed_schema(kind, body) if as_given else self._version(kind).schema
        unknown: list[str] = []
        metadata, unknown_metadata = decode("ObjectMeta", body.get("metadata") or {})
        if schema is None:
            return {"metadata": metadata, **_content(body)}, []
        pruned = with_defaults(prune(_content(body), schema, "", unknown), schema)
        # A default can name metadata, which the object has anyway.
        return {"metadata": metadata, **_content(pruned)}, [
            *(f"metadata.{path}" for path in unknown_metadata),
            *unknown,
        ]

    def _claimed_schema(self, kind: ResourceKind, body: JsonObject) -> JsonObject | None:
        """The schema of the version that a body names; None for another kind."""
        group, _, version = (body.get("apiVersion") or kind.api_version).rpartition("/")
        if (group, body.get("kind") or kind.kind) != (kind.group, kind.kind):
            return None
        served = self._versions.get((group, version, kind.plural))
        return served.schema if served else EMPTY

    def strategy(self, kind: ResourceKind) -> KindStrategy:
        """The rules of a custom kind."""
        return self._version(kind).strategy

    def form(self, kind: ResourceKind) -> MergeType:
        """The type by which the objects of a kind are merged."""
        return self._version(kind).form

    def printer_columns(self, kind: ResourceKind) -> list[JsonObject] | None:
        """The table columns that the definition declares; None if it declares none."""
        return self._version(kind).printer_columns

    def openapi_schema(self, kind: ResourceKind, *, v2: bool = False) -> JsonObject:
        """The schema that OpenAPI shows: the definition's, with the fields of all objects.

        `v2`: in the form that kubectl can check manifests of kind List by. There, an object that
        may have any field names none.
        """
        schema = self._version(kind).schema
        if not schema or (v2 and schema.get(_PRESERVE)):
            return {"type": "object"}
        shown = _published(schema, v2=v2)
        return {**shown, "properties": {**_COMMON, **(shown.get("properties") or {})}}

    def _version(self, kind: ResourceKind) -> _CustomVersion:
        return self._versions[kind.group, kind.version, kind.plural]


def _published(schema: JsonObject, *, v2: bool) -> JsonObject:
    """A schema as kube-apiserver publishes it, without what version 2 of OpenAPI does not have."""
    shown: JsonObject = _in_v2(schema) if v2 else dict(schema)
    for name in ("items", "additionalProperties"):
        if isinstance(shown.get(name), dict):
            shown[name] = _published(shown[name], v2=v2)
    if "properties" in shown:
        parts = shown["properties"].items()
        shown["properties"] = {name: _published(part, v2=v2) for name, part in parts}
    if schema.get("x-kubernetes-embedded-resource") and not (v2 and schema.get(_PRESERVE)):
        shown["properties"] = {**(shown.get("properties") or {}), **_COMMON}
        needed = [*(shown.get("required") or ()), "kind", "apiVersion"]
        shown["required"] = list(dict.fromkeys(needed))
    return shown


def _in_v2(schema: JsonObject) -> JsonObject:
    """One level of a schema in version 2 of OpenAPI (`ToStructuralOpenAPIV2`, v1.36).

    kubectl cannot check a value by it that may be null or have any field: it has no type.
    """
    shown = {name: value for name, value in schema.items() if name not in _NOT_IN_V2}
    preserves, may_be_null = bool(schema.get(_PRESERVE)), bool(schema.get("nullable"))
    if preserves or may_be_null:
        shown.pop("items", None)
        shown.pop("properties", None)
    type_ = shown.get("type")
    is_open_list = type_ == "array" and "items" not in shown
    if may_be_null or (preserves and type_ == "object") or is_open_list:
        shown.pop("type", None)
    if "required" in shown:
        properties = shown.get("properties") or EMPTY
        shown["required"] = [
            name
            for name in shown["required"]
            if not (properties.get(name) or EMPTY).get("nullable")
        ]
    return shown


def custom_rows(definition: JsonObject) -> Iterator[tuple[ResourceKind, JsonObject]]:
    """The rows of all versions of a definition in the table of kinds, each with its version."""
    spec = definition["spec"]
    storage = next(each for each in spec["versions"] if each["storage"])
    converted = len(spec["versions"]) > 1 or definition["metadata"].get("generation", 1) > 1
    for version in spec["versions"]:
        row = replace(
            _row(spec, version),
            converted=converted,
            version_schema=_schema(version),
            storage_version=storage["name"],
            storage_schema=_schema(storage),
        )
        yield row, version


def _schema(version: JsonObject) -> JsonObject:
    schema: JsonObject = (version.get("schema") or EMPTY).get("openAPIV3Schema") or EMPTY
    return schema


def _row(spec: JsonObject, version: JsonObject) -> ResourceKind:
    names, wanted = spec["names"], version.get("subresources") or EMPTY
    scale = wanted.get("scale") or EMPTY
    selectable = [each["jsonPath"] for each in version.get("selectableFields") or ()]
    return ResourceKind(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=tuple(subresources()[name] for name in ("status", "scale") if name in wanted),
        scale_paths=(
            scale.get("specReplicasPath", ""),
            scale.get("statusReplicasPath", ""),
            scale.get("labelSelectorPath") or "",
        ),
        fields=(*METADATA_FIELDS, *(path.removeprefix(".") for path in selectable)),
        generation=True,
        needs_version_on_update=True,
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        verbs=_VERBS,
        custom=True,
    )


def _strategy(schema: JsonObject) -> KindStrategy:
    rules = RuleTree(schema, root=True)

    def with_rules(
        errors: list[FieldError], obj: JsonObject, old: JsonObject | None
    ) -> list[FieldError]:
        if rules.empty:
            return errors
        if hides_rules(errors):
            return [*errors, _NOT_CHECKED]
        return [*errors, *rules.validate(obj, old)]

    def errors_of(obj: JsonObject) -> list[FieldError]:
        errors = [
            *validate(obj, schema, ""),
            *embedded_errors(_content(obj), schema, ""),
            *list_type_errors(obj, schema, ""),
        ]
        return with_rules(errors, obj, None)

    def update_errors(new: JsonObject, old: JsonObject, subresource: str) -> list[FieldError]:
        if subresource == "status":
            errors = _status_errors(new, old, schema)
        else:
            errors = validate_update(new, old, schema, "")
            errors += embedded_errors(_content(new), schema, "")
        # An object whose lists had a key twice before may go on so.
        if not any(list_type_errors(old, schema, "")):
            errors += list_type_errors(new, schema, "")
        return with_rules(errors, new, old)

    status = (schema.get("properties") or EMPTY).get("status") or EMPTY

    def fill_status(obj: JsonObject) -> None:
        """Fill in the default of the status: a create body's own has been dropped."""
        if "status" not in obj:
            obj.update(with_defaults({}, {"properties": {"status": status}}))

    strategy = KindStrategy(validate=errors_of, validate_update=update_errors)
    return replace(strategy, default=fill_status) if "default" in status else strategy


def _content(obj: JsonObject) -> JsonObject:
    """The content of an object besides the fields that every object has."""
    return {
        name: value for name, value in obj.items() if name not in ("kind", "apiVersion", "metadata")
    }


def _status_errors(new: JsonObject, old: JsonObject, schema: JsonObject) -> list[FieldError]:
    """The errors of the status; the texts name its fields from there."""
    part = (schema.get("properties") or EMPTY).get("status")
    if part is None or "status" not in new:
        return []
    return [
        error
        if error.field == UNNAMED
        else replace(error, field=f"status.{error.field}" if error.field else "status")
        for error in validate_update(new["status"], old.get("status"), part, "")
    ]
