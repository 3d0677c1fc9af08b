"""The tables as blocks of lines: types by their names, kinds in their order, and what kinds share.

Called by `types`, by commands that check manifests, and by `kinds`, `strategy` and `columns` of the
embedded cluster. Invariant:
the block of a type is found in one table only, and its lines are not read until they are asked for.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

TABLES: Final = (
    "meta",
    "core",
    "apiregistration",
    "apps",
    "events",
    "authentication",
    "authorization",
    "autoscaling",
    "batch",
    "certificates",
    "networking",
    "policy",
    "rbac",
    "storage",
    "admissionregistration",
    "apiextensions",
    "scheduling",
    "coordination",
    "node",
    "discovery",
    "resource",
    "flowcontrol",
)
"""In the order in which discovery lists the groups."""
_OWN_WORDS: Final = ("since", "until", "off", "off_since")
"""Words that a version does not share with the one that its objects are stored in."""
_BLOCK: Final = re.compile(r"^([^#\s]\S*)(.*)\n((?: .*\n)*)", re.MULTILINE)


class Block(NamedTuple):
    """One block of a table: the rest of its first line, and its other lines."""

    head: str
    lines: str


class StoredType(NamedTuple):
    """One kind of stored objects, and the type in the tables that its objects have."""

    api_version: str
    kind: str
    type_name: str
    namespaced: bool


class TableLine(NamedTuple):
    """One line of a table: its words as `key=value`, and the text after the bar."""

    words: dict[str, str]
    text: str


@dataclass(frozen=True, slots=True)
class KindBlock:
    """One kind as its block says it."""

    api_version: str
    plural: str
    kind: str
    words: dict[str, str]
    """The words about serving it."""
    rules: dict[str, str]
    """The functions that a write goes through, by name."""
    columns: tuple[str, ...]
    """Its columns, a line each."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All blocks, by what they are about."""

    types: dict[str, Block]
    kinds: tuple[KindBlock, ...]
    subresources: dict[str, dict[str, str]]
    columns: tuple[str, ...]
    """Columns that kinds share, a line each."""


@cache
def tables() -> Tables:
    """The blocks of all tables."""
    directory = resources.files("stellwerk_kube.schema")
    texts = (directory.joinpath(f"{table}.txt").read_text("utf-8") for table in TABLES)
    return parse_tables("".join(texts))


def stored_block(block: KindBlock, among: Iterable[KindBlock]) -> KindBlock | None:
    """The block of the version that a block's objects are stored in; None: they are in its own.

    Raises:
        ValueError: there is no such version of the kind.
    """
    version = block.words.get("stored")
    if version is None:
        return None
    group = block.api_version.rpartition("/")[0]
    for each in among:
        if (each.api_version, each.plural) == (f"{group}/{version}", block.plural):
            return each
    raise ValueError(f"{block.plural}: no version {version}")


def words_of(block: KindBlock, among: Iterable[KindBlock]) -> dict[str, str]:
    """The words of a block; one that is stored in another version has those of that as well."""
    stored = stored_block(block, among)
    if stored is None:
        return block.words
    return {**{w: v for w, v in stored.words.items() if w not in _OWN_WORDS}, **block.words}


@cache
def object_types() -> tuple[StoredType, ...]:
    """The kinds whose objects are stored, with their types, in the order of the tables."""
    blocks_of_kinds = [block for block in tables().kinds if block.plural != "*"]
    found = [(block, words_of(block, blocks_of_kinds)) for block in blocks_of_kinds]
    return tuple(
        StoredType(
            block.api_version,
            block.kind,
            words.get("schema", block.kind),
            words.get("namespaced") != "no",
        )
        for block, words in found
        if "computed" not in words
    )


def blocks() -> dict[str, Block]:
    """The blocks of types, by name."""
    return tables().types


def parse_tables(text: str) -> Tables:
    """The blocks of a text like that of the tables.

    Raises:
        ValueError: a type stands twice, or a kind does not have apiVersion, resource and name.
    """
    types: dict[str, Block] = {}
    kinds: list[KindBlock] = []
    subresources: dict[str, dict[str, str]] = {}
    columns: tuple[str, ...] = ()
    for name, head, lines in _BLOCK.findall(text):
        match name:
            case "kind":
                kinds.append(_kind(head.split(), lines.splitlines()))
            case "subresource":
                words = parse_line(head).words
                subresources[next(iter(words))] = dict(list(words.items())[1:])
            case "columns":
                columns = tuple(lines.splitlines())
            case _ if name in types:
                raise ValueError(f"{name} stands twice")
            case _:
                types[name] = Block(head, lines)
    return Tables(types, tuple(kinds), subresources, columns)


def _kind(place: list[str], lines: list[str]) -> KindBlock:
    words: dict[str, str] = {}
    rules: dict[str, str] = {}
    columns = []
    for line in lines:
        found = parse_line(line)
        match next(iter(found.words)):
            case "column":
                columns.append(line.replace("  column ", "  ", 1))
            case "rules":
                rules |= found.words
            case "warning":
                words["warning"] = found.text
            case _:
                words |= found.words
    rules.pop("rules", None)
    api_version, plural, kind = place
    return KindBlock(api_version, plural, kind, words, rules, tuple(columns))


def parse_line(line: str) -> TableLine:
    """The words and the text of a line."""
    words, _, text = line.partition("| ")
    return TableLine(dict(word.partition("=")[::2] for word in words.split()), text.rstrip())
