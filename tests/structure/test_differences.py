"""docs/differences.md states nothing that no test shows: each row of its tables has one."""

import re
import tomllib
from collections.abc import Iterator
from typing import Final

import pytest

from stellwerk.metrics import Metrics
from stellwerk.serving.exposition import exposition
from tests.support.repository import ROOT

PAGE: Final = (ROOT / "docs" / "differences.md").read_text(encoding="utf-8")
SHOWN_BY: Final[dict[str, dict[str, list[str]]]] = tomllib.loads(
    (ROOT / "tests" / "structure" / "differences.toml").read_text(encoding="utf-8")
)
"""Table → the beginning of a row → the tests that show it."""
_RULER: Final = re.compile(r"^\|(-+\|)+$")
_CODE: Final = re.compile(r"`([^`]+)`")


def rows() -> Iterator[str]:
    """The rows of the tables, without their heads."""
    lines = PAGE.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("| ") and not _RULER.match(following):
            yield line.removeprefix("| ")


ROWS: Final = list(rows())
BEGINNINGS: Final = {
    beginning: tests for table in SHOWN_BY.values() for beginning, tests in table.items()
}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[:60])
def test_a_row_is_held_to_a_test(row: str) -> None:
    found = [beginning for beginning in BEGINNINGS if row.startswith(beginning)]
    assert len(found) == 1, f"{found}: name a test in tests/structure/differences.toml"


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_the_tests_that_show_a_row_exist(beginning: str) -> None:
    assert sum(row.startswith(beginning) for row in ROWS) == 1
    for named in BEGINNINGS[beginning]:
        file, _, test = named.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert re.search(rf"^(async )?def {test}\(", text, re.MULTILINE), named


@pytest.mark.parametrize("beginning", SHOWN_BY["metrics"])
def test_a_metric_that_the_page_leaves_out_is_not_exposed_and_what_stands_for_it_is(
    beginning: str,
) -> None:
    (row,) = (row for row in ROWS if row.startswith(beginning))
    left_out, why = row.strip(" |").split(" | ")
    exposed = set(re.findall(r"^# TYPE (\S+)", exposition(Metrics()).decode(), re.MULTILINE))
    for name in _CODE.findall(left_out):
        prefix = name.removesuffix("…")
        assert not any(
            each == name or (prefix != name and each.startswith(prefix)) for each in exposed
        ), name
    for name in _CODE.findall(why):
        prefix = name.removesuffix("…")
        assert any(each.startswith(prefix) for each in exposed), name
