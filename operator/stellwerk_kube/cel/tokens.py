"""The tokens of an expression, and the values of its literals.

Called by `parser`, which decides what tokens may follow each other. Invariant: a token is the
longest text that is one, as in cel-cpp's lexer; time is linear in the text, whatever is in it.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from stellwerk_kube.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

_ESCAPE: Final = r"""\\(?:[abfnrtv"'`?\\]|[xX]H{2}|uH{4}|UH{8}|[0-3][0-7]{2})""".replace(
    "H", "[0-9a-fA-F]"
)
"""A backslash with a letter or sign, two, four or eight hexadecimal digits, or three octal ones."""

# The possessive `++` and `*+` never go back, so a string without an end costs one pass over it.
_STRINGS: Final = (
    rf'"""(?:[^\\"]++|"(?!"")|{_ESCAPE})*+"""',
    rf"'''(?:[^\\']++|'(?!'')|{_ESCAPE})*+'''",
    rf'"(?:[^\\"\n\r]++|{_ESCAPE})*+"',
    rf"'(?:[^\\'\n\r]++|{_ESCAPE})*+'",
)
_RAW_STRINGS: Final = (r'""".*?"""', r"'''.*?'''", r'"[^"\n\r]*+"', r"'[^'\n\r]*+'")
_EXPONENT: Final = r"[eE][+-]?\d+"
_TOKENS: Final = {
    "space": r"(?:[ \t\r\n\f]++|//[^\n]*+)++",
    # Prefixes before names, of which they could be the beginning.
    "raw": rf"[bB]?[rR](?:{'|'.join(_RAW_STRINGS)})",
    "string": rf"[bB]?(?:{'|'.join(_STRINGS)})",
    "name": r"[a-zA-Z_][a-zA-Z0-9_]*",
    "quoted": r"`[a-zA-Z0-9_.\-/ ]+`",
    # The longer number first: `1.5` is no `1`, `1u` no `1`.
    "float": rf"\d+\.\d+(?:{_EXPONENT})?|\d+{_EXPONENT}|\.\d+(?:{_EXPONENT})?",
    "uint": r"(?:0x[0-9a-fA-F]+|\d+)[uU]",
    "int": r"0x[0-9a-fA-F]+|\d+",
    "sign": r"==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}]",
}
"""The kinds of tokens in the order in which they are tried; the first that fits is taken."""
_PATTERN: Final = re.compile(
    "|".join(f"(?P<{kind}>{pattern})" for kind, pattern in _TOKENS.items()), re.ASCII | re.DOTALL
)
_BROKEN_PATTERN: Final = re.compile(
    rf"""(?:"(?:[^\\"\n\r]|{_ESCAPE})*+|'(?:[^\\'\n\r]|{_ESCAPE})*+)"""
    r"(?:\\(?:[xXuU][0-9a-fA-F]*|[0-3][0-7]?)?)?|`[a-zA-Z0-9_.\-/ ]*|[=&|]"
)
"""The right part of a token that is wrong; the message shows it with one character more."""

_KEYWORDS: Final = {"in": "sign", "true": "constant", "false": "constant", "null": "constant"}
_CONSTANTS: Final = {"true": True, "false": False, "null": None}


class Token(NamedTuple):
    """A word, sign or literal, and its place."""

    kind: str
    """A kind of `_TOKENS`, or `constant`, `end` after the last token, `unknown` where none fits."""
    text: str
    at: int


def tokens(source: str) -> list[Token]:
    """The tokens of a text without space; the last one is `end` or `unknown`."""
    found: list[Token] = []
    at = 0
    while at < len(source):
        match = _PATTERN.match(source, at)
        if match is None:
            # The parser meets this token and refuses it, unless something before it is wrong.
            broken = _BROKEN_PATTERN.match(source, at)
            end = broken.end() if broken else at
            found.append(Token("unknown", source[at : end + 1], at))
            return found
        kind, text = match.lastgroup or "", match[0]
        if kind == "name":
            kind = _KEYWORDS.get(text, kind)
        if kind != "space":
            found.append(Token(kind, text, at))
        at = match.end()
    found.append(Token("end", "<EOF>", at))
    return found


# --- literals -----------------------------------------------------------------------------------

_MAX_DIGITS: Final = 20
"""Digits of the largest number, 2⁶⁴ - 1, without zeros before them."""
_ESCAPES: Final = re.compile(_ESCAPE)
_SIMPLE_ESCAPES: Final = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}
_MAX_CODE_POINT: Final = 0x10FFFF
"""The last character of Unicode."""
_SURROGATES: Final = range(0xD800, 0xE000)


def value_of(literal: Token, sign: str = "") -> object:
    """The value of a constant, number or string; `sign`: a `-` before the number.

    Raises:
        ValueError: it has none; the text is cel-cpp's.
    """
    kind, text, _ = literal
    if kind == "constant":
        return _CONSTANTS[text]
    if kind == "float":
        return float(sign + text)
    return _integer(kind, text, sign) if kind in ("int", "uint") else _string(kind, text)


def _integer(kind: str, text: str, sign: str) -> int:
    is_hex = text.startswith("0x")
    digits = text.rstrip("uU").removeprefix("0x").lstrip("0") or "0"
    # The time of int() grows faster than a decimal number, and it refuses thousands of digits.
    value = int(sign + digits, 16 if is_hex else 10) if len(digits) <= _MAX_DIGITS else None
    lowest, highest = (0, MAX_UINT) if kind == "uint" else (MIN_INT, MAX_INT)
    if value is None or not lowest <= value <= highest:
        raise ValueError(f"invalid {'hex ' if is_hex else ''}{kind} literal")
    return Uint(value) if kind == "uint" else value


def _string(kind: str, text: str) -> str | bytes:
    is_bytes = text[0] in "bB"
    text = text.lstrip("bBrR")
    width = 3 if text.startswith(('"""', "'''")) else 1
    quote, body = text[:width], text[width:-width]
    if "\r" in body:
        body = body.replace("\r\n", "\n").replace("\r", "\n")
    if kind == "raw":
        # cel-cpp takes the last backslash for one that escapes the quote.
        if (len(body) - len(body.rstrip("\\"))) % 2:
            what = "bytes" if is_bytes else "string"
            raise ValueError(f"Invalid {what} literal: String must end with {quote}")
        return body.encode() if is_bytes else body
    if not is_bytes:
        return _ESCAPES.sub(_character, body)
    # Each byte as one character, so that an escape is replaced in bytes as it is in text.
    octets = body.encode().decode("latin-1")
    return _ESCAPES.sub(_octet, octets).encode("latin-1")


def _character(escape: re.Match[str]) -> str:
    """The character that an escape stands for.

    Raises:
        ValueError: there is no such character.
    """
    code = escape[0]
    kind = code[1]
    if kind in "0123":
        return chr(int(code[1:], 8))
    if kind not in "xXuU":
        return _SIMPLE_ESCAPES.get(kind, kind)
    number = int(code[2:], 16)  # noqa: FURB166  (not all prefixes are Python's)
    reason = ""
    if number in _SURROGATES:
        reason = f"Unicode value {code} is invalid"
    elif number > _MAX_CODE_POINT:
        reason = f"Value of {code} exceeds Unicode limit (0x0010FFFF)"
    if reason:
        raise ValueError(f"Invalid string literal: Illegal escape sequence: {reason}")
    return chr(number)


def _octet(escape: re.Match[str]) -> str:
    """The byte that an escape stands for, as a character.

    Raises:
        ValueError: the escape is one for characters.
    """
    kind = escape[0][1]
    if kind in "uU":
        reason = f"Unicode escape sequence \\{kind} cannot be used in bytes literals"
        raise ValueError(f"Invalid bytes literal: Illegal escape sequence: {reason}")
    return _character(escape)
