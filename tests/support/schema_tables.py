"""Writes numbers and Go types into the tables of schema/: `python -m tests.support.schema_tables
KUBECTL`.

Both stand in the struct types, and their tags, that a kubectl (1.34 or later) is built from.
"""

import re
import sys
from pathlib import Path
from typing import Final

from typing_extensions import override

from stellwerk_kube.schema.decoder import plain_go_type
from tests.support.go_structs import POINTER, GoField, GoProgram
from tests.support.go_walk import GoWalk
from tests.support.repository import ROOT

FOLDER: Final = ROOT / "operator/stellwerk_kube/schema"
_LINE: Final = re.compile(r"  ([\w$-]+) (\S+)( #[\d.]+)?(.*?)( \| .*)?")
_GO: Final = re.compile(r" go=\S+")


def written(program: GoProgram) -> dict[Path, str]:
    """The tables as they should be, by file; a field without a line gets one that lacks its type.

    Raises:
        ValueError: a type has no block.
    """
    numbers, go_types = numbers_and_types(program)
    tables, blocks = {}, set()
    for path in sorted(FOLDER.glob("*.txt")):
        lines: list[str] = []
        missing: dict[str, str] = {}
        name = ""
        for line in (*path.read_text().splitlines(), "#"):
            found = _LINE.fullmatch(line)
            if found and name in numbers:
                number = missing.pop(found[1], "")
                lines.append(_line(found, number, go_types[name].get(found[1], "")))
                continue
            if not line.startswith(" "):
                lines += [f"  {field} ? #{number}" for field, number in missing.items() if number]
                name = line.partition(" ")[0]
                missing = dict(numbers.get(name, {}))
                blocks.add(name)
            lines.append(line)
        tables[path] = "\n".join(lines[:-1]) + "\n"
    if absent := sorted(numbers.keys() - blocks):
        raise ValueError(f"no block: {', '.join(absent)}")
    return tables


def numbers_and_types(
    program: GoProgram,
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """The numbers and the Go types of fields, by type and field."""
    return _Numbers(program).found, _Types(program).found


def _line(found: re.Match[str], number: str, go_type: str) -> str:
    name, type_, _, words, text = found.groups()
    follows = type_ == "any" or go_type in ("", plain_go_type(type_))
    tail = _GO.sub("", words)
    given, _, rest = tail.partition(" as=")
    go = "" if follows else f" go={go_type}"
    shown = f"{given}{go}{f' as={rest}' if rest else ''}"
    return f"  {name} {type_}{f' #{number}' if number else ''}{shown}{text or ''}"


class _Numbers(GoWalk):
    """The numbers of fields, behind those of the structs that they are embedded by."""

    @override
    def noted(self, field: GoField, before: str) -> str:
        return before + _number(field)

    @override
    def before_embedded(self, field: GoField, before: str) -> str | None:
        number = _number(field)
        return f"{before}{number}." if number else None


def _number(field: GoField) -> str:
    number = re.search(r'protobuf:"\w+,(\d+)', field.tag)
    return number[1] if number else ""


class _Types(GoWalk):
    """The types of fields, without the pointers to them."""

    @override
    def noted(self, field: GoField, before: str) -> str:
        pointed = field.type
        while self._program.kind(pointed) == POINTER:
            pointed = self._program.element(pointed)
        return self._program.name(pointed)

    @override
    def before_embedded(self, field: GoField, before: str) -> str | None:
        return ""


if __name__ == "__main__":
    for file, content in written(GoProgram(Path(sys.argv[1]))).items():
        file.write_text(content)
