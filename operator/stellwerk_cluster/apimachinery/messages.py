"""The protobuf messages of built-in kinds: classes made from the tables.

Read by `protobuf`, which converts between them and the objects of the API. Invariant: the wire
format is that of the protobuf library; here stand only which message has which fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from stellwerk_kube.schema.types import NumberPath, types

if TYPE_CHECKING:
    from google.protobuf.descriptor_pb2 import DescriptorProto
    from google.protobuf.message import Message

PACKAGE: Final = "kubernetes"

_Kind = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "string": _Kind.TYPE_STRING,
    "bool": _Kind.TYPE_BOOL,
    "int": _Kind.TYPE_INT64,
    "float": _Kind.TYPE_DOUBLE,
    "bytes": _Kind.TYPE_BYTES,
}
_SPECIAL: Final[dict[str, dict[str, tuple[int, str]]]] = {
    "Quantity": {"string": (1, "string")},
    "Time": {"seconds": (1, "int"), "nanos": (2, "int")},
    "MicroTime": {"seconds": (1, "int"), "nanos": (2, "int")},
    "IntOrString": {"type": (1, "int"), "intVal": (2, "int"), "strVal": (3, "string")},
    "any": {"raw": (1, "bytes")},
    "JSON": {"raw": (1, "bytes")},
    "JSONSchemaPropsOrBool": {"allows": (1, "bool"), "schema": (2, "JSONSchemaProps")},
    "JSONSchemaPropsOrArray": {
        "schema": (1, "JSONSchemaProps"),
        "others": (2, "[JSONSchemaProps]"),
    },
    "JSONSchemaPropsOrStringArray": {"schema": (1, "JSONSchemaProps"), "others": (2, "[string]")},
    "Strings": {"items": (1, "[string]")},
    "TypeMeta": {"apiVersion": (1, "string"), "kind": (2, "string")},
    "Unknown": {
        "typeMeta": (1, "TypeMeta"),
        "raw": (2, "bytes"),
        "contentEncoding": (3, "string"),
        "contentType": (4, "string"),
    },
}
"""Messages that are no structs of the API; `Unknown` is the envelope of every body, `Strings` a
list inside a map.
"""


_NO_WORD: Final = re.compile(r"\W")
"""Characters that names of fields have in JSON and not in messages, such as the sign of `$ref`."""


@dataclass(frozen=True, slots=True)
class WireField:
    """One field of a message and what it is in the API's objects."""

    name: str
    """In the object."""
    attribute: str
    """In the message."""
    type: str
    """As in the tables; empty: a message whose fields the object holds itself."""


@cache
def field_numbers() -> dict[str, dict[str, NumberPath]]:
    """The numbers of fields by type and field, without types that protobuf does not have."""
    numbers = {
        name: {each.name: each.number for each in fields.values() if each.number}
        for name, fields in types().items()
    }
    return {name: found for name, found in numbers.items() if found or not types()[name]}


def has_message(type_name: str) -> bool:
    """Whether objects of a type can be written as protobuf."""
    return type_name in field_numbers()


def message_class(name: str) -> type[Message]:
    """The class of a message: a type of the tables, its list (`PodList`), or a special message.

    Raises:
        KeyError: there is no such message.
    """
    return _compiled()[0][name]


def wire_fields(full_name: str) -> dict[int, WireField]:
    """The fields of a message by number."""
    return _compiled()[1][full_name]


@cache
def _compiled() -> tuple[dict[str, type[Message]], dict[str, dict[int, WireField]]]:
    made = MessageSet(PACKAGE)
    for name, special in _SPECIAL.items():
        made.add(name, {each: ((number,), type_) for each, (number, type_) in special.items()})
    for name, numbers in field_numbers().items():
        known = types()[name]
        made.add(name, {each: (path, known[each].type) for each, path in numbers.items()})
        if "metadata" in numbers and f"{name}List" not in types():
            made.add(f"{name}List", {"metadata": ((1,), "ListMeta"), "items": ((2,), f"[{name}]")})
    return made.classes(), made.fields


class MessageSet:
    """Makes the classes of messages that refer to each other, and knows what their fields mean."""

    def __init__(self, package: str) -> None:
        """Begin without messages; `package` goes before their names."""
        self.fields: dict[str, dict[int, WireField]] = {}
        """By the full name of the message, then by number."""
        self._package = package
        # An edition, because proto2 takes strings that are no UTF-8 and proto3 knows no presence.
        self._file = descriptor_pb2.FileDescriptorProto(
            name=f"{package}.proto",
            package=package,
            syntax="editions",
            edition=descriptor_pb2.EDITION_2023,
        )
        encoding = descriptor_pb2.FeatureSet.EXPANDED
        self._file.options.features.repeated_field_encoding = encoding

    def classes(self) -> dict[str, type[Message]]:
        """The classes of all messages added so far, by name."""
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self._file)
        return {
            each.name: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f"{self._package}.{each.name}")
            )
            for each in self._file.message_type
        }

    def add(self, name: str, fields: dict[str, tuple[NumberPath, str]]) -> None:
        """Add a message whose fields have these numbers and types."""
        self._fill(self._file.message_type.add(name=name), f"{self._package}.{name}", fields)

    def _fill(
        self, message: DescriptorProto, full_name: str, fields: dict[str, tuple[NumberPath, str]]
    ) -> None:
        known = self.fields.setdefault(full_name, {})
        inline: dict[int, dict[str, tuple[NumberPath, str]]] = {}
        for name, (path, type_) in fields.items():
            number, *rest = path
            if rest:
                inline.setdefault(number, {})[name] = tuple(rest), type_
                continue
            known[number] = WireField(name, _NO_WORD.sub("_", name), type_)
            self._add_field(message, full_name, known[number], number)
        for number, inner in inline.items():
            nested = f"Inline{number}"
            self._fill(message.nested_type.add(name=nested), f"{full_name}.{nested}", inner)
            known[number] = WireField("", f"inline{number}", "")
            message.field.add(
                name=f"inline{number}",
                number=number,
                type=_Kind.TYPE_MESSAGE,
                type_name=f".{full_name}.{nested}",
                label=_Kind.LABEL_OPTIONAL,
            )

    def _add_field(
        self, message: DescriptorProto, full_name: str, wire: WireField, number: int
    ) -> None:
        field = message.field.add(name=wire.attribute, number=number, label=_Kind.LABEL_OPTIONAL)
        type_ = wire.type
        if type_.startswith("{"):
            entry = message.nested_type.add(name=f"Entry{number}")
            entry.options.map_entry = True
            key = entry.field.add(name="key", number=1, label=_Kind.LABEL_OPTIONAL)
            self._set_type(key, "string")
            value = entry.field.add(name="value", number=2, label=_Kind.LABEL_OPTIONAL)
            self._set_type(value, map_value(type_))
            field.type, field.type_name = _Kind.TYPE_MESSAGE, f".{full_name}.Entry{number}"
            field.label = _Kind.LABEL_REPEATED
            return
        if type_.startswith("["):
            field.label = _Kind.LABEL_REPEATED
        self._set_type(field, type_.strip("[]"))

    def _set_type(self, field: descriptor_pb2.FieldDescriptorProto, type_: str) -> None:
        scalar = _SCALARS.get(type_)
        if scalar is None:
            field.type, field.type_name = _Kind.TYPE_MESSAGE, f".{self._package}.{type_}"
        else:
            field.type = scalar


def map_value(type_: str) -> str:
    """The message or scalar of the values of a map; a list inside a map is a message."""
    inner = type_[1:-1]
    return "Strings" if inner.startswith("[") else inner
