"""The tables as blocks of lines, found by the name of their type and not read until asked for.

Called by `types`. Invariant: a block is found in one table only.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

TABLES: Final = (
    "meta",
    "core",
    "events",
    "apps",
    "batch",
    "autoscaling",
    "networking",
    "policy",
    "scheduling",
    "node",
    "storage",
    "resource",
    "coordination",
    "rbac",
    "authentication",
    "authorization",
    "apiextensions",
    "discovery",
)
"""In the order in which discovery lists the groups."""
_BLOCK: Final = re.compile(r"^([^#\s]\S*)(.*)\n((?: .*\n)*)", re.MULTILINE)


class Block(NamedTuple):
    """One block of a table: the rest of its first line, and its other lines."""

    head: str
    lines: str


class Line(NamedTuple):
    """One line of a table, without its name: words as `key=value`, and the text after the bar."""

    words: dict[str, str]
    text: str


@cache
def blocks() -> dict[str, Block]:
    """The blocks of all tables, by name.

    Raises:
        ValueError: a name stands twice.
    """
    directory = resources.files("stellwerk_cluster.schema")
    found: dict[str, Block] = {}
    for table in TABLES:
        text = directory.joinpath(f"{table}.txt").read_text("utf-8")
        for name, head, lines in _BLOCK.findall(text):
            if name in found:
                raise ValueError(f"{table}.txt: {name} stands twice")
            found[name] = Block(head, lines)
    return found


def parse_line(line: str) -> Line:
    """The words and the text of a line, whose name is already gone."""
    words, _, text = line.partition("| ")
    return Line(dict(word.partition("=")[::2] for word in words.split()), text.rstrip())
