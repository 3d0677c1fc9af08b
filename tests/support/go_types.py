"""Prints go_types.txt anew: `python -m tests.support.go_types KUBECTL`.

The types of fields stand in the struct types that a kubectl (1.34 or later) is built from.
"""

import re
import sys
import textwrap
from pathlib import Path
from typing import Final

from stellwerk_cluster.apimachinery.go_types import plain_go_type
from stellwerk_cluster.apimachinery.kinds import built_in_kinds
from stellwerk_cluster.apimachinery.schema import types
from tests.support.field_numbers import BESIDE, OTHER_NAMES, SCALARS
from tests.support.go_structs import MAP, POINTER, SLICE, STRUCT, GoProgram
from tests.support.repository import ROOT

FILE: Final = ROOT / "operator/stellwerk_cluster/apimachinery/go_types.txt"


def printed(program: GoProgram) -> str:
    """The file without its comment."""
    walk = _Walk(program)
    for kind in built_in_kinds():
        package = f"k8s.io/api/{kind.group.partition('.')[0] or 'core'}/{kind.version}"
        if kind.group != "apiextensions.k8s.io":
            walk.add(package, kind.kind, kind.type_name)
    for name, package in BESIDE.items():
        walk.add(package, name, name)
    lines = []
    for name, fields in sorted(types().items()):
        found = walk.found.get(name, {})
        words = [
            f"{each.name}={found[each.name]}"
            for each in fields.values()
            if each.type != "any" and found.get(each.name, "") not in ("", plain_go_type(each.type))
        ]
        if words:
            text = " ".join([name, *words])
            lines.append(
                textwrap.fill(
                    text,
                    100,
                    subsequent_indent="  ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
    return "\n".join(lines) + "\n"


def comment() -> str:
    """The first lines of the present file."""
    return "".join(
        line for line in FILE.read_text().splitlines(keepends=True) if line.startswith("#")
    )


class _Walk:
    """Collects the types of fields, of types and of the types they lead to."""

    def __init__(self, program: GoProgram) -> None:
        self.found: dict[str, dict[str, str]] = {}
        self._program = program
        self._by_name = {
            (program.package(each), program.name(each).partition(".")[2]): each
            for each in program.structs()
        }

    def add(self, package: str, name: str, type_name: str) -> None:
        if type_name not in self.found:
            self.found[type_name] = {}
            self._collect(self._by_name[package, name], self.found[type_name])

    def _collect(self, struct: int, fields: dict[str, str]) -> None:
        for field in self._program.fields(struct):
            json_name = re.search(r'json:"([^",]*)', field.tag)
            if json_name is None or json_name[1] == "-":
                continue
            if field.embedded and not json_name[1]:
                self._collect(field.type, fields)
                continue
            pointed = field.type
            while self._program.kind(pointed) == POINTER:
                pointed = self._program.element(pointed)
            fields[json_name[1]] = self._program.name(pointed)
            self._lead_to(pointed)

    def _lead_to(self, type_: int) -> None:
        """Add the struct that a type is made of."""
        while self._program.kind(type_) in (POINTER, SLICE, MAP):
            type_ = self._program.element(type_)
        if self._program.kind(type_) != STRUCT:
            return
        name = self._program.name(type_).partition(".")[2]
        if name not in SCALARS:
            package = self._program.package(type_)
            self.add(package, name, OTHER_NAMES.get((package, name), name))


if __name__ == "__main__":
    sys.stdout.write(comment() + printed(GoProgram(Path(sys.argv[1]))))
