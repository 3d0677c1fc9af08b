"""The table of a what-if: who gets which node."""

import io
import re

import pytest

from stellwerk.answers.what_if import PlacedPod, UnplacedPod, WhatIf
from stellwerk_cli.commands.printer import Printer, console
from stellwerk_cli.commands.what_if_table import print_what_if

HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\u202egnp"


def test_what_if_says_who_lands_where_and_who_does_not() -> None:
    output = io.StringIO()
    answer = WhatIf(
        drained="n1",
        placed=[PlacedPod(pod="default/a", node="n2")],
        unplaced=[UnplacedPod(pod="default/b", message="0/1 nodes are available")],
    )
    print_what_if(answer, Printer(output, width=100))
    text = output.getvalue()
    assert "If n1 were drained" in text
    assert "default/a" in text
    assert "default/b gets no node: 0/1 nodes are available" in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_tenant_wrote_changes_nothing_on_the_terminal(is_terminal: bool) -> None:  # noqa: FBT001 as parametrized
    output = io.StringIO()
    output.isatty = lambda: is_terminal  # type: ignore[method-assign]
    answer = WhatIf(
        drained=HOSTILE,
        placed=[PlacedPod(pod=HOSTILE, node=HOSTILE)],
        unplaced=[UnplacedPod(pod=HOSTILE, message=HOSTILE)],
    )
    print_what_if(answer, console(output))
    written = re.sub("\x1b\\[[0-9;]*m", "", output.getvalue()) if is_terminal else output.getvalue()
    assert "]0;title" in written
    assert [each for each in written if not each.isprintable() and each != "\n"] == []
