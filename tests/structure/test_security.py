"""The table in docs/security-findings.md: it is what tests have measured within their bounds."""

import re

import pytest

from tests.support.findings import BOUNDS, FINDINGS, PAGE, documented, read
from tests.support.repository import ROOT


def test_the_page_has_a_row_for_each_finding_as_it_was_measured() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == documented(page, read()), "python -m tests.support.findings --render"
    assert [int(each) for each in re.findall(r"^\| (\d+): ", page, re.MULTILINE)] == [*range(1, 21)]


def test_each_bound_was_measured_by_a_test_of_its_finding_and_held() -> None:
    measured = read()["measured"]
    assert measured.keys() == BOUNDS.keys()
    for name, each in measured.items():
        (finding,) = [found for found in FINDINGS.values() if name in found.bounds]
        assert each["test"] in finding.tests, name
        assert each["value"] <= BOUNDS[name].most, name


@pytest.mark.parametrize("named", sorted({each for row in FINDINGS.values() for each in row.tests}))
def test_each_test_is_there(named: str) -> None:
    file, _, name = named.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
