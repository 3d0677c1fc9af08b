"""The console of commands: lines, tables and a progress bar, made of texts of any author.

Commands give it the answers' texts. This module is the only one that uses rich (test_printing).
Invariant: a text is shown as it is, in one line, never as markup; there is colour on a terminal
alone, and no line is wider than the terminal.
"""

import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NoReturn, TextIO

from rich.cells import cell_len
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
        self._show(_joined(parts), wraps=wraps)

    def table(
        self,
        columns: Iterable[Column],
        rows: Iterable[Sequence[Cell]],
        *,
        has_titles: bool = True,
    ) -> None:
        """Print a table without borders, its titles in bold."""
        table = _table(columns, rows, self.width)
        table.show_header = has_titles
        self._show(table)

    def _show(self, shown: RenderableType, *, wraps: bool = True) -> None:
        """Print something; in a file no line ends with the blanks that fill it up."""
        if self.is_terminal:
            self.print(shown, soft_wrap=not wraps)
            return
        with self.capture() as captured:
            self.print(shown, soft_wrap=not wraps)
        self.file.writelines(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1])
        self.file.flush()

    def has_room_for(self, columns: Iterable[Column], rows: Iterable[Sequence[Cell]]) -> bool:
        """Whether a table fits the width without a break in a cell."""
        options = self.options.update(width=MAX_COLUMNS)
        table = _table(columns, rows, MAX_COLUMNS)
        return Measurement.get(self, options, table).maximum <= self.width

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


def _joined(parts: Iterable[Part], width: int = MAX_COLUMNS) -> Text:
    """Some parts as rich shows them: in one line, without markup and control characters.

    Names that are wider than `width` are broken between their words.
    """
    pairs = ((part, "") if isinstance(part, str) else part for part in parts)
    return Text.assemble(*((_broken(printable(text), width), style) for text, style in pairs))


_WORD: Final = re.compile(r"\S+")
_PLUGIN: Final = re.compile(r"(?:[A-Z][a-z0-9]*){2,}[,:]?")
"""A name as plugins have them: several words, each with a capital."""
_CAPITALS: Final = re.compile(r"[A-Z]+(?![a-z])[,:]?|[A-Z][a-z0-9]+[,:]?")
_SIGNS: Final = re.compile(r"[^/.-]*[/.-]|[^/.-]+")
"""The parts of a name of Kubernetes, each with the sign behind it."""
_GAP: Final = 2
"""Blanks between two columns."""


def _parts(word: str, *, also_at_signs: bool) -> list[str]:
    """The parts of a word between which a line may be broken: at capitals, or behind signs."""
    if _PLUGIN.fullmatch(word):
        return _CAPITALS.findall(word)
    return _SIGNS.findall(word) if also_at_signs else [word]


def _broken(text: str, width: int) -> str:
    """A text with line breaks in words that are wider than `width`, between their parts."""
    if len(text) <= width:
        return text
    return _WORD.sub(lambda found: _in_lines(found[0], width), text)


def _in_lines(word: str, width: int) -> str:
    if cell_len(word) <= width:
        return word
    lines = [""]
    for part in _parts(word, also_at_signs=True):
        if lines[-1] and cell_len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def _table(columns: Iterable[Column], rows: Iterable[Sequence[Cell]], width: int) -> Table:
    """A table of at most `width` columns of the terminal, without a break inside a word if it can.

    Rich alone takes from the widest columns as much as is missing, whatever their words are.
    """
    columns = list(columns)
    # Rich would part a string by its line breaks, into what looks like other rows.
    cells = [[cell if isinstance(cell, list) else [cell] for cell in row] for row in rows]
    widths = _widths(columns, cells, width)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP // 2))
    for place, each in enumerate(columns):
        lines = [each.title] if isinstance(each.title, str) else each.title
        table.add_column(
            Text("\n".join(map(printable, lines))),
            justify="right" if each.is_number else "left",
            overflow="fold" if each.folds else "ellipsis",
            no_wrap=each.is_one_line and widths is None,
            width=None if widths is None else widths[place],
            min_width=each.min_width if widths is None else None,
        )
    for row in cells:
        limits = widths or [MAX_COLUMNS] * len(row)
        table.add_row(*(_joined(cell, limit) for cell, limit in zip(row, limits, strict=False)))
    return table


def _widths(
    columns: Sequence[Column], cells: Sequence[Sequence[list[Part]]], width: int
) -> list[int] | None:
    """The widths of columns in which no word is broken; None: all have room, or words have none.

    Names are broken behind their signs only if the table is too wide without that.
    """
    room = width - _GAP * (len(columns) - 1)
    texts = list[list[str]]()
    for place, column in enumerate(columns):
        titles = [column.title] if isinstance(column.title, str) else [*column.title]
        shown = (_joined(row[place]).plain for row in cells if place < len(row))
        texts.append([*map(printable, titles), *shown])
    natural = [max(map(cell_len, each)) for each in texts]
    if sum(natural) <= room:
        return None
    for also_at_signs in (False, True):
        least = [
            whole
            if column.is_one_line and not also_at_signs
            else max(
                cell_len(part)
                for text in each
                for word in text.split() or [""]
                for part in _parts(word, also_at_signs=also_at_signs)
            )
            for column, each, whole in zip(columns, texts, natural, strict=True)
        ]
        if sum(least) <= room:
            return _shared(natural, least, room)
    return None


def _shared(natural: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """The least widths, with the room that is left: first to the columns that lack least."""
    widths, spare = [*least], room - sum(least)
    order = sorted(range(len(least)), key=lambda place: natural[place] - least[place])
    for done, place in enumerate(order):
        more = min(natural[place] - least[place], spare // (len(order) - done))
        widths[place] += more
        spare -= more
    return widths


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
