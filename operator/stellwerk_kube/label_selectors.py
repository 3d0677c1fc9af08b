"""Label selectors as requests write them: `app=web,tier in (a, b),!canary`.

Called by the embedded API for each list, watch and deletecollection, and by commands for `-l`.
Invariant: a text is a selector, or is refused at the word that the API server's parser
(labels.Parse, v1.36) names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from stellwerk_kube.names import is_label_value, is_qualified_name
from stellwerk_kube.selectors import LabelSelector, Requirement, parse_integer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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
COMPARISONS: Final = ("<", ">")
"""The operators whose value is an integer."""


class LabelSelectorError(ValueError):
    """A text that is no selector, with what the parser says."""


def parse_selector_text(text: str, check: RequirementCheck | None = None) -> LabelSelector:
    """Return the selector that a text is.

    Raises:
        LabelSelectorError: it is none.
    """
    return LabelSelector(tuple(_requirements(_Words(text), check or _PLAIN)))


def _requirements(words: _Words, check: RequirementCheck) -> Iterator[Requirement]:
    while words.peek() != _END:
        if words.peek() in _SYMBOLS and words.peek() != "!":
            raise LabelSelectorError(
                f"found '{words.peek()}', expected: !, identifier, or 'end of string'"
            )
        try:
            yield _requirement(words, check)
        except LabelSelectorError as error:
            message = f"unable to parse requirement: {error}"
            raise LabelSelectorError(message) from None
        separator = words.take()
        if separator not in (",", _END):
            raise LabelSelectorError(f"found '{separator}', expected: ',' or 'end of string'")
        if separator == "," and words.peek() in _SYMBOLS - {"!"}:
            raise LabelSelectorError(f"found '{words.peek()}', expected: identifier after ','")


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


def _requirement(words: _Words, check: RequirementCheck) -> Requirement:
    negated = words.peek() == "!"
    if negated:
        words.take()
    key = words.take()
    if key in _SYMBOLS:
        raise LabelSelectorError(f"found '{key}', expected: identifier")
    _check(check.key_errors(key))
    if negated:
        return Requirement(key, "DoesNotExist")
    if words.peek() in (",", _END):
        return Requirement(key, "Exists")
    operator = words.take()
    if operator not in _OPERATORS:
        raise LabelSelectorError(f"found '{operator}', expected: {_NAMES}")
    values = _values(words) if operator in ("in", "notin") else {_exact_value(words)}
    _check(check.value_errors(key, operator, sorted(values)))
    return Requirement(key, _OPERATORS[operator], frozenset(values))


def _exact_value(words: _Words) -> str:
    if words.peek() in (",", _END):
        return ""
    value = words.take()
    if value in _SYMBOLS:
        raise LabelSelectorError(f"found '{value}', expected: identifier")
    return value


def _values(words: _Words) -> set[str]:
    opening = words.take()
    if opening != "(":
        raise LabelSelectorError(f"found '{opening}' expected: '('")
    first = words.peek()
    if first == ")":
        words.take()
        return set()
    if first in _SYMBOLS and first != ",":
        raise LabelSelectorError(f"found '{first}', expected: ',', ')' or identifier")
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
            raise LabelSelectorError(f"found '{word}', expected: ',', or identifier")
        else:
            found.add(word)
            if following == ")":
                return found
            if following != ",":
                raise LabelSelectorError(f"found '{following}', expected: ',' or ')'")


def _check(errors: Iterable[str]) -> None:
    texts = list(errors)
    if texts:
        raise LabelSelectorError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def key_errors(key: str) -> Iterator[str]:
    """Yield what is wrong with the key of a requirement."""
    if not is_qualified_name(key):
        yield f'"{key}" is not a label key'


def value_errors(key: str, operator: str, values: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with the values of a requirement."""
    if not values:
        yield f"{key} {operator}: the set of values is empty"
    for value in values:
        if operator in COMPARISONS and parse_integer(value) is None:
            yield f'{key} {operator}: "{value}" is not an integer'
        elif not is_label_value(value):
            yield f'{key} {operator}: "{value}" is not a label value'


@dataclass(frozen=True, slots=True)
class RequirementCheck:
    """The messages of a parser about keys and values that no label may have."""

    key_errors: Callable[[str], Iterable[str]] = key_errors
    value_errors: Callable[[str, str, Sequence[str]], Iterable[str]] = value_errors


_PLAIN: Final = RequirementCheck()
