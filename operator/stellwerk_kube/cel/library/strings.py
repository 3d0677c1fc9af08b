"""Strings: CEL's own functions and cel-go's strings extension, version 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.library.formatting import formatted
from stellwerk_kube.cel.signatures import Library

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value

STRINGS: Final = Library()

_LOWER: Final = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_UPPER: Final = str.maketrans("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_ESCAPES: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


@STRINGS.function("contains", ".(string, string) -> bool", cost=cost.search)
def _contains(text: str, part: str) -> bool:
    return part in text


@STRINGS.function("startsWith", ".(string, string) -> bool", cost=cost.traversal)
def _starts_with(text: str, prefix: str) -> bool:
    return text.startswith(prefix)


@STRINGS.function("endsWith", ".(string, string) -> bool", cost=cost.traversal)
def _ends_with(text: str, suffix: str) -> bool:
    return text.endswith(suffix)


def _refuse(position: int) -> EvaluationError:
    return EvaluationError(f"index out of range: {position}")


@STRINGS.function("charAt", ".(string, int) -> string")
def _char_at(text: str, position: int) -> str:
    if not 0 <= position <= len(text):
        raise _refuse(position)
    return text[position : position + 1]


@STRINGS.function(
    "indexOf", ".(string, string) -> int", ".(string, string, int) -> int", cost=cost.traversal
)
def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0 or start > len(text):
        raise _refuse(start)
    return text.find(part, start)


@STRINGS.function(
    "lastIndexOf", ".(string, string) -> int", ".(string, string, int) -> int", cost=cost.traversal
)
def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if not part:
        return len(text) if start is None else start
    if start is None:
        return text.rfind(part)
    if not 0 <= start <= len(text):
        raise _refuse(start)
    return text.rfind(part, 0, start + len(part))


@STRINGS.function("lowerAscii", ".(string) -> string", cost=cost.traversal)
def _lower_ascii(text: str) -> str:
    return text.translate(_LOWER)


@STRINGS.function("upperAscii", ".(string) -> string", cost=cost.traversal)
def _upper_ascii(text: str) -> str:
    return text.translate(_UPPER)


@STRINGS.function("trim", ".(string) -> string", cost=cost.traversal)
def _trim(text: str) -> str:
    return text.strip(_SPACE)


def _replace_cost(text: str, old: str, new: str, limit: int = -1) -> int:
    found = len(text) // max(1, len(old)) + 1
    times = found if limit < 0 else min(limit, found)
    # Kubernetes charges for the text alone, and its result can be far larger than that.
    return cost.rewriting(text) + times * len(new) // 100


@STRINGS.function(
    "replace",
    ".(string, string, string) -> string",
    ".(string, string, string, int) -> string",
    cost=_replace_cost,
)
def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, max(limit, -1))


@STRINGS.function(
    "split",
    ".(string, string) -> list(string)",
    ".(string, string, int) -> list(string)",
    cost=cost.rewriting,
)
def _split(text: str, separator: str, limit: int = -1) -> list[Value]:
    if limit == 0:
        return []
    if separator:
        return list(text.split(separator, limit - 1 if limit > 0 else -1))
    if 0 < limit < len(text):
        return [*text[: limit - 1], text[limit - 1 :]]
    return list(text)


@STRINGS.function("substring", ".(string, int) -> string", cost=cost.traversal)
def _substring_from(text: str, start: int) -> str:
    if not 0 <= start <= len(text):
        raise _refuse(start)
    return text[start:]


@STRINGS.function("substring", ".(string, int, int) -> string", cost=cost.traversal)
def _substring(text: str, start: int, end: int) -> str:
    if start > end:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _refuse(start)
    if not 0 <= end <= len(text):
        raise _refuse(end)
    return text[start:end]


def _join_cost(parts: list[Value], separator: str = "") -> int:
    size = sum(len(each) for each in parts if isinstance(each, str))
    return cost.rewriting("") + (size + len(separator) * len(parts)) // 5 + 1


@STRINGS.function(
    "join", ".(list(string)) -> string", ".(list(string), string) -> string", cost=_join_cost
)
def _join(parts: list[Value], separator: str = "") -> str:
    for each in parts:
        if not isinstance(each, str):
            raise EvaluationError(f"join: invalid input: {each}")
    return separator.join(parts)


@STRINGS.function("strings.quote", "(string) -> string", cost=cost.traversal)
def _quote(text: str) -> str:
    return f'"{text.translate(_ESCAPES)}"'


def _format_cost(template: str, arguments: list[Value]) -> int:
    return cost.traversal(template) + cost.elements(arguments)


@STRINGS.function("format", ".(string, list(dyn)) -> string", cost=_format_cost)
def _format(template: str, arguments: list[Value]) -> str:
    return formatted(template, arguments)
