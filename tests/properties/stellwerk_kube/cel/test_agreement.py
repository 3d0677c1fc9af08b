"""Random expressions of the standard library come to what cel-cpp's own evaluator makes of them."""

from typing import Any, Final

import pytest
from cel_expr_python import cel
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CompileError
from stellwerk_kube.cel.types import DYN
from tests.support.examples import examples

OURS: Final = Environment({"x": DYN})
THEIRS: Final = cel.NewEnv(variables={"x": cel.Type.DYN})
VARIABLES: Final = {
    "x": {
        "i": 5,
        "s": "text",
        "l": [3, 1, 2],
        "m": {"k": 1, "z": None},
        "f": 2.5,
        "b": True,
        "n": None,
    }
}
ATOMS: Final = st.sampled_from(
    [
        *("0", "1", "2", "-1", "3u", "0u", "1.5", "0.0", "2.0", "-0.5"),
        *("9223372036854775807", "18446744073709551615u", "'a'", "''", "'ab'", "b'a'"),
        *("true", "false", "null", "[1, 2]", "[]", "['a']", "{'a': 1}", "{1: 'x'}", "{}"),
        *("x.i", "x.s", "x.l", "x.m", "x.f", "x.b", "x.n", "x.missing"),
    ]
)
SIGNS: Final = "+ - * / % == != < <= > >= in && ||".split()  # noqa: SIM905  (reads as a line)
MACROS: Final = ("all", "exists", "exists_one", "filter", "map")
CONVERSIONS: Final = ("int", "uint", "double", "string", "size", "bytes")
MEMBERS: Final = ("startsWith", "endsWith", "contains")
PATHS: Final = ("i", "missing", "m.k", "m.z", "missing.q")


def form(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda found: template.format(*found))


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        form("({} {} {})", inner, st.sampled_from(SIGNS), inner),
        form("({} ? {} : {})", inner, inner, inner),
        form("!{}", inner),
        form("-{}", inner),
        form("{}.{}(v, {})", inner, st.sampled_from(MACROS), st.one_of(inner, st.just("v == 1"))),
        form("{}({})", st.sampled_from(CONVERSIONS), inner),
        form("{}[{}]", inner, inner),
        form("has(x.{})", st.sampled_from(PATHS)),
        form("{}.{}({})", inner, st.sampled_from(MEMBERS), inner),
        form("[{}, {}]", inner, inner),
        form("{{{}: {}}}", inner, inner),
    )


expressions = st.recursive(st.one_of(ATOMS, ATOMS.map("dyn({})".format)), combined, max_leaves=6)

NOT_IN_KUBERNETES: Final = ("int(bool)", "@in")
"""Overloads that one of the two has alone."""


@settings(
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(expressions)
def test_both_evaluators_agree(source: str) -> None:
    try:
        program = OURS.compile(source)
        expected = THEIRS.compile(source, disable_check=True).eval(data=VARIABLES)
    except (CompileError, RuntimeError):
        reject()
    outcome = program.outcome(VARIABLES)
    failed = expected.type() == cel.Type.ERROR
    texts = (str(outcome.error), str(expected.value()) if failed else "")
    if any(name in text for name in NOT_IN_KUBERNETES for text in texts):
        return
    assert (outcome.error is not None) == failed, texts
    if not failed:
        assert shown(outcome.value) == shown(expected.plain_value())


def shown(value: Any) -> Any:
    """The value in a form in which NaN equals itself, and true differs from 1."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    if isinstance(value, dict):
        return [(shown(key), shown(value[key])) for key in sorted(value, key=repr)]
    if isinstance(value, bytearray):
        value = bytes(value)
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def test_the_two_are_different_evaluators() -> None:
    with pytest.raises(RuntimeError, match="unsupported syntax"):
        THEIRS.compile("x.?y", disable_check=True)
    assert OURS.compile("x.?y.hasValue()").evaluate(VARIABLES) is False
