"""Texts that come from outside, as events, conditions, logs and terminals may show them.

Extenders, plugins and the API write such texts; the client, failures and reports clean them, and
whatever a command writes passes `PrintableText`.
Invariant: what is returned holds no control characters, and where it is cut, it ends with " ..."
and is valid UTF-8.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

SHOWN_BYTES: Final = 1024
"""The longest note or message of a condition, in bytes; the API refuses longer notes."""
_ELLIPSIS: Final = " ..."


def printable(text: str) -> str:
    """The text with a space for each control, format or surrogate character, and line break."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else " " for character in text)


def printable_lines(text: str) -> str:
    """Make a text printable, but keep its line breaks."""
    return "\n".join(map(printable, text.split("\n")))


def json_escaped(json: str) -> str:
    """JSON that says the same, with an escape for each character that `printable` takes out."""
    if json.isprintable():
        return json
    return "".join(
        character if character.isprintable() or character == "\n" else _escaped(character)
        for character in json
    )


def _escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def cut(text: str, limit_bytes: int = SHOWN_BYTES) -> str:
    """The text, cut between two characters so that its UTF-8 is not longer than the limit."""
    if len(text) * 4 <= limit_bytes:
        return text
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit_bytes:
        return text
    return encoded[: limit_bytes - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


def shown(text: str) -> str:
    """The text without control characters, at most 1 KiB long."""
    return cut(printable(text))


class PrintableText:
    """A text stream for people, in which each control character but a line break is a space.

    It is the one door of a command's standard output and error; `exact` is the stream behind it,
    for the sequences that a command itself writes to a terminal.
    """

    def __init__(self, exact: TextIO) -> None:
        self.exact = exact

    def write(self, text: str) -> int:
        """Write a text, and return its length."""
        self.exact.write(printable_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 as the stream has it
        return getattr(self.exact, name)


def terminal(stream: TextIO) -> TextIO:
    """The stream itself if it leads to a terminal that a command draws on, else its door."""
    exact: TextIO = getattr(stream, "exact", stream)
    return exact if stream.isatty() else stream
