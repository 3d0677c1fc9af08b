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


def violations(value: Any, schema: Mapping[str, Any], at: str = "$") -> Iterator[str]:
    """Everything in which a value differs from its schema; properties not described are errors."""
    kind = schema.get("type")
    if kind is not None and not isinstance(value, _TYPES[kind]):
        yield f"{at} is no {kind}: {value!r}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is {value!r}, none of {schema['enum']}"
    if kind == "array":
        for index, item in enumerate(value):
            yield from violations(item, schema["items"], f"{at}[{index}]")
    if kind == "object":
        yield from _of_object(value, schema, at)


def _of_object(value: Mapping[str, Any], schema: Mapping[str, Any], at: str) -> Iterator[str]:
    described, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in set(schema.get("required", ())) - value.keys():
        yield f"{at}.{name} is missing"
    for name, item in value.items():
        of_name = described.get(name, others)
        if of_name is None:
            yield f"{at}.{name} is not described"
        else:
            yield from violations(item, of_name, f"{at}.{name}")


def described(document: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Schema → the paths of its fields with their types; ? behind what may be absent."""
    schemas = document["components"]["schemas"]
    return {name: dict(sorted(_fields(schemas[name], ""))) for name in sorted(schemas)}


def _fields(schema: Mapping[str, Any], at: str) -> Iterator[tuple[str, str]]:
    required = schema.get("required", ())
    for name, of_name in schema.get("properties", {}).items():
        path = f"{at}.{name}" if name in required else f"{at}.{name}?"
        yield path, _type(of_name)
        yield from _fields(of_name, path)
    for inner, of_inner in (
        ("[]", schema.get("items")),
        (".*", schema.get("additionalProperties")),
    ):
        if of_inner is not None:
            yield f"{at}{inner}", _type(of_inner)
            yield from _fields(of_inner, f"{at}{inner}")


def _type(schema: Mapping[str, Any]) -> str:
    found = [schema.get("type", "anything"), schema.get("format", "")]
    found += map(str, schema.get("enum", ()))
    found += ["or null"] if schema.get("nullable") else []
    return " ".join(filter(None, found))
