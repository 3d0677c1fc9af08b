"""docs/compatibility.md says what the tables of `models.compatibility` say."""

from collections.abc import Iterator

import pytest

from stellwerk.models.compatibility import GATES, ROWS, Effect, Gate, Release, Row
from tests.support.repository import ROOT

PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
EFFECTS = {
    Effect.RULE: "a rule above",
    Effect.SETTING: "what is served, and the profile, decide",
    Effect.NONE: "none",
    Effect.LEFT_OUT: "left out",
}


def gate_row(gate: Gate) -> str:
    """The row of a gate, as the page has it."""
    return f"| {gate.name} | {' | '.join(_states(gate))} | {EFFECTS[gate.effect]} |"


def _states(gate: Gate) -> Iterator[str]:
    for release in Release:
        step = gate.at(release)
        if step is None:
            yield "–"
        else:
            locked = ", locked" if step.locked else ""
            yield f"{step.stage}, {'on' if step.on else 'off'}{locked}"


def rule_row(row: Row) -> str:
    """The row of a rule, as the page has it."""
    begins = f"gate {row.gate}" if row.gate else f"{row.since}"
    return f"| {row.rule} | {row.sort} | {begins} |"


@pytest.mark.parametrize("gate", GATES.values(), ids=lambda gate: gate.name)
def test_a_gate_stands_on_the_page_as_it_is(gate: Gate) -> None:
    assert gate_row(gate) in PAGE.splitlines()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule.name)
def test_a_rule_stands_on_the_page_as_it_is(row: Row) -> None:
    assert rule_row(row) in PAGE.splitlines()


def test_nothing_else_stands_in_the_tables() -> None:
    expected = {*map(gate_row, GATES.values()), *map(rule_row, ROWS)}
    headed = [line for line in PAGE.splitlines() if line.startswith("| ")]
    found = {line for line in headed if line.startswith(tuple(f"| {name} |" for name in GATES))}
    found |= {line for line in headed if " | behaviour | " in line or " | mends | " in line}
    assert found == expected
