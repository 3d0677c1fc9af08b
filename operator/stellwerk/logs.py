"""The log: its levels, its two formats, and the attempt that a line belongs to.

The command line calls `configure`, the operator's port `set_level`, the scheduling coroutine sets
`ATTEMPT`. Invariant: a record is one line of text or one JSON object, whatever its message holds;
only a traceback adds lines to the text.
"""

import json
import logging
import secrets
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO, TypeAlias

from typing_extensions import override

Format: TypeAlias = Literal["text", "json"]

TRACE: Final = 5
"""Below debug: every verdict and every score of every attempt."""
logging.addLevelName(TRACE, "TRACE")
LEVELS: Final = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_DEBUG_VERBOSITY: Final = 4
_TRACE_VERBOSITY: Final = 6
"""The number of kube-scheduler's levels from which on they are debug and trace here."""

ATTEMPT: ContextVar[int] = ContextVar("attempt", default=0)
"""The number of the attempt that is under way here; 0: none. A task has that of its maker."""
_PROCESS: Final = secrets.token_hex(2)
"""Tells the attempts of this process from those of the one before it, and of other replicas."""

_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_OWN_FIELDS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def attempt_id(number: int) -> str:
    """Return the name of an attempt, unlike any of another process."""
    return f"{_PROCESS}-{number}"


class TextFormatter(logging.Formatter):
    """Time, level, logger and message, and in square brackets the attempt."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    @override
    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = _escaped(record.message)
        line = super().formatMessage(record)
        number = ATTEMPT.get()
        return f"{line} [attempt {attempt_id(number)}]" if number else line


def _escaped(text: str) -> str:
    """The text with an escape for each character that a terminal might obey."""
    if text.isprintable():
        return text
    return "".join(
        each
        if each.isprintable()
        else _NAMED.get(each) or each.encode("unicode_escape", "surrogatepass").decode()
        for each in text
    )


class JsonFormatter(logging.Formatter):
    """One object a line; what a call gives as `extra` are members of it."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, object] = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if number := ATTEMPT.get():
            line["attempt"] = attempt_id(number)
        line |= {key: given for key, given in vars(record).items() if key not in _OWN_FIELDS}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        written = json.dumps(line, ensure_ascii=False, default=str)
        if written.isprintable():
            return written
        return json.dumps(line, default=str).replace("\x7f", "\\u007f")


def configure(level: str, form: Format = "text", stream: TextIO | None = None) -> None:
    """Log to standard error from now on, unless the process has a log already."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=LEVELS[level], handlers=[handler])


def level() -> str:
    """Return the name of the level from which on is logged."""
    present = logging.getLogger().getEffectiveLevel()
    return next((name for name, number in LEVELS.items() if number >= present), "error")


def set_level(text: str) -> str:
    """Log from another level on: one of ours, or a verbosity as kube-scheduler counts it.

    Returns the level's name.

    Raises:
        ValueError: it is neither.
    """
    name = text.strip().lower()
    if name.isascii() and name.isdecimal():
        number = min(int(name[:4]), 10)
        name = (
            "trace"
            if number >= _TRACE_VERBOSITY
            else "debug"
            if number >= _DEBUG_VERBOSITY
            else "info"
        )
    if name not in LEVELS:
        raise ValueError(f"the level is one of {', '.join(LEVELS)}, or a verbosity from 0 to 10")
    logging.getLogger().setLevel(LEVELS[name])
    return name
