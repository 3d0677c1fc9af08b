"""The types of built-in kinds and their fields, as the tables say them.

Read by decoders, patches, field ownership, protobuf, messages and OpenAPI. Invariant: a type is
parsed once, when it is first asked for; its fields are in the order of their names, and `lines`
keeps the order of the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, TypeAlias

from typing_extensions import override

from stellwerk_kube.schema.tables import blocks, parse_line

NumberPath: TypeAlias = tuple[int, ...]
"""The number of a field; with the numbers of the messages around it if JSON writes those inline."""

ANY_TYPE: Final = "*"
"""The block of fields that mean the same in every type."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a type, as its line says."""

    name: str
    type: str
    words: dict[str, str]
    text: str
    number: NumberPath = ()
    """In protobuf; empty: the field is not written there."""

    @property
    def merges(self) -> bool:
        """Whether a strategic merge patch merges the list instead of replacing it."""
        return "merge" in self.words

    @property
    def merge_key(self) -> str:
        """The field by which a strategic merge patch tells the items of the list apart."""
        return self.words.get("merge", "")

    @property
    def keys(self) -> tuple[str, ...]:
        """The fields that tell the items of a list apart when it is applied."""
        return tuple(filter(None, self.words.get("map", "").split(",")))

    @property
    def element(self) -> str:
        """The type of one element of a list or map; otherwise the type itself."""
        return self.type.strip("[]{}")


@dataclass(frozen=True, slots=True)
class TypeBlock:
    """One type: the words and the text of its first line, and its fields."""

    words: dict[str, str]
    text: str
    lines: tuple[Field, ...]
    """In the order of the table, those that are only printed included."""
    fields: dict[str, Field]
    """By name, in the order of the names."""


class _Types(Mapping[str, dict[str, Field]]):
    """The fields of every type by name; a type is parsed when it is asked for."""

    @override
    def __getitem__(self, name: str) -> dict[str, Field]:
        if name not in self:
            raise KeyError(name)
        return type_block(name).fields

    @override
    def __contains__(self, name: object) -> bool:
        return name in blocks() and name != ANY_TYPE

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(sorted(name for name in blocks() if name[0].isalpha()))

    @override
    def __len__(self) -> int:
        return sum(1 for _ in self)


_TYPES: Final = _Types()


def types() -> Mapping[str, dict[str, Field]]:
    """All types of the tables, by name."""
    return _TYPES


@cache
def type_block(name: str) -> TypeBlock:
    """All that the tables say of a type.

    Raises:
        KeyError: there is no such type.
    """
    block = blocks()[name]
    words, text = parse_line(block.head)
    lines = tuple(_field(line) for line in block.lines.splitlines())
    named = sorted((each for each in lines if each.name[0] != "~"), key=lambda each: each.name)
    return TypeBlock(words, text, lines, {each.name: each for each in named})


def _field(line: str) -> Field:
    name, _, rest = line.strip().partition(" ")
    type_, _, rest = rest.partition(" ") if rest[:1] != "|" else ("", "", rest)
    words, text = parse_line(rest)
    number = next((word for word in words if word[0] == "#"), "")
    words.pop(number, None)
    path = tuple(int(part) for part in number[1:].split(".")) if number else ()
    return Field(name, type_, words, text, path)


@cache
def leads_to(type_name: str) -> frozenset[str]:
    """A type and all types that its fields, and theirs, are made of."""
    found, left = {type_name}, [type_name]
    while left:
        elements = {field.element for field in types()[left.pop()].values()} & blocks().keys()
        left += elements - found
        found |= elements
    return frozenset(found)


def is_atomic(type_name: str) -> bool:
    """Whether the values of a type have one owner as a whole."""
    return "atomic" in type_block(type_name).words


def describe_type(type_name: str) -> str:
    """The purpose of a type; empty if the tables do not say."""
    return type_block(type_name).text if type_name in types() else ""


def describe_field(type_name: str, field_name: str) -> str:
    """The meaning of a field of a type; empty if the tables do not say.

    The nearest text is taken: that of the type's own line, of the type which it is described like,
    or of `*`.
    """
    like = type_block(type_name).words.get("like", "") if type_name in types() else ""
    for place in (type_name, like, ANY_TYPE):
        field = type_block(place).fields.get(field_name) if place in blocks() else None
        if field is not None and field.text:
            return field.text
    return ""
