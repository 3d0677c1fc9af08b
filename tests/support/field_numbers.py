"""Prints field_numbers.txt anew: `python -m tests.support.field_numbers KUBECTL`.

The numbers stand in the tags of the struct types that a kubectl (1.34 or later) is built from.
"""

import re
import sys
from pathlib import Path
from typing import Final

from typing_extensions import override

from tests.support.go_structs import GoField, GoProgram
from tests.support.go_walk import GoWalk, comment_of, folded
from tests.support.repository import ROOT

FILE: Final = ROOT / "operator/stellwerk_cluster/apimachinery/field_numbers.txt"


def printed(program: GoProgram) -> str:
    """The file without its comment."""
    lines = []
    for name, fields in sorted(_Numbers(program).found.items()):
        ordered = sorted(fields.items(), key=lambda item: [int(n) for n in item[1].split(".")])
        lines.append(folded([name, *(f"{field}={number}" for field, number in ordered)]))
    return "\n".join(lines) + "\n"


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


if __name__ == "__main__":
    sys.stdout.write(comment_of(FILE) + printed(GoProgram(Path(sys.argv[1]))))
