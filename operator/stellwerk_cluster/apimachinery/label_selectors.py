"""Label selectors as requests write them: `app=web,tier in (a, b),!canary`.

Called once per list, watch or deletecollection. Invariant: a text is a selector, or is refused at
the word that the API server's parser (labels.Parse, v1.36) names.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import LabelSelector, Requirement
from stellwerk_cluster.apimachinery.failures import bad_request, bad_value
from stellwerk_cluster.apimachinery.names import label_value_errors, qualified_name_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from stellwerk_cluster.apimachinery.failures import FieldError

_WORD: Final = re.compile(r"[ \t\r\n]*(==|!=|=|!|,|\(|\)|<|>|[^ \t\r\n=!,()<>]+)")
_END: Final = ""
_SYMBOLS: Final = frozenset(("=", "==", "!=", "!", ",", "(", ")", "<", ">", _END))
_OPERATORS: Final = {
    "in": "In",
    "notin": "NotIn",
    "=": "In",
    "==": "In",
    "!=": "NotIn",
    ">": "Gt",
    "<": "Lt",
}
_NAMES: Final = "in, notin, =, ==, !=, gt, lt"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class _ParseError(ValueError):
    """A text that is no selector, with what the parser says."""


def parse_labels(text: str) -> LabelSelector:
    """The selector that a text is.

    Raises:
        StatusError: it is none (400).
    """
    try:
        return LabelSelector(tuple(_requirements(_Words(text))))
    except _ParseError as error:
        raise bad_request(str(error)) from None


def _requirements(words: _Words) -> Iterator[Requirement]:
    while words.peek() != _END:
        if words.peek() in _SYMBOLS and words.peek() != "!":
            raise _ParseError(
                f"found '{words.peek()}', expected: !, identifier, or 'end of string'"
            )
        try:
            yield _requirement(words)
        except _ParseError as error:
            message = f"unable to parse requirement: {error}"
            raise _ParseError(message) from None
        separator = words.take()
        if separator not in (",", _END):
            raise _ParseError(f"found '{separator}', expected: ',' or 'end of string'")
        if separator == "," and words.peek() in _SYMBOLS - {"!"}:
            raise _ParseError(f"found '{words.peek()}', expected: identifier after ','")


class _Words:
    """The words of a selector, with a look at the next one."""

    def __init__(self, text: str) -> None:
        self._words = self._split(text)
        self._next = next(self._words, _END)

    @staticmethod
    def _split(text: str) -> Iterator[str]:
        position = 0
        while match := _WORD.match(text, position):
            yield match[1]
            position = match.end()

    def peek(self) -> str:
        return self._next

    def take(self) -> str:
        word, self._next = self._next, next(self._words, _END)
        return word


def _requirement(words: _Words) -> Requirement:
    negated = words.peek() == "!"
    if negated:
        words.take()
    key = words.take()
    if key in _SYMBOLS:
        raise _ParseError(f"found '{key}', expected: identifier")
    _check(_key_errors(key, "<nil>"))
    if negated:
        return Requirement(key, "DoesNotExist")
    if words.peek() in (",", _END):
        return Requirement(key, "Exists")
    operator = words.take()
    if operator not in _OPERATORS:
        raise _ParseError(f"found '{operator}', expected: {_NAMES}")
    values = _values(words) if operator in ("in", "notin") else {_exact_value(words)}
    _check(_value_errors(key, operator, sorted(values)))
    return Requirement(key, _OPERATORS[operator], frozenset(values))


def _exact_value(words: _Words) -> str:
    if words.peek() in (",", _END):
        return ""
    value = words.take()
    if value in _SYMBOLS:
        raise _ParseError(f"found '{value}', expected: identifier")
    return value


def _values(words: _Words) -> set[str]:
    opening = words.take()
    if opening != "(":
        raise _ParseError(f"found '{opening}' expected: '('")
    first = words.peek()
    if first == ")":
        words.take()
        return set()
    if first in _SYMBOLS and first != ",":
        raise _ParseError(f"found '{first}', expected: ',', ')' or identifier")
    found = _identifiers(words)
    words.take()
    return found


def _identifiers(words: _Words) -> set[str]:
    """The values up to the closing bracket; nothing between commas is the empty value."""
    found: set[str] = set()
    while True:
        word = words.take()
        following = words.peek()
        if word == ",":
            if not found:
                found.add("")
            if following == ")":
                return found | {""}
            if following == ",":
                words.take()
                found.add("")
        elif word in _SYMBOLS:
            raise _ParseError(f"found '{word}', expected: ',', or identifier")
        else:
            found.add(word)
            if following == ")":
                return found
            if following != ",":
                raise _ParseError(f"found '{following}', expected: ',' or ')'")


def _key_errors(key: str, field: str) -> Iterator[FieldError]:
    errors = qualified_name_errors(key)
    if errors:
        yield bad_value(field, key, "; ".join(errors))


def _value_errors(key: str, operator: str, values: list[str]) -> Iterator[FieldError]:
    if not values:
        text = "for 'in', 'notin' operators, values set can't be empty"
        yield bad_value("values", values, text)
    for position, value in enumerate(values):
        if operator in ("<", ">") and not _is_integer(value):
            text = "for 'Gt', 'Lt' operators, the value must be an integer"
            yield bad_value(f"values[{position}]", value, text)
    for position, value in enumerate(values):
        errors = label_value_errors(value)
        if errors:
            yield bad_value(f"values[{position}][{key}]", value, "; ".join(errors))


def _is_integer(text: str) -> bool:
    return _INTEGER.fullmatch(text) is not None and -(1 << 63) <= int(text) < 1 << 63


def _check(errors: Iterable[FieldError]) -> None:
    texts = [f"{each.field}: {each.message}" for each in errors]
    if texts:
        raise _ParseError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
