"""CustomResourceDefinitions: their own rules, and the kinds they add while the server runs.

Listens to the collection of definitions and keeps the table of kinds in step with it. Invariant: a
definition whose condition Established is True has its versions in the table, and one that is gone
has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.admission.strategy import Strategy
from stellwerk_cluster.apiserver.columns import NAME, age_text
from stellwerk_cluster.apiserver.deletion import DEFINITION_FINALIZER
from stellwerk_cluster.apiserver.failures import Cause
from stellwerk_cluster.apiserver.kinds import (
    METADATA_FIELDS,
    SCALE,
    STATUS,
    ResourceKind,
)
from stellwerk_cluster.apiserver.objects import (
    EMPTY,
    JsonValue,
    is_terminating,
    pick,
    timestamp,
    with_value,
)
from stellwerk_cluster.apiserver.schema import decode
from stellwerk_cluster.apiserver.store import DELETED, StoreEvent
from stellwerk_cluster.apiserver.structural import hides_rules, prune, validate, with_defaults
from stellwerk_cluster.apiserver.tables import Cell, Column

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apiserver.api import Api

DEFINITIONS: Final = "customresourcedefinitions.apiextensions.k8s.io"
_ACCEPTED: Final = {
    "type": "NamesAccepted",
    "status": "True",
    "reason": "NoConflicts",
    "message": "no conflicts found",
}
_ESTABLISHED: Final = {
    "type": "Established",
    "status": "True",
    "reason": "InitialNamesAccepted",
    "message": "the initial names have been accepted",
}
_INSTALLING: Final = {**_ESTABLISHED, "status": "False", "reason": "Installing"}
_CLASH: Final = {"type": "NamesAccepted", "status": "False", "reason": "ListKindConflict"}
_NOT_ACCEPTED: Final = {
    "type": "Established",
    "status": "False",
    "reason": "NotAccepted",
    "message": "not all names are accepted",
}
_NO_NAMES: Final = {"plural": "", "kind": ""}
_NOT_CHECKED: Final = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


@dataclass(frozen=True, slots=True)
class _CustomVersion:
    """What one served version of a definition says."""

    schema: JsonObject
    columns: tuple[Column, ...]
    strategy: Strategy


class CustomKinds:
    """The kinds that definitions add."""

    def __init__(self, api: Api) -> None:
        """Follow the definitions in the store of `api`."""
        self._api = api
        self._versions: dict[tuple[str, str, str], _CustomVersion] = {}
        self._kind = api.kinds.resource("customresourcedefinitions", "apiextensions.k8s.io")
        api.store.collection(DEFINITIONS).listeners.append(self._on_definition)

    # What the verbs, rendering and OpenAPI ask.

    def decode(self, kind: ResourceKind, body: JsonObject) -> tuple[JsonObject, list[str]]:
        """The body without unknown fields and with defaults, and the paths of the unknown fields.

        Raises:
            DecodeError: the metadata is malformed.
        """
        schema = self._version(kind).schema
        unknown: list[str] = []
        metadata, unknown_metadata = decode("ObjectMeta", body.get("metadata") or {})
        content = {
            name: value
            for name, value in body.items()
            if name not in ("kind", "apiVersion", "metadata")
        }
        pruned = with_defaults(prune(content, schema, "", unknown), schema)
        return {"metadata": metadata, **pruned}, [
            *(f"metadata.{path}" for path in unknown_metadata),
            *unknown,
        ]

    def strategy(self, kind: ResourceKind) -> Strategy:
        """The rules of a custom kind."""
        return self._version(kind).strategy

    def columns(self, kind: ResourceKind) -> Sequence[Column]:
        """The table columns of a custom kind."""
        return self._version(kind).columns

    def openapi_schema(self, kind: ResourceKind) -> JsonObject:
        """The schema that OpenAPI shows: the definition's, with the fields of all objects."""
        schema = self._version(kind).schema
        common = {
            "apiVersion": {
                "type": "string",
                "description": "Group and version of the object's form.",
            },
            "kind": {"type": "string", "description": "Kind of the object."},
            "metadata": {
                "type": "object",
                "description": "Name, labels and what the server keeps about the object.",
            },
        }
        return {**schema, "properties": {**common, **(schema.get("properties") or {})}}

    def _version(self, kind: ResourceKind) -> _CustomVersion:
        return self._versions[kind.group, kind.version, kind.plural]

    # Following the definitions.

    def _on_definition(self, event: StoreEvent) -> None:
        definition = event.entry.obj
        if event.type == DELETED:
            return
        if is_terminating(definition):
            self._withdraw(definition)
        elif not _condition(definition, "NamesAccepted"):
            self._decide_on_names(definition)
        elif _condition(definition, "NamesAccepted") == "True":
            if _condition(definition, "Established") != "True":
                self._set_conditions(definition, (_ESTABLISHED,), {})
            elif (
                event.previous is None
                or event.previous.obj["spec"] != definition["spec"]
                or not self._serves(definition)
            ):
                self._serve(definition)

    def _decide_on_names(self, definition: JsonObject) -> None:
        """Accept the names of a definition, or refuse them because another kind has one of them."""
        spec = definition["spec"]
        names = spec["names"]
        clash = any(
            row.custom and (row.group, row.list_name) == (spec["group"], names["listKind"])
            for row in self._api.kinds
            if row.plural != names["plural"]
        )
        if clash:
            accepted = {"acceptedNames": {**_NO_NAMES, "plural": names["plural"]}}
            taken = {**_CLASH, "message": f'"{names["listKind"]}" is already in use'}
            self._set_conditions(definition, (taken, _NOT_ACCEPTED), accepted)
        else:
            self._set_conditions(definition, (_ACCEPTED, _INSTALLING), {"acceptedNames": names})

    def _set_conditions(
        self, definition: JsonObject, conditions: tuple[JsonObject, ...], changes: JsonObject
    ) -> None:
        now = timestamp(self._api.now())
        given = {each["type"]: {**each, "lastTransitionTime": now} for each in conditions}
        key = ("", definition["metadata"]["name"])

        def changed(obj: JsonObject) -> JsonObject:
            kept = {each["type"]: each for each in obj["status"].get("conditions") or ()}
            merged = list({**kept, **given}.values())
            return {**obj, "status": {**obj["status"], **changes, "conditions": merged}}

        self._api.modify(self._kind, key, changed)

    def _serves(self, definition: JsonObject) -> bool:
        spec = definition["spec"]
        return any(
            self._api.kinds.find(spec["group"], version["name"], spec["names"]["plural"])
            for version in spec["versions"]
        )

    def _serve(self, definition: JsonObject) -> None:
        spec = definition["spec"]
        for version in spec["versions"]:
            key = (spec["group"], version["name"], spec["names"]["plural"])
            row = _row(spec, version)
            if not version["served"]:
                self._versions.pop(key, None)
                self._api.kinds.remove(row)
                continue
            schema = (version.get("schema") or EMPTY).get("openAPIV3Schema") or EMPTY
            columns = tuple(_columns(version.get("additionalPrinterColumns")))
            self._versions[key] = _CustomVersion(schema, columns, _strategy(schema))
            self._api.kinds.add(row)

    def _withdraw(self, definition: JsonObject) -> None:
        """Delete the objects of a definition that ends, then let it go."""
        spec = definition["spec"]
        for version in spec["versions"]:
            row = _row(spec, version)
            if self._api.kinds.find(row.group, row.version, row.plural) is None:
                continue
            collection = self._api.store.collection(row.storage_name)
            for entry in collection.entries():
                self._api.store.remove(row.storage_name, entry)
            self._api.kinds.remove(row)
            self._versions.pop((row.group, row.version, row.plural), None)
        key = ("", definition["metadata"]["name"])

        def released(obj: JsonObject) -> JsonObject:
            kept = [
                each
                for each in obj["metadata"].get("finalizers") or ()
                if each != DEFINITION_FINALIZER
            ]
            return with_value(obj, ("metadata", "finalizers"), kept or None)

        self._api.modify(self._kind, key, released)


