"""OpenAPI documents: as much as kubectl needs for `apply`, `explain` and its own validation.

Computed from the tables of `stellwerk_kube.schema`, the table of kinds and the schemas of
CustomResourceDefinitions, one document per group version, and kept until the table changes.
Invariant: every type that a document refers to is in that document.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import orjson

from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.apimachinery.releases import version_document
from stellwerk_cluster.apiserver.openapi_protobuf import (
    MEDIA_TYPE,
    document_message,
    wants_protobuf,
)
from stellwerk_cluster.apiserver.responses import NoPageError, etag, tagged_answer
from stellwerk_kube.schema.decoder import SCHEMA_ALTERNATIVES
from stellwerk_kube.schema.types import Field, describe_field, describe_type, types

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp import web

    from stellwerk_cluster.apimachinery.kinds import KindTable, ResourceKind
    from stellwerk_cluster.registry.custom_kinds import CustomKinds
    from stellwerk_kube.json_values import JsonObject

_PREFIX: Final = "#/components/schemas/"
_SCALARS: Final[dict[str, JsonObject]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer", "format": "int64"},
    "float": {"type": "number"},
    "Quantity": {"type": "string"},
    "IntOrString": {"type": "string", "format": "int-or-string"},
    "Time": {"type": "string", "format": "date-time"},
    "MicroTime": {"type": "string", "format": "date-time"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
    # Any JSON, and a schema or something else: these have no type, so that kubectl takes all.
    **dict.fromkeys(("JSON", *SCHEMA_ALTERNATIVES), EMPTY),
}
_OPTIONS: Final = {
    "dryRun": "All: answer as if, change nothing.",
    "fieldManager": "Name of the program that writes.",
    "fieldValidation": "Ignore, Warn or Strict: what to do about unknown fields.",
}
_OPTION_TYPE: Final[JsonObject] = {"type": "string", "uniqueItems": True}
_V2_PARAMETERS: Final[list[JsonObject]] = [
    {"name": name, "in": "query", "description": text, **_OPTION_TYPE}
    for name, text in _OPTIONS.items()
]
_V3_PARAMETERS: Final[list[JsonObject]] = [
    {"name": name, "in": "query", "description": text, "schema": _OPTION_TYPE}
    for name, text in _OPTIONS.items()
]
_VERBS: Final = {
    "post": "create",
    "put": "update",
    "patch": "patch",
    "get": "get",
    "delete": "delete",
}


class OpenApi:
    """Makes the documents under /openapi, and keeps them until the table of kinds changes."""

    def __init__(self, kinds: KindTable, custom: CustomKinds) -> None:
        """Describe built-in and custom kinds."""
        self._kinds = kinds
        self._custom = custom
        self._documents: dict[str, bytes] = {}
        self._changes = -1

    def answer(self, request: web.BaseRequest, rest: list[str]) -> web.Response:
        """The document of one path."""
        self._forget_outdated()
        match rest:
            case ["v2"] if wants_protobuf(request.headers.get("Accept", "")):
                content = self._protobuf_v2()
                return tagged_answer(request, content, MEDIA_TYPE, {"Vary": "Accept"})
            case ["v2"]:
                content = self._cached("v2", self._v2)
            case ["v3"]:
                content = self._cached("v3", self._index)
            case ["v3", "api", version]:
                content = self._cached(f"api/{version}", lambda: self._v3("", version))
            case ["v3", "apis", group, version]:
                content = self._cached(f"apis/{group}/{version}", lambda: self._v3(group, version))
            case _:
                raise NoPageError
        return tagged_answer(request, content)

    def _forget_outdated(self) -> None:
        if self._changes != self._kinds.changes:
            self._changes = self._kinds.changes
            self._documents.clear()

    def _cached(self, name: str, make: Callable[[], JsonObject]) -> bytes:
        found = self._documents.get(name)
        if found is None:
            found = self._documents[name] = orjson.dumps(make())
        return found

    def _protobuf_v2(self) -> bytes:
        found = self._documents.get("v2 protobuf")
        if found is None:
            found = self._documents["v2 protobuf"] = document_message(self._v2())
        return found

    def _index(self) -> JsonObject:
        paths = {}
        for group, versions in self._kinds.groups().items():
            for version in versions:
                name = f"apis/{group}/{version}" if group else f"api/{version}"
                content = self._cached(name, partial(self._v3, group, version))
                paths[name] = {
                    "serverRelativeURL": f"/openapi/v3/{name}?hash={etag(content).strip(chr(34))}"
                }
        return {"paths": paths}

    def _v3(self, group: str, version: str) -> JsonObject:
        schemas: JsonObject = {}
        paths: JsonObject = {}
        for row in self._kinds.served(group, version):
            self._add_schemas(row, schemas, _PREFIX)
            paths.update(_paths(row, _V3_PARAMETERS))
        return {
            "openapi": "3.0.0",
            "info": self._info(),
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def _info(self) -> JsonObject:
        version = version_document(self._kinds.release)["gitVersion"]
        return {"title": "Kubernetes", "version": version}

    def _v2(self) -> JsonObject:
        definitions: JsonObject = {}
        paths: JsonObject = {}
        for row in self._kinds:
            self._add_schemas(row, definitions, "#/definitions/")
            paths.update(_paths(row, _V2_PARAMETERS))
        return {
            "swagger": "2.0",
            "info": self._info(),
            "paths": paths,
            "definitions": definitions,
        }

    def _add_schemas(self, row: ResourceKind, schemas: JsonObject, prefix: str) -> None:
        if row.custom:
            schema = self._custom.openapi_schema(row, v2=prefix != _PREFIX)
        else:
            if row.type_name not in types():
                return
            _add_types(row.type_name, schemas, prefix)
            schema = schemas.pop(_name(row.type_name))
        identity = {"group": row.group, "version": row.version, "kind": row.kind}
        schemas[_kind_name(row)] = {**schema, "x-kubernetes-group-version-kind": [identity]}


def _kind_name(row: ResourceKind) -> str:
    group = (
        ".".join(reversed(row.group.split(".")))
        if row.custom
        else f"io.k8s.api.{row.group.partition('.')[0] or 'core'}"
    )
    return f"{group}.{row.version}.{row.kind}"


def _name(type_name: str) -> str:
    return f"io.k8s.{type_name}"


def _add_types(type_name: str, schemas: JsonObject, prefix: str) -> None:
    if _name(type_name) in schemas:
        return
    fields = types()[type_name]
    schema: JsonObject = {"type": "object", "description": describe_type(type_name)}
    schemas[_name(type_name)] = schema
    schema["properties"] = {
        field.name: _property(type_name, field, prefix) for field in fields.values()
    }
    required = [field.name for field in fields.values() if "present" in field.words]
    if required:
        schema["required"] = required
    for field in fields.values():
        if field.element in types():
            _add_types(field.element, schemas, prefix)


def _property(type_name: str, field: Field, prefix: str) -> JsonObject:
    text = describe_field(type_name, field.name)
    if field.element in types():
        inner: JsonObject = {"$ref": prefix + _name(field.element)}
        if field.type == field.element:
            return (
                {"description": text, "allOf": [inner]}
                if prefix == _PREFIX
                else {**inner, "description": text}
            )
    else:
        inner = _SCALARS[field.element]
    if field.type.startswith("["):
        schema: JsonObject = {"type": "array", "items": inner}
        if field.merges:
            schema["x-kubernetes-patch-strategy"] = "merge"
            if field.merge_key:
                schema["x-kubernetes-patch-merge-key"] = field.merge_key
    elif field.type.startswith("{"):
        schema = {"type": "object", "additionalProperties": inner}
    else:
        schema = dict(inner)
    if "retain" in field.words:
        schema["x-kubernetes-patch-strategy"] = "merge,retainKeys"
    return {"description": text, **schema}


def _paths(row: ResourceKind, write_parameters: list[JsonObject]) -> JsonObject:
    root = f"/apis/{row.group}/{row.version}" if row.group else f"/api/{row.version}"
    space = "/namespaces/{namespace}" if row.namespaced else ""
    identity = {"group": row.group, "version": row.version, "kind": row.kind}

    def operation(method: str) -> JsonObject:
        return {
            "operationId": f"{method}{row.group}{row.version}{row.kind}",
            "parameters": write_parameters if method in ("post", "put", "patch") else [],
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": method,
            "x-kubernetes-group-version-kind": identity,
        }

    one = {
        method: operation(method)
        for method in ("get", "put", "patch", "delete")
        if _VERBS[method] in row.verbs
    }
    many = {method: operation(method) for method in ("get", "post") if _VERBS[method] in row.verbs}
    return {f"{root}{space}/{row.plural}": many, f"{root}{space}/{row.plural}/{{name}}": one}
