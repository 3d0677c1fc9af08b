"""The report on an observed scheduler."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from stellwerk.answers.answer import codec
from stellwerk.answers.decisions import DecisionsPage
from stellwerk.answers.observed import ObservedPage
from stellwerk_cli.cli import main
from stellwerk_cli.commands import operator_port
from stellwerk_cli.commands.listings import print_decisions
from stellwerk_cli.commands.observe import (
    NOTHING_OBSERVED,
    print_report,
    shown_observed,
)
from stellwerk_cli.commands.port_arguments import PortAddress
from stellwerk_cli.commands.printer import Printer
from stellwerk_kube.json_values import JsonObject
from tests.support.observed_answers import (
    DIFFERS,
    FOUND_NONE,
    REJECTED,
    counts,
    observed_profile,
)


def report(width: int = 80, **fields: object) -> list[str]:
    """The lines of the report on one profile."""
    return printed([observed_profile(**fields)], width)


def printed(items: list[dict[str, object]], width: int = 80) -> list[str]:
    output = io.StringIO()
    print_report(codec(ObservedPage).read({"items": items}), Printer(output, width=width))
    return output.getvalue().splitlines()


def test_shares_stand_by_day_with_their_sum() -> None:
    lines = report()
    at = next(number for number, line in enumerate(lines) if line.startswith("DAY"))
    assert [" ".join(line.split()) for line in lines[at - 1 : at + 4]] == [
        "WE FOUND NOT COM-",
        "DAY BINDINGS EQUAL SAMPLED DIFFERS NONE PARABLE SUM",
        "2026-11-22 204 98.0 % 0.0 % 1.5 % 0.0 % 0.5 % 100.0 %",
        "2026-11-21 1,000 97.0 % 0.0 % 1.0 % 0.1 % 1.9 % 100.0 %",
        "all 1,204 97.2 % 0.0 % 1.1 % 0.1 % 1.7 % 100.0 %",
    ]


@pytest.mark.parametrize("width", [80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, report(width))) <= width


def test_reasons_have_their_bindings_and_points() -> None:
    lines = [" ".join(line.split()) for line in report(140)]
    assert "NodeResourcesFit 12 +15.0 its scores" in lines
    assert "TaintToleration 1 node(s) had untolerated taint(s)" in lines


def test_a_shadow_has_the_sentence_that_its_regret_is_of_one_step() -> None:
    text = " ".join(report())
    assert "Shadow packing chose another node in 80 of 120 decisions" in text
    assert "A shadow's regret is of one step" in text
    assert "regret" not in " ".join(report(shadows=None))


def test_a_profile_without_a_comparison_says_so() -> None:
    zero = dict.fromkeys(("equal", "sampled", "differs", "foundNone", "notComparable"), 0)
    lines = report(
        compared=0, counts=zero, days=[], reasons=[], incomparable=[], comparisons=[], latency=None
    )
    assert "No binding has been compared yet." in lines
    assert not any(line.startswith("DAY") for line in lines)


def test_nothing_observed_says_what_observes() -> None:
    assert " ".join(printed([])) == NOTHING_OBSERVED


def test_names_are_the_pods_whose_bindings_differ() -> None:
    found = codec(ObservedPage).read({"items": [observed_profile()]})
    assert [*shown_observed().names(found)] == [
        each["pod"] for each in (DIFFERS, REJECTED, FOUND_NONE)
    ]


def test_decisions_list_the_bindings_of_observed_schedulers() -> None:
    page = codec(DecisionsPage).read({"total": 0, "items": [], "observed": [DIFFERS, REJECTED]})
    output = io.StringIO()
    print_decisions(page, Printer(output, width=120))
    titles, *rows = (line.split(maxsplit=3) for line in output.getvalue().splitlines())
    assert titles[:3] == ["POD", "NODE", "AGE"]
    assert [(row[0], row[1], row[3].split(maxsplit=2)) for row in rows] == [
        ("default/web-7", "n1", ["differs", "n3", "NodeResourcesFit +15"]),
        (
            "default/db-0",
            "n1",
            ["differs", "n3", "TaintToleration: node(s) had untolerated taint(s)"],
        ),
    ]


@pytest.mark.parametrize(
    ("by_class", "status"),
    [((5, 0, 0, 0, 0), 0), ((4, 1, 0, 0, 2), 0), ((4, 0, 1, 0, 0), 1), ((4, 0, 0, 1, 0), 1)],
)
def test_with_exit_code_a_difference_ends_the_report_with_1(
    by_class: tuple[int, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Port:
        async def ask_json(self, path: str) -> JsonObject:
            asked.append(path)
            return {"items": [observed_profile(counts=counts(*by_class))]}

    @asynccontextmanager
    async def open_port(address: PortAddress) -> AsyncIterator[Port]:
        assert address.url == "http://127.0.0.1:1"
        yield Port()

    monkeypatch.setattr(operator_port, "open_port", open_port)
    words = ["observe", "report", "web", "--url", "http://127.0.0.1:1"]
    assert main(words) == 0
    assert main([*words, "--exit-code"]) == status
    assert asked == ["/observed?limit=1000&profile=web"] * 2