def _row(spec: JsonObject, version: JsonObject) -> ResourceKind:
    names, subresources = spec["names"], version.get("subresources") or EMPTY
    return ResourceKind(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        subresources=(
            *((STATUS,) if "status" in subresources else ()),
            *((SCALE,) if "scale" in subresources else ()),
        ),
        fields=METADATA_FIELDS,
        generation=True,
        needs_version_on_update=True,
        singular=names.get("singular", ""),
        list_kind=names.get("listKind", ""),
        custom=True,
    )


def _strategy(schema: JsonObject) -> Strategy:
    def causes_of(obj: JsonObject) -> list[Cause]:
        content = {
            name: value
            for name, value in obj.items()
            if name not in ("kind", "apiVersion", "metadata")
        }
        causes = validate(content, schema, "")
        return [*causes, _NOT_CHECKED] if _has_rules(schema) and hides_rules(causes) else causes

    return Strategy(
        validate=causes_of, validate_update=lambda new, _old, _subresource: causes_of(new)
    )


def _has_rules(schema: JsonValue) -> bool:
    if isinstance(schema, dict):
        return "x-kubernetes-validations" in schema or any(
            _has_rules(each) for each in schema.values()
        )
    return False


def _condition(definition: JsonObject, type_: str) -> str:
    for condition in (definition.get("status") or EMPTY).get("conditions") or ():
        if condition["type"] == type_:
            return str(condition["status"])
    return ""


