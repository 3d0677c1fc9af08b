"""The entries of troubleshooting.md, which docs/troubleshooting.md is, and the one for a message.

The page shows them, `explain` and the site link to them. What `python -m
stellwerk.models.troubleshooting` prints is troubleshooting.html, to which links of a terminal lead.
Invariant: an entry has one anchor, made of how it begins, wherever it is shown.
"""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import quote

DOCUMENT: Final = Path(__file__).with_suffix(".md")
PAGE: Final = Path(__file__).with_suffix(".html")
"""The entries as a page: unlike a text, a browser opens it at an anchor."""
SITE: Final = "STELLWERK_DOCS"
"""The environment variable that names the address at which the site is served, if it is."""
ANY: Final = "…"
"""Stands in a message for what differs."""
_CODE: Final = re.compile(r"`([^`]+)`")
_CELLS: Final = re.compile(r"(?<!\\)\|")
_NO_LETTER: Final = re.compile(r"[^a-z0-9]+")
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]*\)")
_MAX_ANCHOR_CHARACTERS: Final = 60
"""Characters of a message in the address of its section."""
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem }
td, th { text-align: left; vertical-align: top; padding: .25rem .75rem }
td { border-bottom: 1px solid #d8dee4 }
:target { background: #fff8c5 }
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of a table."""

    messages: Sequence[str]
    """Those of its first cell."""
    cells: Sequence[str]
    """As text, without marks."""
    plugins: frozenset[str]
    """The plugins that say so; empty: it is no message of one."""

    @property
    def anchor(self) -> str:
        """The name of its place on a page."""
        return anchor(self.messages[0] if self.plugins else self.cells[0])

    def says(self, message: str) -> int:
        """The letters of the longest pattern that a message is of; 0: it is of none."""
        fitting = [each for each in self.messages if _pattern(each).fullmatch(message)]
        return max((len(each.replace(ANY, "")) for each in fitting), default=0)


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its table."""

    heading: str
    columns: Sequence[str]
    entries: Sequence[Entry]


def address(entry: Entry) -> str:
    """The place where an entry can be read: on the site that `SITE` names, or in this package."""
    site = os.environ.get(SITE, "").rstrip("/")
    if site:
        return f"{quote(site, safe=':/')}/troubleshooting.html#{entry.anchor}"
    return f"{PAGE.as_uri()}#{entry.anchor}"


def as_page() -> str:
    """The entries as an HTML page, each row with its anchor."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Troubleshooting</title>',
        f"<style>{_STYLE}</style></head><body><h1>Troubleshooting</h1>",
    ]
    for section in sections():
        titles = "".join(f"<th>{escape(title)}</th>" for title in section.columns)
        parts.append(f"<h2>{escape(section.heading)}</h2><table><tr>{titles}</tr>")
        for entry in section.entries:
            cells = "".join(f"<td>{escape(cell)}</td>" for cell in entry.cells)
            parts.append(f'<tr id="{escape(entry.anchor)}">{cells}</tr>')
        parts.append("</table>")
    return "\n".join([*parts, "</body></html>", ""])


def anchor(text: str) -> str:
    """The name of the place of an entry that begins so."""
    return _NO_LETTER.sub("-", text.lower()).strip("-")[:_MAX_ANCHOR_CHARACTERS].strip("-") or "any"


@cache
def sections() -> tuple[Section, ...]:
    """Every table of the document."""
    found = []
    for part in DOCUMENT.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, rest = part.partition("\n")
        rows = [_cells(line) for line in rest.split("\n") if line.startswith("|")]
        columns = [_plain(cell) for cell in rows[0]]
        has_plugins = "plugin" in columns
        found.append(Section(heading, columns, tuple(_entries(rows[2:], has_plugins=has_plugins))))
    return tuple(found)


def _entries(rows: Sequence[Sequence[str]], *, has_plugins: bool) -> Iterator[Entry]:
    for cells in rows:
        messages = _CODE.findall(cells[0]) or [_plain(cells[0])]
        plugins = frozenset(cells[1].split(", ")) if has_plugins else frozenset[str]()
        yield Entry(messages, [_plain(cell) for cell in cells], plugins)


def entry_of(message: str, plugin: str) -> Entry | None:
    """The entry for a plugin's message; None: there is none, as for plugins that people add."""
    own = [each for section in sections() for each in section.entries if plugin in each.plugins]
    best = max(own, key=lambda each: each.says(message), default=None)
    return best if best is not None and best.says(message) else None


def _pattern(message: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, message.split(ANY))), re.DOTALL)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELLS.split(line.strip().strip("|"))]


def _plain(cell: str) -> str:
    """A cell without its marks."""
    return _LINK.sub(r"\1", cell).replace("`", "").replace(r"\|", "|")


if __name__ == "__main__":
    sys.stdout.write(as_page())
