"""Random expressions: what they compute equals plain Python, and nothing but a CelError leaves."""

import operator
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CelError, EvaluationError
from stellwerk_kube.cel.types import DYN
from stellwerk_kube.cel.values import MAX_INT, MIN_INT
from tests.support.examples import examples
from tests.support.machine_speed import addition_seconds

_ANYTHING = Environment({"a": DYN, "b": DYN, "c": DYN})


class FailedError(Exception):
    """The plain model has no result."""


def checked(value: int) -> int:
    if not MIN_INT <= value <= MAX_INT:
        raise FailedError("integer overflow")
    return value


def divided(left: int, right: int) -> int:
    if right == 0:
        raise FailedError("division by zero")
    quotient = abs(left) // abs(right)
    return checked(quotient if (left < 0) == (right < 0) else -quotient)


def rest(left: int, right: int) -> int:
    if right == 0:
        raise FailedError("modulus by zero")
    return left - right * divided(left, right)


def within(compute: Callable[[int, int], int]) -> Callable[[int, int], int]:
    return lambda left, right: checked(compute(left, right))


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "+": within(operator.add),
    "-": within(operator.sub),
    "*": within(operator.mul),
    "/": divided,
    "%": rest,
}
_COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}

# A tree is a number, a name, or (operator, left, right).
numbers = st.one_of(
    st.integers(-5, 5), st.sampled_from([MIN_INT + 1, MAX_INT]), st.sampled_from("abc")
)
arithmetic = st.recursive(
    numbers,
    lambda inner: st.tuples(st.sampled_from(sorted(_ARITHMETIC)), inner, inner),
    max_leaves=8,
)
comparisons = st.tuples(st.sampled_from(sorted(_COMPARISONS)), arithmetic, arithmetic)
logic = st.recursive(
    comparisons, lambda inner: st.tuples(st.sampled_from(["&&", "||"]), inner, inner), max_leaves=6
)


def text(tree: Any) -> str:
    match tree:
        case (sign, left, right):
            return f"({text(left)} {sign} {text(right)})"
        case int():
            return f"({tree})" if tree < 0 else str(tree)
        case _:
            return str(tree)


def model(tree: Any, variables: dict[str, int]) -> Any:
    match tree:
        case ("&&" | "||" as sign, left, right):
            return logical(decisive=sign == "||", left=left, right=right, variables=variables)
        case (sign, left, right):
            one, other = model(left, variables), model(right, variables)
            return {**_ARITHMETIC, **_COMPARISONS}[sign](one, other)
        case str():
            return variables[tree]
        case _:
            return tree


def logical(*, decisive: bool, left: Any, right: Any, variables: dict[str, int]) -> bool:
    failures = []
    for side in (left, right):
        try:
            if model(side, variables) is decisive:
                return bool(decisive)
        except FailedError as failure:
            failures.append(failure)
    if failures:
        raise failures[0]
    return not bool(decisive)


def agrees(tree: Any, variables: dict[str, int]) -> None:
    program = _ANYTHING.compile(text(tree))
    try:
        expected = model(tree, variables)
    except FailedError as failure:
        with pytest.raises(EvaluationError, match=str(failure)):
            program.evaluate(variables)
    else:
        assert program.evaluate(variables) == expected


values = st.fixed_dictionaries({name: st.integers(MIN_INT, MAX_INT) for name in "abc"})


@given(arithmetic, values)
@example(("/", "a", -1), {"a": MIN_INT, "b": 0, "c": 0})
def test_arithmetic_of_integers_equals_pythons_within_64_bits(
    tree: Any, variables: dict[str, int]
) -> None:
    agrees(tree, variables)


@given(logic, values)
def test_logic_absorbs_errors_as_the_plain_model_does(tree: Any, variables: dict[str, int]) -> None:
    agrees(tree, variables)