def _columns(declared: list[JsonObject] | None) -> Iterator[Column]:
    name, type_, format_, text, priority, cell = NAME
    yield Column(name, type_, format_, text, priority, cell)
    if declared is None:
        declared = [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}]
    for each in declared:
        yield Column(
            each["name"],
            each["type"],
            each.get("format", ""),
            each.get("description")
            or f"Custom resource definition column (in JSONPath format): {each['jsonPath']}",
            each.get("priority", 0),
            _json_path_cell(each["jsonPath"], each["type"]),
        )


def _json_path_cell(path: str, type_: str) -> Cell:
    parts = tuple(re.findall(r"[^.\[\]]+", path.replace("\\.", "\0")))
    parts = tuple(part.replace("\0", ".").strip("'\"") for part in parts)

    def cell(obj: JsonObject, now: datetime) -> JsonValue:
        found = _follow(obj, parts)
        if found is None:
            return None
        if type_ == "date":
            return age_text(str(found), now)
        return found if type_ in ("integer", "number", "boolean") else _as_text(found)

    return cell


def _follow(obj: JsonValue, parts: tuple[str, ...]) -> JsonValue:
    """The value under a JSON path of names, list positions and filters `?(@.name=="value")`."""
    for position, part in enumerate(parts):
        if isinstance(obj, list):
            chosen = re.match(r"\?\(@$", part)
            if chosen or part.startswith("?("):
                return _filtered(obj, ".".join(parts[position:]))
            if not part.lstrip("-").isdigit() or not -len(obj) <= int(part) < len(obj):
                return None
            obj = obj[int(part)]
        elif isinstance(obj, dict):
            obj = obj.get(part)
        else:
            return None
    return obj


def _filtered(items: list[JsonValue], rest: str) -> JsonValue:
    match = re.match(r"\?\(@\.(\w+)\s*==\s*[\"']([^\"']*)[\"']\)\.?(.*)$", rest)
    if match is None:
        return None
    for item in items:
        if isinstance(item, dict) and str(item.get(match[1])) == match[2]:
            return pick(item, tuple(filter(None, match[3].split("."))))
    return None


def _as_text(value: JsonValue) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
