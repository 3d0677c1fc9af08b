"""JSON, YAML or tables, once or whenever they change.

Commands that ask the operator print through it. Invariant: what is printed for programs is the
operator's answer, unchanged.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic

import orjson
import yaml
from rich.console import Console

from stellwerk.commands.tables import console
from stellwerk.models.answers.answer import Kind, codec

WATCH_SECONDS: Final = 2.0

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shown(Generic[Kind]):
    """A kind of answer, and the table of it."""

    kind: type[Kind]
    table: Callable[[Kind, Console], None]


async def show(
    ask: Callable[[], Awaitable[Json]], form: str, shown: Shown[Kind], *, watch: bool = False
) -> None:
    """Print an answer; with `watch`, again whenever it has changed, until interrupted.

    Raises:
        MalformedAnswer: it is another kind of answer than is shown.
    """
    before: Json | None = None
    while True:
        answer = await ask()
        if _without_times(answer) != before:
            show_written(answer, form, shown)
        if not watch:
            return
        before = _without_times(answer)
        await asyncio.sleep(WATCH_SECONDS)


def _without_times(answer: Json) -> Json:
    """The answer less what is another in each: when it was computed."""
    verdicts = {k: v for k, v in (answer.get("verdicts") or {}).items() if k != "recomputedAt"}
    return {**answer, "verdicts": verdicts}


def show_written(answer: Json, form: str, shown: Shown[Kind]) -> None:
    """Print an answer that is there, as JSON of the operator."""
    if form == "json":
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif form == "yaml":
        yaml.safe_dump(dict(answer), sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        shown.table(codec(shown.kind).read(answer), console())
    sys.stdout.flush()
