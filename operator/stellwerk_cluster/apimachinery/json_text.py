"""JSON as Go reads and writes it, with Go's words for what is not JSON.

Called for bodies, patches, continue tokens, and for what is stored and answered. Invariant: what Go
takes is taken here (bytes that are no UTF-8, halves of surrogate pairs), and every refusal names
the first character that Go names.
"""

from __future__ import annotations

import json
import re
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import orjson

if TYPE_CHECKING:
    from stellwerk_kube.json_values import JsonValue

_ENDS_EARLY: Final = "unexpected end of JSON input"
_TOO_DEEP: Final = "exceeded max depth"
_MAX_DEPTH: Final = 10_000
"""Levels of nesting in a body, as in Go's decoder of JSON."""
_BRACKETS_PER_STEP: Final = 1 << 16
"""Brackets whose depths are added up at a time, so that a body of brackets alone takes little
memory."""
_TEXTS_PER_STEP: Final = 12_000
"""Texts that are cut out of a body at a time: each makes an object."""
_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[{]}"))
_SPACE: Final = re.compile(rb"[ \t\r\n]*")
_PLAIN_TEXT: Final = re.compile(rb'[^"\\\x00-\x1f]*')
_DIGITS: Final = re.compile(rb"[0-9]*")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_WORDS: Final = {b"t": b"true", b"f": b"false", b"n": b"null"}
_ESCAPED: Final = b'bfnrt\\/"'
_HEX: Final = b"0123456789abcdefABCDEF"
_HEX_DIGITS: Final = 4
r"""Digits after a `\\u`."""
_MARKUP: Final = tuple(
    (sign.encode(), f"\\u{ord(sign):04x}".encode()) for sign in "<>&\u2028\u2029"
)
"""Characters that Go's encoder escapes so that a browser takes no part of a text for markup."""
_QUOTED: Final = {0x27: r"'\''", 0x22: "'\"'", 0x5C: r"'\\'"}
_NAMED: Final = {7: r"\a", 8: r"\b", 9: r"\t", 10: r"\n", 11: r"\v", 12: r"\f", 13: r"\r"}


class JsonError(ValueError):
    """A text that is not JSON; its message is Go's."""


def read_json(content: bytes) -> JsonValue:
    """The value of a text.

    Raises:
        JsonError: it is not JSON, or nested too deeply to be followed.
    """
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        _check_depth(content)
        _Scanner(content).check()
    try:
        return _whole(json.loads(content.decode("utf-8", "replace"), parse_constant=_no_number))
    except RecursionError:
        raise JsonError(_TOO_DEEP) from None
    except ValueError as error:
        raise JsonError(str(error)) from error


def go_json(value: JsonValue) -> bytes:
    """The bytes that Go's encoder writes for a value.

    Clients in Go compare the bytes of what they read with what they would write themselves, for
    example of a ControllerRevision whose template has a command with `&&`.
    """
    content = orjson.dumps(value)
    for sign, escaped in _MARKUP:
        if sign in content:  # outside of texts, JSON has none of them
            content = content.replace(sign, escaped)
    return content


def _check_depth(content: bytes) -> None:
    """Refuse a text that nests too deeply before anything follows its brackets one by one.

    Raises:
        JsonError: it does.
    """
    if content.count(b"[") + content.count(b"{") <= _MAX_DEPTH:
        return
    depth, left = 0, content
    while left:
        *outside, left = _TEXT.split(left, _TEXTS_PER_STEP)
        if len(outside) < _TEXTS_PER_STEP:
            outside, left = [*outside, left], b""
        brackets = b"".join(outside).translate(_STEPS, _NO_BRACKETS)
        for start in range(0, len(brackets), _BRACKETS_PER_STEP):
            steps = memoryview(brackets[start : start + _BRACKETS_PER_STEP]).cast("b")
            depths = list(accumulate(steps, initial=depth))
            if max(depths) > _MAX_DEPTH:
                raise JsonError(_TOO_DEEP)
            depth = depths[-1]


def _no_number(text: str) -> JsonValue:
    message = f"{text} is no number"
    raise JsonError(message)


def _whole(value: JsonValue) -> JsonValue:
    """The value with the replacement character for each half of a surrogate pair."""
    if isinstance(value, str):
        return _HALF_PAIR.sub("\ufffd", value)
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(key): _whole(each) for key, each in value.items()}
    return value


