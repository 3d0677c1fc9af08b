"""Whether JSON has the shape that an OpenAPI document describes; only what such documents use."""

from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}


Schema = Mapping[str, Any]


def violations(value: Any, schema: Schema, named: Schema, at: str = "$") -> Iterator[str]:
    """Everything in which a value differs from its schema; properties not described are errors.

    `named`: the schemas of the document, which others refer to.
    """
    schema = _resolved(schema, named)
    if value is None and schema.get("nullable"):
        return
    if "anyOf" in schema:
        if all(any(violations(value, each, named)) for each in schema["anyOf"]):
            yield f"{at} is none of {schema['anyOf']}: {value!r}"
        return
    kind = schema.get("type")
    if kind is not None and not isinstance(value, _TYPES[kind]):
        yield f"{at} is no {kind}: {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
    if kind == "array":
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], named, f"{at}[{index}]")
    if kind == "object":
        yield from _of_object(value, schema, named, at)


def _resolved(schema: Schema, named: Schema) -> Schema:
    """The schema that a reference leads to."""
    place = schema.get("$ref")
    return schema if place is None else _resolved(named[place.rpartition("/")[2]], named)


def _of_object(value: Schema, schema: Schema, named: Schema, at: str) -> Iterator[str]:
    described, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in set(schema.get("required", ())) - value.keys():
        yield f"{at}.{name} is missing"
    for name, item in value.items():
        of_name = described.get(name, others)
        if of_name is True:
            continue
        if of_name is None or of_name is False:
            yield f"{at}.{name} is not described"
        else:
            yield from violations(item, of_name, named, f"{at}.{name}")


def described(document: Schema) -> dict[str, dict[str, str]]:
    """Path and method → the fields of body and answer with their types; ? where one may be absent.

    Names of schemas, and how they are laid out, make no difference.
    """
    named = document["components"]["schemas"]
    found: dict[str, dict[str, str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            answer = operation["responses"]["200"].get("content")
            body = operation.get("requestBody", {}).get("content")
            for what, content in (("answer", answer), ("body", body)):
                if content is not None:
                    schema = content["application/json"]["schema"]
                    fields = _fields(schema, named, "")
                    found[f"{method} {path} {what}"] = dict(sorted(fields))
    return found


def _fields(schema: Schema, named: Schema, at: str) -> Iterator[tuple[str, str]]:
    schema = _resolved(schema, named)
    for each in schema.get("anyOf", ()):
        yield from _fields(each, named, at)
    required = schema.get("required", ())
    for name, of_name in schema.get("properties", {}).items():
        path = f"{at}.{name}" if name in required else f"{at}.{name}?"
        yield path, _type(of_name, named)
        yield from _fields(of_name, named, path)
    others = schema.get("additionalProperties")
    for inner, of_inner in (("[]", schema.get("items")), (".*", others)):
        if isinstance(of_inner, Mapping):
            yield f"{at}{inner}", _type(of_inner, named)
            yield from _fields(of_inner, named, f"{at}{inner}")


def _type(schema: Schema, named: Schema) -> str:
    schema = _resolved(schema, named)
    if "anyOf" in schema:
        return " | ".join(_type(each, named) for each in schema["anyOf"])
    found = [schema.get("type", "anything"), schema.get("format", "")]
    found += map(str, schema.get("enum", [schema["const"]] if "const" in schema else ()))
    found += ["or null"] if schema.get("nullable") else []
    return " ".join(filter(None, found))
