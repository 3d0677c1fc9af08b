"""One line on each type and each of its fields: descriptions.txt.

Asked by `openapi`. Invariant: the text of a field is that of its own type where the file has one,
then that of the type which its type is described like, then that of `*`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Final

ANY_TYPE: Final = "*"
"""Where fields stand that mean the same in every type."""


@dataclass(slots=True)
class TypeTexts:
    """A type's own text, the texts of its fields, and the type that has the rest of them."""

    text: str
    like: str
    fields: dict[str, str] = field(default_factory=dict)


def describe_type(type_name: str) -> str:
    """The purpose of a type; empty if the file does not say."""
    texts = described_types().get(type_name)
    return texts.text if texts else ""


def describe_field(type_name: str, field_name: str) -> str:
    """The meaning of a field of a type; empty if the file does not say."""
    described = described_types()
    own = described.get(type_name)
    for place in (type_name, own.like if own else "", ANY_TYPE):
        texts = described.get(place)
        if texts and (text := texts.fields.get(field_name)):
            return text
    return ""


@cache
def described_types() -> dict[str, TypeTexts]:
    """All texts of the file."""
    directory = resources.files("stellwerk_cluster.apiserver")
    described: dict[str, TypeTexts] = {}
    fields: dict[str, str] = {}
    for line in directory.joinpath("descriptions.txt").read_text("utf-8").splitlines():
        head, _, text = line.partition(": ")
        if not line or line.startswith("#"):
            continue
        if line.startswith("  "):
            fields[head.strip()] = text
            continue
        type_name, _, like = head.partition(" = ")
        described[type_name] = TypeTexts(text, like)
        fields = described[type_name].fields
    return described
