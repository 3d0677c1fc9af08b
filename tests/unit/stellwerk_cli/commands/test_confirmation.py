"""A terminal is asked once before a command writes; a script has to say `--yes`."""

import argparse
import io

import pytest
from typing_extensions import override

from stellwerk_cli.cli import build_parser
from stellwerk_cli.commands.confirmation import (
    CHANGING,
    add_write_arguments,
    is_confirmed,
    spec_difference,
)
from stellwerk_kube.errors import ConfigurationError


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


def test_without_a_terminal_and_without_yes_a_command_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    with pytest.raises(ConfigurationError, match=r"Evict 2 pods\? .* confirm with --yes"):
        is_confirmed(options(), "Evict 2 pods?")
    assert is_confirmed(options("--yes"), "Evict 2 pods?")


def commands_that_ask(parser: argparse.ArgumentParser, words: str = "") -> set[str]:
    """Each command with `--yes`, by its words."""
    found = {words} if "--yes" in parser._option_string_actions else set()  # noqa: SLF001
    for action in parser._actions:  # noqa: SLF001 argparse shows its commands nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for name, inner in action.choices.items():
                found |= commands_that_ask(inner, f"{words} {name}".strip())
    return found


def test_every_command_that_changes_something_is_listed_and_knows_yes() -> None:
    asking = commands_that_ask(build_parser())
    listed = {each: next(name for name in asking if each.startswith(name)) for each in CHANGING}
    assert set(listed.values()) == asking
    for words in CHANGING:
        assert not build_parser().parse_args(words.split()).yes


def test_the_difference_names_both_sides() -> None:
    text = spec_difference({"a": 1, "b": 2}, {"a": 1, "b": 3}, "as it is", "as it will be")
    assert text.splitlines()[:2] == ["--- as it is", "+++ as it will be"]
    assert {"-b: 2", "+b: 3"} <= set(text.splitlines())