class _Scanner:
    """Goes through a text up to the first character that JSON does not have there."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def check(self) -> None:
        """Raise `JsonError` unless the whole text is one value."""
        open_brackets: list[bytes] = []
        while self._begins(open_brackets) or self._continues(open_brackets):
            pass
        if self._space():
            raise self._wrong("after top-level value")

    def _begins(self, open_brackets: list[bytes]) -> bool:
        """Take a value; whether it is an object or list whose first part comes next."""
        first = self._next()
        closing = {b"{": b"}", b"[": b"]"}.get(first)
        if closing is None:
            self._scalar(first)
            return False
        self._at += 1
        if self._next() == closing:
            self._at += 1
            return False
        open_brackets.append(closing)
        if closing == b"}":
            self._name()
        return True

    def _continues(self, open_brackets: list[bytes]) -> bool:
        """Take what follows a value; whether another one comes next."""
        while open_brackets:
            inside_object = open_brackets[-1] == b"}"
            following = self._next()
            if following not in (b",", open_brackets[-1]):
                where = "object key:value pair" if inside_object else "array element"
                raise self._wrong(f"after {where}")
            self._at += 1
            if following == b",":
                if inside_object:
                    self._name()
                return True
            open_brackets.pop()
        return False

    def _name(self) -> None:
        if self._next() != b'"':
            raise self._wrong("looking for beginning of object key string")
        self._text()
        if self._next() != b":":
            raise self._wrong("after object key")
        self._at += 1

    def _scalar(self, first: bytes) -> None:
        if first == b'"':
            self._text()
        elif first in _WORDS:
            for expected in _WORDS[first]:
                if self._here() != bytes((expected,)):
                    name = _WORDS[first].decode()
                    raise self._wrong(f"in literal {name} (expecting {chr(expected)!r})")
                self._at += 1
        elif first == b"-" or first.isdigit():
            self._number()
        else:
            raise self._wrong("looking for beginning of value")

    def _number(self) -> None:
        if self._content[self._at : self._at + 1] == b"-":
            self._at += 1
        if self._here_or_end() == b"0":
            self._at += 1
        else:
            self._digits("in numeric literal")
        if self._here_or_end() == b".":
            self._at += 1
            self._digits("after decimal point in numeric literal")
        if self._here_or_end() in (b"e", b"E"):
            self._at += 1
            if self._here() in (b"+", b"-"):
                self._at += 1
            self._digits("in exponent of numeric literal")

    def _digits(self, where: str) -> None:
        if not self._here().isdigit():
            raise self._wrong(where)
        self._skip(_DIGITS)

    def _text(self) -> None:
        self._at += 1
        while True:
            self._skip(_PLAIN_TEXT)
            match self._here():
                case b'"':
                    self._at += 1
                    return
                case b"\\":
                    self._escape()
                case _:
                    raise self._wrong("in string literal")

    def _escape(self) -> None:
        self._at += 1
        escaped = self._here()
        if escaped != b"u" and escaped not in _ESCAPED:
            raise self._wrong("in string escape code")
        self._at += 1
        for _ in range(_HEX_DIGITS if escaped == b"u" else 0):
            if self._here() not in _HEX:
                raise self._wrong("in \\u hexadecimal character escape")
            self._at += 1

    def _skip(self, pattern: re.Pattern[bytes]) -> None:
        found = pattern.match(self._content, self._at)
        self._at = found.end() if found else self._at

    def _space(self) -> bytes:
        """The character after the space here; empty at the end."""
        self._skip(_SPACE)
        return self._here_or_end()

    def _next(self) -> bytes:
        self._skip(_SPACE)
        return self._here()

    def _here(self) -> bytes:
        if not (found := self._here_or_end()):
            raise JsonError(_ENDS_EARLY)
        return found

    def _here_or_end(self) -> bytes:
        return self._content[self._at : self._at + 1]

    def _wrong(self, where: str) -> JsonError:
        return JsonError(f"invalid character {_quoted(self._content[self._at])} {where}")


def _quoted(byte: int) -> str:
    """A byte as a character between Go's quotation marks."""
    if byte in _QUOTED:
        return _QUOTED[byte]
    if byte in _NAMED:
        return f"'{_NAMED[byte]}'"
    if chr(byte).isprintable():
        return f"'{chr(byte)}'"
    return f"'\\u{byte:04x}'" if byte > 0x7F else f"'\\x{byte:02x}'"  # noqa: PLR2004  (ASCII ends)
