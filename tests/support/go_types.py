"""Prints go_types.txt anew: `python -m tests.support.go_types KUBECTL`.

The types of fields stand in the struct types that a kubectl (1.34 or later) is built from.
"""

import sys
from pathlib import Path
from typing import Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.go_types import plain_go_type
from stellwerk_cluster.apimachinery.schema import types
from tests.support.go_structs import POINTER, GoField, GoProgram
from tests.support.go_walk import GoWalk, comment_of, folded
from tests.support.repository import ROOT

FILE: Final = ROOT / "operator/stellwerk_cluster/apimachinery/go_types.txt"


def printed(program: GoProgram) -> str:
    """The file without its comment."""
    walk = _Types(program)
    lines = []
    for name, fields in sorted(types().items()):
        found = walk.found.get(name, {})
        words = [
            f"{each.name}={found[each.name]}"
            for each in fields.values()
            if each.type != "any" and found.get(each.name, "") not in ("", plain_go_type(each.type))
        ]
        if words:
            lines.append(folded([name, *words]))
    return "\n".join(lines) + "\n"


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
    sys.stdout.write(comment_of(FILE) + printed(GoProgram(Path(sys.argv[1]))))
