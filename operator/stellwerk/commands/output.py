"""JSON, YAML or tables, once or whenever they change.

Commands that ask the operator print through it. Invariant: what is printed for programs is the
operator's answer, unchanged.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import orjson
import yaml
from rich.console import Console

from stellwerk.commands.tables import console

WATCH_SECONDS: Final = 2.0

Answer = Mapping[str, Any]
Show = Callable[[Answer, Console], None]


async def show(
    ask: Callable[[], Awaitable[Answer]], form: str, table: Show, *, watch: bool = False
) -> None:
    """Print an answer; with `watch`, again whenever it has changed, until interrupted."""
    before: Answer | None = None
    while True:
        answer = await ask()
        if _without_times(answer) != before:
            _print(answer, form, table)
        if not watch:
            return
        before = _without_times(answer)
        await asyncio.sleep(WATCH_SECONDS)


def _without_times(answer: Answer) -> Answer:
    """The answer less what is another in each: when it was computed."""
    verdicts = {k: v for k, v in (answer.get("verdicts") or {}).items() if k != "recomputedAt"}
    return {**answer, "verdicts": verdicts}


def _print(answer: Answer, form: str, table: Show) -> None:
    if form == "json":
        sys.stdout.write(orjson.dumps(answer, option=orjson.OPT_INDENT_2).decode() + "\n")
    elif form == "yaml":
        yaml.safe_dump(dict(answer), sys.stdout, sort_keys=False, allow_unicode=True)
    else:
        table(answer, console())
    sys.stdout.flush()
