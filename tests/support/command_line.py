"""The commands of `stellwerk` and their options, as the parsers know them.

Tests that hold for every command and every option walk them, so that none can be forgotten.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from stellwerk_cli.cli import build_parser


@dataclass(frozen=True)
class Argument:
    """An option or an argument that takes a value, and the command that has it."""

    command: str
    action: argparse.Action

    @property
    def name(self) -> str:
        """The longest name of an option; the word of the usage line for another argument."""
        return max(self.action.option_strings, key=len, default=self.action.dest)

    @override
    def __str__(self) -> str:
        return f"{self.command} {self.name}"


def commands() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Each command that can be run, by its words, with its parser."""
    yield from _below(build_parser(), "")


def arguments() -> list[Argument]:
    """Each option and argument with a value, of each command."""
    return [
        Argument(words, action)
        for words, parser in commands()
        for action in parser._actions  # noqa: SLF001 argparse shows its options nowhere else
        if action.nargs != 0 and not isinstance(action, argparse._SubParsersAction)  # noqa: SLF001
    ]


def _below(
    parser: argparse.ArgumentParser, words: str
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    inner = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]  # noqa: SLF001
    if not any(each.required for each in inner):
        yield words, parser
    for action in inner:
        for name, each in action.choices.items():
            yield from _below(each, f"{words} {name}".strip())
