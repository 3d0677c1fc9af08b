"""/openapi/v2 in protobuf: the form in which kubectl reads it for lists of manifests.

Asked by `openapi`. Invariant: the protobuf document says what the JSON document says, as far as
openapi_messages.txt has messages for it.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import orjson
from google.protobuf import json_format

from stellwerk_cluster.apimachinery.messages import MessageSet

if TYPE_CHECKING:
    from collections.abc import Callable

    from google.protobuf.message import Message

    from stellwerk_kube.json_values import JsonObject

MEDIA_TYPE: Final = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_ASKED_FOR: Final = ("application/com.github.proto-openapi.spec.v2@v1.0+protobuf", MEDIA_TYPE)
"""Clients ask with an @ that they cannot read in an answer."""
_SAME: Final = ("description", "format", "required")
"""Members of a schema that the message calls as JSON does."""
_METHODS: Final = ("get", "put", "post", "delete", "patch")


def wants_protobuf(accept: str) -> bool:
    """Whether the first clause of an Accept header that is known names the protobuf form."""
    for clause in accept.split(","):
        media_type = clause.partition(";")[0].strip()
        if media_type in _ASKED_FOR:
            return True
        if media_type in ("application/json", "application/*", "*/*"):
            return False
    return False


def document_message(document: JsonObject) -> bytes:
    """The protobuf form of a version 2 document."""
    shape = {
        "swagger": document["swagger"],
        "info": document["info"],
        "paths": {"path": _named(document["paths"], _path_item)},
        "definitions": {"additional_properties": _named(document["definitions"], _schema)},
    }
    message = json_format.ParseDict(shape, message_class("Document")())
    return bytes(message.SerializeToString(deterministic=True))


def message_class(name: str) -> type[Message]:
    """The class of one message of openapi_messages.txt.

    Raises:
        KeyError: the file has no such message.
    """
    return _messages()[name]


@cache
def _messages() -> dict[str, type[Message]]:
    directory = resources.files("stellwerk_cluster.apiserver")
    made = MessageSet("openapi.v2")
    for line in directory.joinpath("openapi_messages.txt").read_text("utf-8").splitlines():
        name, *fields = line.split()
        if name != "#":
            made.add(name, dict(_field(word) for word in fields))
    return made.classes()


def _field(word: str) -> tuple[str, tuple[tuple[int, ...], str]]:
    name, _, rest = word.partition(":")
    type_, _, number = rest.partition("=")
    return name, ((int(number),), type_)


def _named(members: JsonObject, convert: Callable[[Any], JsonObject]) -> list[JsonObject]:
    return [{"name": name, "value": convert(value)} for name, value in members.items()]


def _schema(schema: JsonObject) -> JsonObject:
    shape: JsonObject = {name: schema[name] for name in _SAME if name in schema}
    if "$ref" in schema:
        shape["_ref"] = schema["$ref"]
    if "type" in schema:
        shape["type"] = {"value": [schema["type"]]}
    if isinstance(schema.get("items"), dict):
        shape["items"] = {"schema": [_schema(schema["items"])]}
    if schema.get("properties"):
        shape["properties"] = {"additional_properties": _named(schema["properties"], _schema)}
    values = schema.get("additionalProperties")
    if isinstance(values, dict):
        shape["additional_properties"] = {"schema": _schema(values)}
    elif values is not None:
        shape["additional_properties"] = {"boolean": bool(values)}
    return {**shape, **_extensions(schema)}


def _path_item(item: JsonObject) -> JsonObject:
    return {method: _operation(item[method]) for method in _METHODS if method in item}


def _operation(operation: JsonObject) -> JsonObject:
    parameters = [
        {"parameter": {"non_body_parameter": {"query_parameter_sub_schema": _parameter(each)}}}
        for each in operation["parameters"]
    ]
    answers = _named(operation["responses"], lambda answer: {"response": answer})
    return {
        "operation_id": operation["operationId"],
        "parameters": parameters,
        "responses": {"response_code": answers},
        **_extensions(operation),
    }


def _parameter(parameter: JsonObject) -> JsonObject:
    return {
        "in": parameter["in"],
        "name": parameter["name"],
        "description": parameter["description"],
        "type": parameter["type"],
        "unique_items": parameter["uniqueItems"],
    }


def _extensions(holder: JsonObject) -> JsonObject:
    """The x-… members: YAML inside the message, of which JSON is a part."""
    own = {name: value for name, value in holder.items() if name.startswith("x-")}
    if not own:
        return {}
    return {"vendor_extension": _named(own, lambda value: {"yaml": orjson.dumps(value).decode()})}
