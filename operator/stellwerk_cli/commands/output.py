"""Answers in the form that the user asks for: table, JSON, YAML or names; once, or on each change.

Commands call `show` with the answer's kind and table. Invariant: a table shows nothing that is not
in the answer, and what is printed for programs is the operator's answer, unchanged.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Protocol

import orjson
import yaml

from stellwerk.answers.answer import Kind, PortAnswer, codec
from stellwerk_cli.commands.printer import Printer, console
from stellwerk_cli.progress_line import waiting_for
from stellwerk_kube.clock import SystemClock
from stellwerk_kube.untrusted_text import json_escaped, printable, printable_lines

TABLES: Final = frozenset({"table", "wide"})
"""The forms for people."""
_LINES_BESIDE_ROWS: Final = 5
"""Lines of a screen that are no rows: the time, the titles, remarks, and the cursor's."""
WATCH_SECONDS: Final = 2.0
"""Time between two questions of `--watch`, after which a reader notices a change soon enough."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown(Generic[Kind]):
    """A kind of answer, its table, and the names in it."""

    kind: type[Kind]
    table: Callable[[Kind, Printer], None]
    names: Callable[[Kind], Iterable[str]]
    """Pods as NAMESPACE/NAME, other objects as KIND/NAME: each is an argument for commands."""
    as_read: "Shown[Any] | None" = None
    """The kind and table of the answer of a cluster that is read; None: they are the same."""
    as_groups: "Shown[Any] | None" = None
    """The kind and table of an answer that has groups of pods; None: there is none."""
    changes: "Callable[[], Callable[[Kind, Printer], None]] | None" = None
    """Makes a table that prints, after the first time, only the rows that are new or changed: for
    lists that are watched. None: an answer that has changed is printed as a whole."""

    def of(self, answer: Json) -> "Shown[Any]":
        """Choose the kind and table of an answer."""
        if self.as_read is not None and "read" in answer:
            return self.as_read
        return self.as_groups if self.as_groups is not None and "groups" in answer else self


class Asked(Protocol):
    """The side that answers: an operator, or a cluster that is read (`commands.door`)."""

    def progress(self) -> str:
        """The work that goes on, for the line of a command that waits."""
        ...

    async def renew(self) -> None:
        """Prepare for the next answer of a command that watches."""
        ...

    def take_lines(self) -> Iterable[str]:
        """Lines about the last answer, for standard error."""
        ...


async def show(
    ask: Callable[[], Coroutine[Any, Any, Json]],
    form: str,
    shown: Shown[Kind],
    *,
    watch: bool = False,
    door: Asked | None = None,
) -> Json:
    """Print an answer, and return it; with `watch`, again whenever it has changed.

    `door`: who is asked, if that may be a cluster that is read.

    Raises:
        MalformedAnswer: it is another kind of answer than is shown.
    """
    before: Json | None = None
    is_table = form in TABLES
    is_redrawn = watch and is_table and shown.changes is not None and sys.stdout.isatty()
    tables: dict[type, Callable[[Any, Printer], None]] = {}
    while True:
        with waiting_for("waiting for the answer" if door is None else door.progress):
            answer = await ask()
        for line in () if door is None else door.take_lines():
            sys.stderr.write(f"{printable(f'stellwerk: {line}')}\n")
        found = shown.of(answer)
        codec(found.kind).read(answer)  # what follows takes its fields, in every form
        if is_redrawn:
            _redraw(answer, form, found)
        elif _without_times(answer) != before:
            table = found.table
            if watch and is_table and found.changes is not None:
                table = tables.setdefault(found.kind, found.changes())
            elif watch and is_table and before is not None:
                sys.stdout.write(f"\n--- {_time()}\n")
            show_written(answer, form, replace(found, table=table))
        if not watch:
            return answer
        before = _without_times(answer)
        await asyncio.sleep(WATCH_SECONDS)
        if door is not None:
            await door.renew()


def _redraw(answer: Json, form: str, shown: Shown[Any]) -> None:
    """Show a list on an empty screen, under the time, with as many rows as it has room for."""
    to = console()
    to.clear()
    to.say((f"{_time()}, every {WATCH_SECONDS:.0f} s; Ctrl-C ends", "dim"))
    to.max_rows = max(1, to.height - _LINES_BESIDE_ROWS)
    to.is_wide = form == "wide"
    shown.table(codec(shown.kind).read(answer), to)
    sys.stdout.flush()


def _time() -> str:
    return SystemClock().now().astimezone().strftime("%H:%M:%S")


_RUNNING: Final = frozenset({"readAt", "recomputedAt", "roomIsKeptSeconds"})
"""Fields that are different in each answer, however deep they lie: a clock runs in them."""


def _without_times(answer: Any) -> Any:  # noqa: ANN401 any JSON
    """The answer without the running time in it; whether a clock runs is kept."""
    if isinstance(answer, Mapping):
        return {
            name: value is None if name in _RUNNING else _without_times(value)
            for name, value in answer.items()
        }
    return [_without_times(each) for each in answer] if isinstance(answer, list) else answer


def show_written(answer: Json, form: str, shown: Shown[Kind]) -> None:
    """Print an answer that is there, as JSON of the operator."""
    if form in TABLES:
        to = console()
        to.is_wide = form == "wide"
        shown.table(codec(shown.kind).read(answer), to)
    elif form == "name":
        for name in dict.fromkeys(shown.names(codec(shown.kind).read(answer))):
            sys.stdout.write(f"{printable(name)}\n")
    else:
        write_for_programs(answer, form, shown.kind.__name__)
    sys.stdout.flush()


def show_answer(answer: PortAnswer, form: str, names: Iterable[str] = ()) -> None:
    """Print an answer of another part than the operator, for programs."""
    if form == "name":
        for name in names:
            sys.stdout.write(f"{printable(name)}\n")
    else:
        kind = type(answer)
        write_for_programs(codec(kind).as_json(answer), form, kind.__name__)
    sys.stdout.flush()


API_VERSION: Final = "answers.stellwerk.dev/v1"
"""The apiVersion of the answers of commands; docs/answers.json has their schemas."""


def write_for_programs(answer: Json, form: str, kind: str) -> None:
    """Write an answer with its kind, as `json` or `yaml`; controls in it are escaped."""
    whole = {"apiVersion": API_VERSION, "kind": kind, **answer}
    if form == "json":
        text = orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode()
        sys.stdout.write(json_escaped(text) + "\n")
        return
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    if printable_lines(text) != text:  # then escapes say the same
        text = yaml.safe_dump(whole, sort_keys=False)
    sys.stdout.write(text)
