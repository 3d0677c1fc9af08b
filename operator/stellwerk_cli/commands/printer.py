"""The console of commands: lines, tables and a progress bar, made of texts of any author.

Commands give it the answers' texts. This module is the only one that uses rich (test_printing).
Invariant: a text is shown as it is, in one line, never as markup; there is colour on a terminal
alone, and no line is wider than the terminal.
"""

import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn, TextIO

from rich.console import Console, ConsoleOptions, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text
from typing_extensions import override

from stellwerk_kube.untrusted_text import printable, printable_lines, terminal

MAX_COLUMNS: Final = 10_000
"""Width of the output where there is no terminal: what is piped keeps its lines whole, for grep."""

Part = str | tuple[str, str | Style]
"""A text, alone or with its style."""
Cell = Part | list[Part]
"""A cell of a table: one text, or several in a row."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table."""

    title: str | Sequence[str]
    """The title, in one line or in several."""
    is_number: bool = False
    """Numbers stand at the right edge."""
    folds: bool = False
    """Whether a word that is too long is broken; otherwise its end is cut off."""
    is_one_line: bool = False
    """Whether cells are never broken between words."""
    min_width: int | None = None
    """Characters that it is wide at least; None: as its cells are."""


class Printer(Console):
    """The one console of commands: a text of any author is shown as it is.

    Rich would read `[link=…]` as a link and `:skull:` as a picture. This console has both turned
    off, and takes out whatever moves a terminal, even if rich made it. The command line handles a
    closed pipe, where rich would exit with 1.
    """

    is_wide = False
    """Whether everything is shown, however wide it is."""
    max_rows: int | None = None
    """Rows of a list that there is room for; None: any number."""

    def __init__(
        self, output: TextIO, *, width: int | None = None, no_color: bool | None = None
    ) -> None:
        super().__init__(
            file=output,
            width=width,
            no_color=no_color,
            # Even with FORCE_COLOR: what is piped passes a door that takes escapes out.
            force_terminal=output.isatty(),
            markup=False,
            emoji=False,
            highlight=False,
        )

    def say(self, *parts: Part, wraps: bool = True) -> None:
        """Print one line of some parts; a line break in a text is a space.

        Args:
            parts: texts, with or without a style.
            wraps: whether the line is broken at the width of the terminal.
        """
        self.print(_joined(parts), soft_wrap=not wraps)

    def table(
        self,
        columns: Iterable[Column],
        rows: Iterable[Sequence[Cell]],
        *,
        has_titles: bool = True,
    ) -> None:
        """Print a table without borders, its titles in bold."""
        table = _table(columns, rows)
        table.show_header = has_titles
        self.print(table)

    def has_room_for(self, columns: Iterable[Column], rows: Iterable[Sequence[Cell]]) -> bool:
        """Whether a table fits the width without a break in a cell."""
        options = self.options.update(width=MAX_COLUMNS)
        return Measurement.get(self, options, _table(columns, rows)).maximum <= self.width

    @override
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # Of texts, rich makes no control segments: those are the moves of a progress bar.
            is_move = segment.control is not None
            yield segment if is_move else Segment(printable_lines(segment.text), segment.style)

    @override
    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError


def linked(text: str, url: str) -> Part:
    """A text that leads to a URL on terminals that know links."""
    return text, Style(link=url)


def _joined(parts: Iterable[Part]) -> Text:
    """Some parts as rich shows them: in one line, without markup and control characters."""
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((printable(text), style) for text, style in pairs))


def _table(columns: Iterable[Column], rows: Iterable[Sequence[Cell]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for each in columns:
        lines = [each.title] if isinstance(each.title, str) else each.title
        table.add_column(
            Text("\n".join(map(printable, lines))),
            justify="right" if each.is_number else "left",
            overflow="fold" if each.folds else "ellipsis",
            no_wrap=each.is_one_line,
            min_width=each.min_width,
        )
    for row in rows:
        # Rich would part a string by its line breaks, into what looks like other rows.
        table.add_row(*(_joined(cell if isinstance(cell, list) else [cell]) for cell in row))
    return table


def console(output: TextIO | None = None) -> Printer:
    """The console of tables: a terminal, else as wide as $COLUMNS or any line, without colour."""
    output = output or sys.stdout
    if output.isatty():
        return Printer(terminal(output))
    width = MAX_COLUMNS
    if "COLUMNS" in os.environ:
        width = shutil.get_terminal_size((MAX_COLUMNS, 0)).columns
    return Printer(output, width=width, no_color=True)


@contextmanager
def progress(steps: int) -> Iterator[Callable[[str, int, int], None]]:
    """Yield what moves a bar on the terminal, one for each step; elsewhere nothing is shown."""
    if not sys.stderr.isatty():
        yield lambda _what, _done, _of: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(sys.stderr), transient=True) as bars:
        whole = bars.add_task("workloads", total=steps)
        step = bars.add_task("")
        begun: list[str] = []

        def move(what: str, done: int, of: int) -> None:
            if what not in begun:
                begun.append(what)
                bars.update(whole, completed=max(0, len(begun) - 2))
            bars.update(step, description=printable(what), completed=done, total=of)

        yield move
