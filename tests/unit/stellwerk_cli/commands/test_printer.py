"""The console: its width, its colour, and a pipe that is closed."""

import io
import os

import pytest

from stellwerk_cli.commands.printer import console


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