_WORDS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        "0",
        "1",
        "2u",
        "-3",
        "1.5",
        "'x'",
        '"y"',
        "b'z'",
        "true",
        "false",
        "null",
        "[]",
        "[1,2]",
        "['p']",
        "{}",
        "{'k':1}",
        "{1:2}",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ".",
        ",",
        "?",
        ":",
        "+",
        "-",
        "*",
        "/",
        "%",
        "==",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "&&",
        "||",
        "!",
        "in",
        "has(a.b)",
        "a.b",
        "a[0]",
        "a.?b",
        "a[?0]",
        ".all(x,x>0)",
        ".exists(x,x)",
        ".map(x,x+1)",
        ".filter(x,true)",
        ".sortBy(x,-x)",
        ".size()",
        ".orValue(1)",
        ".transformMap(k,v,v)",
        ".transformList(i,v,v)",
        ".exists_one(x,x==1)",
        "type(a)",
        "size(a)",
        "string(a)",
        "int(a)",
        "uint(a)",
        "double(a)",
        "duration('1h')",
        "timestamp('2020-01-01T00:00:00Z')",
        "dyn(a)",
        "quantity('1Gi')",
        "semver('1.2.3')",
        "ip('::1')",
        "cidr('10.0.0.0/8')",
        "url('https://h:1/p?q')",
        ".isSorted()",
        ".sum()",
        ".min()",
        ".indexOf(1)",
        ".matches('a*')",
        ".find('[0-9]+')",
        ".split('')",
        ".join()",
        ".replace('x','yy')",
        ".format([1])",
        ".substring(1)",
        ".charAt(0)",
        ".reverse()",
        ".distinct()",
        ".flatten()",
        ".getHours()",
        ".compareTo(quantity('1'))",
        ".major()",
        ".family()",
        ".getHost()",
        ".value()",
        ".hasValue()",
        "lists.range(5)",
        "sets.contains([1],[1])",
        "optional.of(a)",
        "optional.none()",
        "cel.bind(q,a,[q,q])",
        "format.uuid().validate('x')",
        "int",
        "string",
        "list",
        "map",
    ]
)
_JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(MIN_INT, MAX_INT),
        st.floats(),
        st.text(max_size=6),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=examples(400), suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(_WORDS, min_size=1, max_size=8).map("".join),
    st.fixed_dictionaries({"a": _JSON, "b": _JSON, "c": _JSON}),
)
def test_nothing_but_a_cel_error_leaves_an_expression(source: str, variables: Any) -> None:
    with suppress(CelError):
        _ANYTHING.compile(source).evaluate(variables)


_CALLS = st.sampled_from(
    sorted(
        [
            "a.size()",
            "a.startsWith(b)",
            "a.endsWith(b)",
            "a.contains(b)",
            "a.matches(b)",
            "a.find(b)",
            "a.findAll(b)",
            "a.split(b)",
            "a.replace(b,c)",
            "a.join(b)",
            "a.indexOf(b)",
            "a.lastIndexOf(b)",
            "a.charAt(b)",
            "a.substring(b)",
            "a.substring(b,c)",
            "a.slice(b,c)",
            "a.flatten(b)",
            "a.format(b)",
            "a.isSorted()",
            "a.sum()",
            "a.min()",
            "a.max()",
            "a.sort()",
            "a.distinct()",
            "a.first()",
            "a.reverse()",
            "a.lowerAscii()",
            "a.trim()",
            "quantity(a)",
            "isQuantity(a)",
            "semver(a)",
            "semver(a,b)",
            "isSemver(a,true)",
            "ip(a)",
            "isIP(a)",
            "cidr(a)",
            "isCIDR(a)",
            "url(a)",
            "isURL(a)",
            "url(a).getQuery()",
            "url(a).getEscapedPath()",
            "format.named(a)",
            "strings.quote(a)",
            "bytes(a)",
            "string(a)",
            "int(a)",
            "uint(a)",
            "double(a)",
            "bool(a)",
            "duration(a)",
            "timestamp(a)",
            "timestamp(a).getHours(b)",
            "type(a)",
            "lists.range(a)",
            "sets.contains(a,b)",
            "sets.equivalent(a,b)",
            "sets.intersects(a,b)",
            "a+b",
            "a-b",
            "a*b",
            "a/b",
            "a%b",
            "a[b]",
            "a[?b]",
            "a==b",
            "a<b",
            "a>=b",
            "(a)in(b)",
            "-a",
            "!a",
            "a?b:c",
            "a&&b",
            "a||b",
            "has(a.x)",
            "a.x",
            "a.?x",
            "optional.ofNonZeroValue(a)",
            "a.all(x,x==b)",
            "a.map(x,x+b)",
            "a.filter(x,x<b)",
            "a.exists_one(x,x==b)",
            "a.sortBy(x,x)",
            "a.transformMap(k,v,v==b)",
            "a.transformMapEntry(k,v,{v:k})",
            "format.qualifiedName().validate(a)",
            "ip.isCanonical(a)",
            "cidr('10.0.0.0/8').containsIP(a)",
            "cidr('10.0.0.0/8').containsCIDR(a)",
        ]
    )
)
_TEXTS = st.sampled_from(
    [
        "1Ki",
        "1e99999999",
        "-0.5n",
        "1.2.3",
        "v1.2",
        "1.02.3-a+b",
        "::1",
        "10.0.0.1",
        "10.0.0.0/8",
        "::ffff:1.2.3.4",
        "https://a:b@c:1/x%2?q#f",
        "/p",
        "//h",
        "[",
        "(",
        "a{1,9999}",
        "(a*)*",
        "%s",
        "%d",
        "%.3f",
        "%e",
        "%x",
        "%5",
        "1h-1m",
        "1h1.5m",
        "2020-02-30T00:00:00Z",
        "0001-01-01T00:00:00+23:00",
        "9999-12-31T23:59:59.999999999Z",
        "America/New_York",
        "+25:99",
        "-01:30",
        "../etc/passwd",
        "NaN",
        "1e400",
        "0x1f",
        "٣",
        "ß",
        "�",
    ]
)


