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
