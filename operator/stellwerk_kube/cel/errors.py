"""The two ways an expression fails: it does not compile, or its evaluation does.

Raised in this package, caught by those who carry expressions. Invariant: the texts are cel-go's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


class CelError(Exception):
    """An expression failed; the text says how."""


class EvaluationError(CelError):
    """An operation has no result for these values; `&&` and `||` may absorb it."""


class CostLimitError(EvaluationError):
    """The evaluation used up what it may cost; nothing absorbs this."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


NO_SUCH_OVERLOAD: Final = "no such overload"


@dataclass(frozen=True, slots=True)
class Issue:
    """One thing that is wrong with an expression, and where."""

    offset: int
    """Characters before the place."""
    text: str

    def shown(self, source: str) -> str:
        """The issue with its line and a mark below the place."""
        before = source[: self.offset]
        line = before.count("\n")
        column = self.offset - (before.rfind("\n") + 1)
        shown = source.split("\n")[line].replace("\t", " ")
        narrow, wide = ".", "．"  # noqa: RUF001  (cel-go pads wide characters with wide dots)
        columns = (narrow if ord(each) < _FIRST_WIDE_CHARACTER else wide for each in shown[:column])
        mark = "".join(columns)
        return f"ERROR: <input>:{line + 1}:{column + 1}: {self.text}\n | {shown}\n | {mark}^"


_FIRST_WIDE_CHARACTER: Final = 0x80
"""The first character beyond ASCII, which cel-go takes for two columns wide when it marks a
place."""


class CompileError(CelError):
    """An expression is no CEL, or has operations that its types do not allow."""

    def __init__(self, source: str, issues: list[Issue]) -> None:
        """Show each issue with its place in `source`."""
        ordered = sorted(issues, key=lambda issue: issue.offset)
        super().__init__("\n".join(issue.shown(source) for issue in ordered))