@settings(max_examples=examples(800), suppress_health_check=[HealthCheck.too_slow])
@given(
    _CALLS,
    st.fixed_dictionaries({name: st.one_of(_TEXTS, _JSON) for name in "abc"}),
)
def test_every_function_takes_any_values(source: str, variables: Any) -> None:
    with suppress(CelError):
        _ANYTHING.compile(source).evaluate(variables)


_LONG = [list(range(1000)) for _ in range(3)]
_SLOW = [
    pytest.param("a.all(x, a.all(y, a.all(z, x + y + z >= 0)))", id="three loops in another"),
    pytest.param("a.map(x, a.map(y, a.map(z, 'text' + string(x))))", id="lists of lists of lists"),
    pytest.param(
        "cel.bind(d, 'x'" + ", cel.bind(d, d + d" * 14 + ", d.size()" + ")" * 15,
        id="a text doubled",
    ),
    pytest.param(
        "cel.bind(d, [1]" + ", cel.bind(d, d + d" * 14 + ", d == d" + ")" * 15, id="a list doubled"
    ),
    pytest.param(
        "cel.bind(d, [1]" + ", cel.bind(d, [d, d]" * 14 + ", d == d" + ")" * 15,
        id="a list nested twice",
    ),
    pytest.param("a.map(x, a).flatten().map(x, a).flatten().size()", id="lists multiplied"),
    pytest.param(
        "('a' + t).matches('(a*)*b') && t.matches('(a|aa)+$')", id="patterns that backtrack"
    ),
    pytest.param("t.replace('', t).replace('', t).size()", id="texts multiplied"),
    pytest.param("lists.range(99999999999).size()", id="a long range"),
    pytest.param("a.map(x, a).distinct().size()", id="a comparison of each with each"),
    pytest.param("[t, t, t].map(x, a.map(y, t)).map(l, l.join()).join().size()", id="texts joined"),
    pytest.param("a.map(x, a).map(l, '%s'.format([l])).size()", id="lists shown"),
    pytest.param(
        "cel.bind(m, lists.range(30000).transformMap(i, v, v), m.all(k, !(dyn(true) in m)))",
        id="a key that equals another in Python",
    ),
    pytest.param(
        "lists.range(50000).map(i, i % 2 == 0 ? t + 'x' : t + 'y').sort().size()", id="long keys"
    ),
    pytest.param(
        "cel.bind(b, lists.range(50000).map(i, t), a.exists(x, t + 'y' in b))",
        id="long texts in a long list",
    ),
    pytest.param("sets.equivalent(a.map(x, a), a.map(x, a))", id="sets of lists"),
    pytest.param("a.transformMap(i, v, a).transformMap(i, v, a.transformMap(j, w, v))", id="maps"),
]


@pytest.mark.parametrize("source", _SLOW)
def test_no_expression_runs_for_long(source: str) -> None:
    program = Environment({"a": DYN, "t": DYN}).compile(source)
    began = time.process_time()
    program.outcome({"a": _LONG[0], "t": "a" * 20_000})
    seconds = time.process_time() - began
    assert seconds < 250e6 * addition_seconds(), "10 s where one takes 40 ns"
