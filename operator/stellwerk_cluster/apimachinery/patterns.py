"""Patterns of schemas, on RE2 as Go's regexp is: in time linear in the text, whatever they say.

Called by `structural` and where definitions are checked. Invariant: a pattern that RE2 cannot run
is refused with the definition that holds it, in the words of Go's regexp, and matches nothing.
"""

from __future__ import annotations

from typing import Final

from stellwerk.cel.errors import EvaluationError
from stellwerk.cel.library.patterns import compiled_pattern

_PREFIX: Final = "error parsing regexp: "
_GO_WORDS: Final = {
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}
"""What RE2 says, and Go's package of the same syntax."""


def pattern_error(pattern: str) -> str:
    """The error of a pattern, in Go's words; empty if there is none."""
    try:
        compiled_pattern(pattern)
    except EvaluationError as error:
        said, _, part = str(error).removeprefix(_PREFIX).partition(": ")
        if part in {"(?<=", "(?<!"}:
            # What begins as a named group is one to Go, if with a name that it may not have.
            said, rest = "invalid named capture group", pattern[pattern.index(part) :]
            part = rest[: rest.find(">") + 1] or rest
        return f"{_PREFIX}{_GO_WORDS.get(said, said)}: `{part}`"
    return ""


def matches(pattern: str, text: str) -> bool:
    """Whether a pattern is found in a text."""
    try:
        compiled = compiled_pattern(pattern)
    except EvaluationError:
        return False
    return compiled.search(text.encode("utf-8", "replace").decode()) is not None
