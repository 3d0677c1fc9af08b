"""Texts to trees: the rules of the grammar one by one, places of errors, and the limits."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from stellwerk_kube.cel import parser
from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CompileError
from stellwerk_kube.cel.parser import parse
from stellwerk_kube.cel.tree import (
    Bind,
    Call,
    ListLiteral,
    Literal,
    MapEntry,
    MapLiteral,
    MessageLiteral,
    Name,
    Select,
)
from stellwerk_kube.cel.types import DYN
from stellwerk_kube.cel.values import Uint
from tests.support.machine_speed import addition_seconds

A, B = Name(0, "a"), Name(2, "b")

TREES: list[tuple[str, Any]] = [
    ("a+b", Call(1, "_+_", None, (A, B))),
    ("a in b", Call(2, "@in", None, (A, Name(5, "b")))),
    ("a+b*c", Call(1, "_+_", None, (A, Call(3, "_*_", None, (B, Name(4, "c")))))),
    ("a-b-c", Call(3, "_-_", None, (Call(1, "_-_", None, (A, B)), Name(4, "c")))),
    ("a<b==c", Call(3, "_==_", None, (Call(1, "_<_", None, (A, B)), Name(5, "c")))),
    ("(a)", Name(1, "a")),
    (".a", Name(1, ".a")),
    (" a // b", Name(1, "a")),
    ("a?b:c", Call(1, "_?_:_", None, (A, B, Name(4, "c")))),
    ("a?.b:c", Call(1, "_?_:_", None, (A, Name(3, ".b"), Name(5, "c")))),
    ("!a", Call(0, "!_", None, (Name(1, "a"),))),
    ("!!a", Name(2, "a")),
    ("---a", Call(0, "-_", None, (Name(3, "a"),))),
    ("-1", Literal(0, -1)),
    ("--1", Literal(2, 1)),
    ("!-1", Call(0, "!_", None, (Literal(1, -1),))),
    ("-1.5", Literal(0, -1.5)),
    ("-1u", Call(0, "-_", None, (Literal(1, Uint(1)),))),
    ("-1.a", Select(2, Literal(0, -1), "a")),
    ("-a.b", Call(0, "-_", None, (Select(2, Name(1, "a"), "b"),))),
    ("a -1", Call(2, "_-_", None, (A, Literal(3, 1)))),
    ("a.b", Select(1, A, "b")),
    ("a.for", Select(1, A, "for")),
    ("a.`b-c`", Select(1, A, "b-c")),
    ("a.?b", Call(1, "_?._", None, (A, Literal(0, "b")))),
    ("(a).?b", Call(3, "_?._", None, (Name(1, "a"), Literal(0, "b")))),
    ("a[b]", Call(1, "_[_]", None, (A, B))),
    ("a[?b]", Call(1, "_[?_]", None, (A, Name(3, "b")))),
    ("f()", Call(1, "f", None, ())),
    (".f(a)", Call(2, ".f", None, (Name(3, "a"),))),
    ("a.for(b)", Call(5, "for", A, (Name(6, "b"),))),
    ("a.all(b,c)", Call(5, "all", A, (Name(6, "b"), Name(8, "c")))),
    ("[]", ListLiteral(0, (), frozenset())),
    ("[,]", ListLiteral(0, (), frozenset())),
    ("[?a,b,]", ListLiteral(0, (Name(2, "a"), Name(4, "b")), frozenset({0}))),
    ("{}", MapLiteral(0, ())),
    ("{?a:b,}", MapLiteral(0, (MapEntry(Name(2, "a"), Name(4, "b"), optional=True),))),
    ("a.b{c:1,?d:2,`e-f`:3,}", MessageLiteral(0, "a.b")),
    (".for{}", MessageLiteral(0, ".for")),
    ("a{b:1}.c", Select(6, MessageLiteral(0, "a"), "c")),
    ("optMap(a)", Call(6, "optMap", None, (Name(7, "a"),))),
    ("true", Literal(0, value=True)),
    ("null", Literal(0, None)),
    ("nullx", Name(0, "nullx")),
    ("007", Literal(0, 7)),
    ("0x1F", Literal(0, 31)),
    ("0xFu", Literal(0, Uint(15))),
    ("1e5.e5", Select(3, Literal(0, 1e5), "e5")),
    ("1.e5", Select(1, Literal(0, 1), "e5")),
    ("-9223372036854775808", Literal(0, -(1 << 63))),
    ("18446744073709551615u", Literal(0, Uint((1 << 64) - 1))),
    ("1e400", Literal(0, float("inf"))),
    (r"'\a\x41\u00e9\U0001F600\101\`'", Literal(0, "\aAé😀A`")),
    (r"b'\377\xffé'", Literal(0, b"\xff\xff\xc3\xa9")),
    (r"bR'\q'", Literal(0, rb"\q")),
    ("'''a'b\r\nc'''", Literal(0, "a'b\nc")),
    ("''''''", Literal(0, "")),
    (r"r'\\'", Literal(0, r"\\")),
]  # fmt: skip


@pytest.mark.parametrize(("source", "tree"), [pytest.param(*each, id=each[0]) for each in TREES])
def test_an_expression_has_its_tree(source: str, tree: object) -> None:
    assert repr(parse(source)) == repr(tree)


def test_a_chain_of_one_logical_sign_is_balanced() -> None:
    def conjunction(at: int, left: object, right: object) -> str:
        return repr(Call(at, "_&&_", None, (left, right)))  # type: ignore[arg-type]  # compared as text

    a, b, c, d, e = (
        Name(place, name) for place, name in zip(range(0, 15, 3), "abcde", strict=True)
    )
    first = Call(4, "_&&_", None, (Call(1, "_&&_", None, (a, b)), c))
    assert repr(parse("a&&b&&c&&d&&e")) == conjunction(7, first, Call(10, "_&&_", None, (d, e)))


@pytest.mark.parametrize("function", ["optMap", "optFlatMap"])
def test_maps_over_optionals_are_written_out(function: str) -> None:
    at = len(f"a.{function}")
    bound: Any = Bind(at, "v", Call(at, "value", A, ()), Name(at + 3, "v"))
    if function == "optMap":
        bound = Call(at, "optional.of", None, (bound,))
    present, none = Call(at, "hasValue", A, ()), Call(at, "optional.none", None, ())
    assert parse(f"a.{function}(v,v)") == Call(at, "_?_:_", None, (present, bound, none))


REFUSED = [
    ("", "1:1: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"),  # noqa: E501  (a message is a line)
    ("== a", "1:1: Syntax error: extraneous input '==' expecting {'['"),
    ("a b", "1:3: Syntax error: extraneous input 'b' expecting <EOF>"),
    ("a b c", "1:3: Syntax error: mismatched input 'b' expecting <EOF>"),
    ("a\n  b c", "2:3: Syntax error: mismatched input 'b' expecting <EOF>"),
    ("'é😀' b", "1:6: Syntax error: extraneous input 'b' expecting <EOF>"),
    ("(a", "1:3: Syntax error: missing ')' at '<EOF>'"),
    ("f(a b)", "1:5: Syntax error: extraneous input 'b' expecting ')'"),
    ("f(a,)", "1:5: Syntax error: mismatched input ')' expecting {'['"),
    ("[a", "1:3: Syntax error: mismatched input '<EOF>' expecting {']', ','}"),
    ("[a,,b]", "1:4: Syntax error: mismatched input ',' expecting ']'"),
    ("{a b}", "1:4: Syntax error: mismatched input 'b' expecting ':'"),
    ("a ? b", "1:6: Syntax error: mismatched input '<EOF>' expecting ':'"),
    ("a.", "1:3: Syntax error: no viable alternative at input '.'"),
    ("a.in", "1:3: Syntax error: no viable alternative at input '.in'"),
    ("a.`b`(c)", "1:6: Syntax error: mismatched input '(' expecting <EOF>"),
    ("a().b{c:1}", "1:6: Syntax error: mismatched input '{' expecting <EOF>"),
    ("A{'b':1}", "1:3: Syntax error: mismatched input ''b'' expecting {'}', ',', '\\u003F', IDENTIFIER, ESC_IDENTIFIER}"),  # noqa: E501  (a message is a line)
    ("-!a", "1:2: Syntax error: "),
    ("#", "1:1: Syntax error: token recognition error at: '#'"),
    ("a=b", "1:2: Syntax error: token recognition error at: '=b'"),
    ("a.`b\n`", "1:3: Syntax error: token recognition error at: '`b\\n'"),
    ("'a\nb'", "1:1: Syntax error: token recognition error at: ''a\\n'"),
    (r"'a\q'", r"1:1: Syntax error: token recognition error at: ''a\q'"),
    (r"'\400'", r"1:1: Syntax error: token recognition error at: ''\4'"),
    ("rb'a'", "1:3: Syntax error: extraneous input ''a'' expecting <EOF>"),
    ("for", "1:1: reserved identifier: for"),
    (".for(a)", "1:1: reserved identifier: for"),
    ("9223372036854775808", "1:1: invalid int literal"),
    ("1 + -9223372036854775809", "1:5: invalid int literal"),
    ("0x8000000000000000", "1:1: invalid hex int literal"),
    ("18446744073709551616u", "1:1: invalid uint literal"),
    ("0x10000000000000000u", "1:1: invalid hex uint literal"),
    (r"'\ud800'", r"1:1: Invalid string literal: Illegal escape sequence: Unicode value \ud800 is invalid"),  # noqa: E501  (a message is a line)
    (r"'\U00110000'", r"1:1: Invalid string literal: Illegal escape sequence: Value of \U00110000 exceeds Unicode limit (0x0010FFFF)"),  # noqa: E501  (a message is a line)
    (r"b'\u0041'", r"1:1: Invalid bytes literal: Illegal escape sequence: Unicode escape sequence \u cannot be used in bytes literals"),  # noqa: E501  (a message is a line)
    (r"r'\'", "1:1: Invalid string literal: String must end with '"),
    ("a.optMap(b.c,d)", "1:11: optMap() variable name must be a simple identifier"),
    ("'\ud800'", "1:1: expression is not valid Unicode"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("source", "text"), [pytest.param(*each, id=ascii(each[0])) for each in REFUSED]
)
def test_a_text_that_is_no_cel_is_refused_with_the_place(source: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(source)
    assert str(caught.value).splitlines()[0].startswith(f"ERROR: <input>:{text}")


# --- limits -------------------------------------------------------------------------------------

DEEPEST: list[tuple[str, int, Callable[[int], str]]] = [
    ("parentheses", 32, lambda depth: "(" * depth + "a" + ")" * depth),
    ("lists", 31, lambda depth: "[" * depth + "a" + "]" * depth),
    ("maps", 31, lambda depth: "{1:" * depth + "a" + "}" * depth),
    ("messages", 31, lambda depth: "A{b:" * depth + "a" + "}" * depth),
    ("calls in calls", 31, lambda depth: "f(" * depth + "a" + ")" * depth),
    ("calls on calls", 31, lambda depth: "a" + ".f()" * depth),
    ("selections", 31, lambda depth: "a" + ".b" * depth),
    ("indexes", 31, lambda depth: "a" + "[0]" * depth),
    ("indexes in indexes", 31, lambda depth: "a[" * depth + "a" + "]" * depth),
    ("sums", 31, lambda depth: "a" + "+a" * depth),
    ("conditionals", 31, lambda depth: "a?a:" * depth + "a"),
    ("conditionals in indexes", 15, lambda depth: "x[a?" * depth + "a" + ":a]" * depth),
    ("conditionals as arguments", 24, lambda depth: "f(a?" * depth + "a" + ":a)" * depth),
    ("negations", 31, lambda depth: "!(" * depth + "a" + ")" * depth),
    ("optMap on optMap", 12, lambda depth: "a" + ".optMap(v,v)" * depth),
    ("optMap in optMap", 16, lambda depth: "a.optMap(v," * depth + "v" + ")" * depth),
    ("chains in chains", 24, lambda depth: "(" * depth + "a" + "||b||c)" * depth),
]


@pytest.mark.parametrize(
    ("deepest", "nested"), [pytest.param(*each[1:], id=each[0]) for each in DEEPEST]
)
def test_expressions_may_be_nested_up_to_a_depth(
    deepest: int, nested: Callable[[int], str]
) -> None:
    parse(nested(deepest))
    with pytest.raises(CompileError, match="expression recursion limit exceeded: 32"):
        parse(nested(deepest + 1))


def test_the_deepest_trees_are_checked_compiled_and_evaluated() -> None:
    environment = Environment({"a": DYN})
    for source in (
        "(" * 24 + "a" + "||a||a)" * 24,
        "a.exists(b," * 30 + "a" + ")" * 30,
        "a.map(b,a?" * 24 + "a" + ":a)" * 24,
        "a" + "&&a" * 10_000,
    ):
        assert environment.compile(source).outcome({"a": True}).cost > 0


def test_chains_of_logical_signs_and_of_prefixes_may_be_long() -> None:
    parse("a" + "&&a" * 10_000)
    parse("a" + "||a" * 10_000)
    assert parse("!" * 30_000 + "a") == Name(30_000, "a")


def test_a_text_may_have_a_hundred_thousand_characters() -> None:
    parse("a".rjust(100_000))
    text = "expression code point size exceeds limit: size: 100001, limit 100000"
    with pytest.raises(CompileError, match=text):
        parse("a".rjust(100_001))


LARGE: dict[str, Callable[[int], str]] = {
    "open parentheses": lambda size: "(" * size,
    "open lists": lambda size: "[" * size,
    "a chain of &&": lambda size: "a" + "&&a" * (size // 3),
    "chains in chains": lambda size: "(a||" * 9 + "a" + "||a" * (size // 3) + ")" * 9,
    "a sum": lambda size: "a" + "+a" * (size // 2),
    "selections": lambda size: "a" + ".b" * (size // 2),
    "the name of a message": lambda size: "a" + ".b" * (size // 2) + "{}",
    "negations": lambda size: "!" * size + "a",
    "conditionals": lambda size: "a?a:" * (size // 4) + "a",
    "half conditionals": lambda size: "a?" * (size // 2),
    "optMaps": lambda size: "a" + ".optMap(v,v)" * (size // 12),
    "a list": lambda size: "[" + "1," * (size // 2) + "]",
    "a list of strings": lambda size: "[" + "r'a'," * (size // 5) + "]",
    "a map": lambda size: "{" + "1:2," * (size // 4) + "}",
    "arguments": lambda size: "f(" + "a," * (size // 2) + "a)",
    "a string": lambda size: "'" + "x" * size + "'",
    "a string without end": lambda size: "'" + "x" * size,
    "a string of lines": lambda size: "'''" + "x" * size + "'''",
    "a string of lines without end": lambda size: "'''" + "x" * size,
    "quotes": lambda size: "'" * size,
    "quotes of both kinds": lambda size: "\"'" * (size // 2),
    "open strings of lines": lambda size: "'''" + r"\'''" * (size // 4),
    "escapes": lambda size: "'" + r"\x41" * (size // 4) + "'",
    "escapes of bytes": lambda size: "b'" + r"\377" * (size // 4) + "'",
    "escapes without end": lambda size: "'" + r"\n" * (size // 2),
    "a wrong escape behind right ones": lambda size: "'" + r"\n" * (size // 2) + r"\q'",
    "a raw string without end": lambda size: "r'''" + "x" * size,
    "backslashes": lambda size: "r'" + "\\" * size + "'",
    "line ends of Windows": lambda size: "'''" + "\r\n" * (size // 2) + "'''",
    "digits": lambda size: "9" * size,
    "zeros": lambda size: "0" * size,
    "hexadecimal digits": lambda size: "0x" + "f" * size,
    "digits before a point": lambda size: "9" * size + ".5",
    "digits behind a point": lambda size: "0." + "9" * size,
    "an exponent": lambda size: "1e" + "9" * size,
    "a name": lambda size: "x" * size,
    "a quoted name without end": lambda size: "a.`" + "b" * size,
    "space": lambda size: " " * size,
    "comments": lambda size: "//a\n" * (size // 4),
    "lines before something wrong": lambda size: "\n" * size + "#",
}


@pytest.mark.parametrize("size", [30_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("large", [pytest.param(each, id=name) for name, each in LARGE.items()])
def test_time_is_linear_in_the_text(
    large: Callable[[int], str], size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parser, "MAX_EXPRESSION_CHARACTERS", 2 * size)
    text = large(size)
    before = time.process_time()
    with suppress(CompileError):
        parse(text)
    # A map, the slowest, takes the time of 70 additions a character; a quadratic rule, thousands.
    # Between them is room for a machine on which other processes empty the caches.
    assert time.process_time() - before < 1_000 * len(text) * addition_seconds()
