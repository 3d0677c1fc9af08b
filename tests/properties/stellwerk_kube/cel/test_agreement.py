"""Random expressions come to what cel-cpp made of them, and random texts are refused where it did.

`tests/data/cel-cpp.json.xz` was recorded with cel-expr-python 0.1.3, before our own parser took its
place: expressions of the standard library with the value that cel-cpp's evaluator gave (null: an
error), and spoilt texts (`support/cel_texts.py`) with the place of cel-cpp's first message. Texts
for which it listed another issue before the first syntax error are not among them.
"""

import json
import lzma
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from stellwerk_kube.cel.environment import Environment
from stellwerk_kube.cel.errors import CompileError
from stellwerk_kube.cel.parser import parse
from stellwerk_kube.cel.types import DYN
from tests.support.repository import ROOT

RECORDED: Final = Path(ROOT, "tests/data/cel-cpp.json.xz")
ENVIRONMENT: Final = Environment({"x": DYN})
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


@cache
def recorded() -> Any:
    return json.loads(lzma.decompress(RECORDED.read_bytes()))


def test_expressions_come_to_what_cel_cpp_evaluated() -> None:
    differences = []
    for source, expected in recorded()["evaluated"]:
        outcome = ENVIRONMENT.compile(source).outcome(VARIABLES)
        found = (
            None if outcome.error is not None else [json.loads(json.dumps(shown(outcome.value)))]
        )
        if found != expected:
            differences.append((source, found, expected))
    assert not differences


def shown(value: Any) -> Any:
    """The value in a form in which NaN equals itself, and true differs from 1."""
    if isinstance(value, list):
        return [shown(each) for each in value]
    if isinstance(value, dict):
        return [(shown(key), shown(value[key])) for key in sorted(value, key=repr)]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else repr(value)


def test_texts_are_parsed_that_cel_cpp_parsed() -> None:
    for text in recorded()["parsed"]:
        parse(text)


def test_texts_are_refused_where_cel_cpp_refused_them() -> None:
    for text, place in recorded()["refused"]:
        with pytest.raises(CompileError, match=re.escape(f"ERROR: <input>:{place}: ")):
            parse(text)
