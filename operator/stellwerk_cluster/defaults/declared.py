"""The defaults that stand in the tables: values of fields that a client leaves out.

Called through the strategies of kinds, before their own functions. Invariant: only fields that are
not there are filled in, in the order of their numbers.
"""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from stellwerk.models.schema.types import leads_to, type_block, types

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk.models.schema.types import Field


class TypeDefaults(NamedTuple):
    """The defaults of one type: values by field, and the fields whose parts have defaults."""

    values: tuple[tuple[str, Any], ...]
    """A dict is copied for each object."""
    parts: tuple[tuple[str, str, str], ...]
    """Field, type of its parts, and `[` or `{` for a list or map of them."""


@cache
def has_defaults(type_name: str) -> bool:
    """Whether any field of a type, or of the types that it leads to, has a default."""
    return type_name in types() and any(
        "default" in field.words for each in leads_to(type_name) for field in types()[each].values()
    )


def fill_defaults(type_name: str, obj: JsonObject) -> None:
    """Fill in what is missing in an object of a type, and in the objects inside."""
    plan = declared_defaults(type_name)
    for name, value in plan.values:
        if name not in obj:
            obj[name] = copy.deepcopy(value) if isinstance(value, dict) else value
    for name, element, shape in plan.parts:
        part = obj.get(name)
        if part is None:
            continue
        for each in part if shape == "[" else part.values() if shape == "{" else (part,):
            fill_defaults(element, each)


@cache
def declared_defaults(type_name: str) -> TypeDefaults:
    """The defaults of one type."""
    fields = sorted(type_block(type_name).fields.values(), key=lambda field: field.number)
    return TypeDefaults(
        tuple((field.name, _value(field)) for field in fields if "default" in field.words),
        tuple(
            (field.name, field.element, field.type[0])
            for field in fields
            if has_defaults(field.element)
        ),
    )


def _value(field: Field) -> Any:  # noqa: ANN401  (JSON)
    text = field.words["default"]
    match field.type:
        case "int":
            return int(text)
        case "bool":
            return text == "true"
        case "string":
            return text
        case _ if text[0] == "{":
            return json.loads(text)
        case _:
            raise ValueError(f"{field.name}: no default of type {field.type}")
