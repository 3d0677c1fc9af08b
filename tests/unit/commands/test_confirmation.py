"""A terminal is asked once before a command writes; a script is not."""

import argparse
import io

import pytest
from typing_extensions import override

from stellwerk.commands.confirmation import add_write_arguments, is_confirmed, spec_difference


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_write_arguments(parser)
    return parser.parse_args(arguments)


@pytest.mark.parametrize(
    ("answer", "goes_on"),
    [("y\n", True), ("YES\n", True), ("\n", False), ("n\n", False), ("", False), ("yess\n", False)],
)
def test_a_terminal_is_asked(
    answer: str,
    *,
    goes_on: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal(answer))
    assert is_confirmed(options(), "Evict 2 pods?") is goes_on
    said = capsys.readouterr().err
    assert said.startswith("Evict 2 pods? [y/N] ")
    assert ("nothing was changed" in said) is not goes_on


@pytest.mark.parametrize("option", ["-y", "--yes"])
def test_who_has_said_yes_is_not_asked(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert is_confirmed(options(option), "Evict 2 pods?")
    assert capsys.readouterr().err == ""


def test_without_a_terminal_a_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert is_confirmed(options(), "Evict 2 pods?")


def test_the_difference_names_both_sides() -> None:
    text = spec_difference({"a": 1, "b": 2}, {"a": 1, "b": 3}, "as it is", "as it will be")
    assert text.splitlines()[:2] == ["--- as it is", "+++ as it will be"]
    assert {"-b: 2", "+b: 3"} <= set(text.splitlines())
