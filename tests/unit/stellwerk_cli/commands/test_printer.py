"""The console: its width, its colour, and a pipe that is closed."""

import io
import os
from collections.abc import Iterable, Sequence

import pytest

from stellwerk_cli.commands.printer import Column, Printer, console


def test_the_width_that_the_environment_names_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert console(io.StringIO()).width == 57


def test_a_closed_pipe_is_left_to_the_command_line() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        with pytest.raises(BrokenPipeError):
            console(closed).print("x" * 100_000)
        # What is left in the buffer has somewhere to go when the file is closed.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writing)
        os.close(nowhere)


def test_colour_is_for_terminals_whatever_the_environment_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    piped = io.StringIO()
    console(piped).say(("web", "bold"))
    assert piped.getvalue() == "web\n"


QUEUE = (
    ("ml/training-worker-7d4b9c8f6d-x2x7k", "unschedulable", "12m", "1000", "3"),
    ("default/a", "gated", "2s", "0", "1"),
)
REJECTED = ("NodeResourcesFit, PodTopologySpread, TaintToleration", "SchedulingGates")
TITLES = ("POD", "QUEUE", "FOR", "PRIORITY", "ATTEMPTS", "REJECTED BY")


def printed(width: int, columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[str]:
    output = io.StringIO()
    Printer(output, width=width, no_color=True).table(columns, rows)
    return output.getvalue().splitlines()


@pytest.mark.parametrize("width", [80, 100, 132, 10_000])
def test_no_word_of_a_table_is_broken(width: int) -> None:
    columns = [Column(title, folds=True, is_one_line=title != TITLES[-1]) for title in TITLES]
    rows = [(*row, rejected) for row, rejected in zip(QUEUE, REJECTED, strict=True)]
    lines = printed(width, columns, rows)
    assert max(map(len, lines)) <= width
    assert not any(line.endswith(" ") for line in lines), "a file gets no blanks at the ends"
    shown = {word for line in lines for word in line.split()}
    for name in REJECTED[0].split():
        assert name in shown, "a plugin's name is whole where it has room"
    pod = "".join(word for line in lines[1:4] for word in line.split()[:1])
    assert "ml/training-worker-" in pod


def test_a_plugin_is_broken_at_capitals_alone() -> None:
    columns = [Column("NODES", is_number=True), Column("PLUGIN"), Column("WHY", folds=True)]
    why = "node(s) didn't match pod topology spread constraints (missing required label)"
    lines = printed(40, columns, [("12", "PodTopologySpread", why)])
    assert max(map(len, lines)) <= 40
    assert [line[7:20].strip() for line in lines[1:4]][:2] == ["PodTopology", "Spread"]
    assert why in " ".join(line[20:].strip() for line in lines[1:])


def test_a_word_that_has_no_room_is_folded_and_not_lost() -> None:
    lines = printed(20, [Column("A", folds=True), Column("B", folds=True)], [("x" * 30, "y" * 9)])
    assert max(map(len, lines)) <= 20
    assert "".join("".join(lines[1:]).split()).count("x") == 30
