"""The texts that may leave a cluster in a support bundle: names, words, known sentences, metrics.

`checks` shows names by it, `bundle` takes logs and metrics through it. Secrets hide in messages,
URLs, arguments and labels, and no pattern finds them all. So nothing is taken out: only what is
listed goes in. Invariant: of a text from outside, a name is taken over if it is made of a name's
characters, the sentence of a log line if this program has it word by word, and a value in it if it
is a short number or a name that is in the bundle anyway.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

import stellwerk
from stellwerk import __version__
from stellwerk.metrics import Metrics

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

LEFT_OUT: Final = "…"
"""Stands for what is not taken over."""
_NAME: Final = re.compile(r"(?!.*//)[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,251}[A-Za-z0-9])?")
_WORD: Final = re.compile(r"[A-Za-z]{1,64}")
_IMAGE: Final = re.compile(
    r"(?:[a-z0-9.-]{1,128}(?::[0-9]{1,5})?/)?[a-z0-9._/-]{1,255}(?::[A-Za-z0-9_.-]{1,128})?"
    r"(?:@sha256:[0-9a-f]{64})?"
)
_VERSION: Final = re.compile(r"v?[0-9][A-Za-z0-9.+-]{0,63}")
_NUMBER: Final = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?")
"""Longer numbers may be keys."""
_WORDS: Final = frozenset(
    {
        *("cannot", "get", "list", "watch", "create", "update", "patch", "delete", "bind", "read"),
        *("lease", "pod", "node", "nodes", "pods", "of", "to", "the", "API", "server", "serves"),
        *("Forbidden", "NotFound", "Conflict", "Unauthorized", "Invalid", "Timeout", "Gone"),
        *("TooManyRequests", "ServiceUnavailable", "InternalError", "NotLeader", "NotAList"),
        *("ClientConnectorError", "ClientOSError", "ServerDisconnectedError", "TimeoutError"),
        *("debug", "info", "warning", "error", __version__),
    }
)
"""Words of errors and requests that values of a log line may hold."""
_LINE: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}) (?P<level>[A-Z]{1,8}) +"
    r"(?P<logger>[A-Za-z_.]{1,100}): (?P<message>.*?)(?: \[attempt [0-9a-f-]{1,40}\])?"
)
_DUMP_LINE: Final = re.compile(r"(?!.*//)[A-Za-z0-9._/:=,; -]{1,65536}")
_TIME: Final = re.compile(r"[0-9T:.Z-]{10,32}")
_FRAME: Final = re.compile(
    r' +File ".*?(?P<file>(?:stellwerk\w*|kopf|aiohttp|asyncio)/[\w/]+\.py|/\w+\.py)", '
    r"line (?P<line>\d{1,6}), in (?P<function>[\w.<>]{1,100})"
)
_RAISED: Final = re.compile(r"(?P<kind>[A-Za-z_][\w.]{0,100}(?:Error|Exception|Warning))(?::.*)?")
_TRACEBACK: Final = "Traceback (most recent call last):"
_DIRECTIVE: Final = re.compile(r"%[-#0 +]*\d*(?:\.\d+)?[sdrfgix]")
_LOG_METHODS: Final = frozenset({"debug", "info", "warning", "error", "exception", "critical"})
_MIN_LETTERS: Final = 8
"""Letters that a sentence of the log needs beside its values, so that it is known by them."""
_MAX_LINE: Final = 4096
"""Characters of a log line that are looked at."""
_MAX_FRAME: Final = 512
"""Characters of a line of a traceback; matching a longer one costs their square."""
_MAX_METRIC_LINES: Final = 20_000
"""Lines of metrics that are taken over; an operator with 20 profiles writes about 5,000."""
_SAMPLE: Final = re.compile(
    r"(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})? (?P<value>[-+0-9.eEInfNa]{1,32})(?: \d+)?"
)
_LABEL: Final = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
_LABELS: Final = frozenset(
    {
        *("attempts", "class", "code", "discrepancy", "event", "extension_point", "for", "hint"),
        *("kind", "le", "method", "operation", "plugin", "profile", "quantile", "queue", "reason"),
        *("result", "status", "type", "verb", "version", "written", "generation", "python"),
    }
)
"""Labels whose values are words of this program, or names. `extender`, `host`, `source` and `name`
may be URLs with passwords."""
_SUFFIXES: Final = ("_bucket", "_sum", "_count", "_total", "_created")
_PROCESS: Final = ("process_", "python_")
"""Families of the Python client for Prometheus."""


def named(text: object) -> str:
    """The text if it is made of a name's characters."""
    return text if isinstance(text, str) and _NAME.fullmatch(text) else LEFT_OUT


def word(text: object) -> str:
    """The text if it is one word, as reasons of conditions are."""
    return text if isinstance(text, str) and _WORD.fullmatch(text) else LEFT_OUT


def image(text: object) -> str:
    """The text if it is a reference of an image without credentials in it."""
    return text if isinstance(text, str) and _IMAGE.fullmatch(text) else LEFT_OUT


def version(text: object) -> str:
    """The text if it is a version."""
    return text if isinstance(text, str) and _VERSION.fullmatch(text) else LEFT_OUT


