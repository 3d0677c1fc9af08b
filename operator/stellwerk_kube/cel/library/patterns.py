"""Regular expressions: `matches` and Kubernetes' `find` and `findAll`.

Patterns run on RE2, in time linear in the text, as cel-go's do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stellwerk_kube.cel import cost
from stellwerk_kube.cel.bounded_cache import RecentlyMade
from stellwerk_kube.cel.errors import EvaluationError
from stellwerk_kube.cel.signatures import Library

if TYPE_CHECKING:
    from stellwerk_kube.cel.values import Value

PATTERNS: Final = Library()

_INSTRUCTION_BYTES: Final = 16
"""Bytes of memory for each instruction of a compiled pattern."""
_Pattern: TypeAlias = Any
"""A compiled pattern; the package that makes them has no types."""


def compiled_pattern(pattern: str) -> _Pattern:
    """The pattern, ready to search with.

    Raises:
        EvaluationError: it is no pattern of RE2.
    """
    return _patterns.of(pattern)


def _compiled(pattern: str) -> _Pattern:
    import re2  # noqa: PLC0415  (only patterns need it)

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        shown = error.args[0] if error.args else ""
        shown = shown.decode("utf-8", "replace") if isinstance(shown, bytes) else str(shown)
        raise EvaluationError(f"error parsing regexp: {shown}") from None


_patterns: Final = RecentlyMade(
    _compiled, 16 << 20, 256, lambda made: _INSTRUCTION_BYTES * int(made.programsize)
)


@PATTERNS.function(
    "matches", "(string, string) -> bool", ".(string, string) -> bool", cost=cost.matching
)
def _matches(text: str, pattern: str) -> bool:
    return compiled_pattern(pattern).search(_valid(text)) is not None


def _valid(text: str) -> str:
    """The text without lone surrogates, which UTF-8 cannot hold."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _legal(pattern: str) -> _Pattern:
    try:
        return compiled_pattern(pattern)
    except EvaluationError as error:
        raise EvaluationError(f"Illegal regex: {error}") from None


@PATTERNS.function("find", ".(string, string) -> string", cost=cost.matching)
def _find(text: str, pattern: str) -> Value:
    found = _legal(pattern).search(_valid(text))
    return found.group(0) if found else ""


@PATTERNS.function(
    "findAll",
    ".(string, string) -> list(string)",
    ".(string, string, int) -> list(string)",
    cost=cost.matching,
)
def _find_all(text: str, pattern: str, limit: int = -1) -> list[Value]:
    found: list[Value] = []
    if limit == 0:
        return found
    for each in _legal(pattern).finditer(_valid(text)):
        found.append(each.group(0))
        if len(found) == limit:
            break
    return found