def dump_line(line: str) -> str:
    """A line of a dump if it is made of names, amounts and counts."""
    return line if _DUMP_LINE.fullmatch(line) else LEFT_OUT


def log_line(line: str, known: Collection[str]) -> str:
    """Return a line of the operator's log with the parts that may be shown.

    Args:
        line: in either of the operator's formats, or of a traceback.
        known: names that are in the bundle anyway.
    """
    line = line[:_MAX_LINE]
    if line.startswith("{"):
        return _of_json(line, known)
    if line == _TRACEBACK:
        return line
    if len(line) <= _MAX_FRAME and (frame := _FRAME.fullmatch(line)) is not None:
        return f'  File "{frame["file"]}", line {frame["line"]}, in {frame["function"]}'
    if (raised := _RAISED.fullmatch(line)) is not None:
        return f"{raised['kind']}: {LEFT_OUT}"
    found = _LINE.fullmatch(line)
    if found is None:
        return LEFT_OUT
    message = _sentence(found["message"], known)
    return f"{found['time']} {found['level']} {found['logger']}: {message}"


def _of_json(line: str, known: Collection[str]) -> str:
    try:
        fields = orjson.loads(line)
    except orjson.JSONDecodeError:
        return LEFT_OUT
    time = fields.get("time")
    shown = time if isinstance(time, str) and _TIME.fullmatch(time) else LEFT_OUT
    message = _sentence(str(fields.get("message", "")), known)
    return f"{shown} {word(fields.get('level'))} {named(fields.get('logger'))}: {message}"


def _sentence(message: str, known: Collection[str]) -> str:
    """The sentence of this program that the message is, with the values that may be shown."""
    best: tuple[str, ...] | None = None
    values: list[str] = []
    for literals in _sentences():
        if best is not None and sum(map(len, literals)) <= sum(map(len, best)):
            continue
        found = _values(message, literals)
        if found is not None:
            best, values = literals, found
    if best is None:
        return LEFT_OUT
    shown = [_value(each, known) for each in values]
    return best[0] + "".join(map("".join, zip(shown, best[1:], strict=True)))


def _value(text: str, known: Collection[str]) -> str:
    """A value with those of its words that may be shown; others in a row are one sign."""
    if text in known or text in _WORDS:
        return text
    shown: list[str] = []
    for each in text.split(" "):
        bare = each.rstrip(":,;")
        if bare in known or bare in _WORDS or _NUMBER.fullmatch(bare):
            shown.append(each)
        elif shown[-1:] != [LEFT_OUT]:
            shown.append(LEFT_OUT)
    return " ".join(shown)


def _values(message: str, literals: tuple[str, ...]) -> list[str] | None:
    """The texts between the literals; None: the message is not made of them.

    In one pass from the left: no message makes it slow, as it could a regular expression.
    """
    if not message.startswith(literals[0]):
        return None
    if len(literals) == 1:
        return [] if message == literals[0] else None
    values, position = [], len(literals[0])
    for literal in literals[1:-1]:
        at = message.find(literal, position) if literal else position
        if at < 0:
            return None
        values.append(message[position:at])
        position = at + len(literal)
    end = len(message) - len(literals[-1])
    if end < position or not message.endswith(literals[-1]):
        return None
    return [*values, message[position:end]]


@cache
def _sentences() -> frozenset[tuple[str, ...]]:
    """The sentences of this program's log, each as the literals between its values."""
    found = set()
    # Where the source is not installed, no sentence is known, and none is taken over.
    for path in Path(stellwerk.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if "logger." in source:
            for text in _logged(ast.parse(source)):
                literals = tuple(each.replace("%%", "%") for each in _DIRECTIVE.split(text))
                if sum(each.isalpha() for each in "".join(literals)) >= _MIN_LETTERS:
                    found.add(literals)
    return frozenset(found)


def _logged(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        called, place = node.func, 0
        if not (isinstance(called.value, ast.Name) and called.value.id == "logger"):
            continue
        if called.attr == "log":
            place = 1
        elif called.attr not in _LOG_METHODS:
            continue
        if len(node.args) > place:
            text = node.args[place]
            if isinstance(text, ast.Constant) and isinstance(text.value, str):
                yield text.value


def metric_lines(text: str) -> Iterator[str]:
    """The samples of this program's families, with the labels that may be shown."""
    families = _families()
    for line in text.split("\n")[:_MAX_METRIC_LINES]:
        sample = _SAMPLE.fullmatch(line[:_MAX_LINE])
        if sample is None or not _is_ours(sample["name"], families):
            continue
        labels = [
            f'{key}="{_label(key, value)}"' for key, value in _LABEL.findall(sample["labels"] or "")
        ]
        shown = f"{{{','.join(labels)}}}" if labels else ""
        yield f"{sample['name']}{shown} {sample['value']}"


def _label(key: str, value: str) -> str:
    """The value of a label that may be shown; le="+Inf" is the last bucket of every histogram."""
    return value if (key, value) == ("le", "+Inf") else named(value if key in _LABELS else None)


def _is_ours(name: str, families: Collection[str]) -> bool:
    if name in families or name.startswith(_PROCESS):
        return True
    return any(name.removesuffix(each) in families for each in _SUFFIXES if name.endswith(each))


@cache
def _families() -> frozenset[str]:
    return frozenset(family.name for family in Metrics().families)
