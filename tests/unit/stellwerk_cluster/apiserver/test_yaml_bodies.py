from typing import Any

import orjson
import pytest

from stellwerk_cluster.apiserver.bodies import duplicate_fields
from stellwerk_cluster.apiserver.yaml_bodies import YamlError, doubled_text, read_yaml

BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 9)}]\n"
    for level in range(8)
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param("a: 2020-01-01", {"a": "2020-01-01"}, id="a date is a text"),
        pytest.param("a: 1:30", {"a": "1:30"}, id="minutes are a text"),
        pytest.param("a: 0x10", {"a": 16}, id="hexadecimal"),
        pytest.param("a: 010", {"a": 8}, id="octal"),
        pytest.param("a: 1e3", {"a": "1e3"}, id="no point and no sign of the exponent"),
        pytest.param("1: a\ntrue: b", {"1": "a", "true": "b"}, id="keys are texts"),
        pytest.param(
            "a: y\nb: N\nc: on\nd: yes\ne: ye",
            {"a": True, "b": False, "c": True, "d": True, "e": "ye"},
            id="answers",
        ),
        pytest.param("a: [=, <<]\nb: =", {"a": ["=", "<<"], "b": "="}, id="signs are texts"),
        pytest.param("a: &x {b: 1}\nc: {<<: *x}", {"a": {"b": 1}, "c": {"b": 1}}, id="a merge"),
        pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="an alias"),
    ],
)
def test_yaml_is_what_json_can_say(text: str, value: Any) -> None:
    assert read_yaml(text.encode()) == (value, [])


def test_a_key_that_stands_twice_is_noted_with_its_line() -> None:
    value, doubled = read_yaml(b"a: 1\nb:\n  c: 1\n  c: 2\n")
    assert value == {"a": 1, "b": {"c": 2}}
    assert doubled_text(doubled) == (
        'yaml: unmarshal errors:\n  line 4: key "c" already set in map'
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: [", id="not closed"),
        pytest.param("a: &a [*a]", id="a value in itself"),
        pytest.param("[1, 2]: a", id="a list as a key"),
        pytest.param("a: !!python/object:os.system {}", id="an object of another language"),
        pytest.param(BOMB, id="aliases of aliases"),
        pytest.param("\x00", id="no text"),
        pytest.param("- " * 5000, id="deeply nested"),
    ],
)
def test_a_text_that_is_no_body_is_refused(text: str) -> None:
    with pytest.raises(YamlError):
        read_yaml(text.encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            "a: b: c\n",
            "mapping values are not allowed in this context",
            id="no line is named first",
        ),
        pytest.param(
            "a:\n\tb: x\n",
            "line 2: found character that cannot start any token",
            id="a scanner's line",
        ),
        pytest.param(
            "\n\n\nkey: [1,2\nz: 1\n",
            "line 4: did not find expected ',' or ']'",
            id="a parser's line",
        ),
        pytest.param(
            "a:\n  - b\n c: d\n", "line 2: did not find expected key", id="a parser's context"
        ),
        pytest.param("a: *b\n", "unknown anchor 'b' referenced", id="an anchor"),
        pytest.param("x: 1\ny: *c\n", "unknown anchor 'c' referenced", id="an anchor further down"),
        pytest.param(
            "a: !!binary x\n", "!!binary value contains invalid base64 data", id="no base64"
        ),
        pytest.param(
            "a:\n b:\n  " + "[" * 20_000,
            "line 3: exceeded max depth of 400",
            id="too deep further down",
        ),
    ],
)
def test_errors_are_those_of_the_api_server(text: str, message: str) -> None:
    with pytest.raises(YamlError) as error:
        read_yaml(text.encode())
    assert str(error.value) == f"yaml: {message}"


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000, "? " * 100_000])
def test_a_text_that_would_end_the_process_is_refused(text: str) -> None:
    with pytest.raises(YamlError, match=r"^yaml: exceeded max depth of 400$"):
        read_yaml(text.encode())


def test_a_text_at_the_limit_of_depth_does_no_harm() -> None:
    for yielding in (False, True):
        read_yaml(b"[" * 400 + b"]" * 400, yielding=yielding)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        pytest.param('{"a": 1, "b": {"a": "x\\"y"}}', [], id="none"),
        pytest.param('{"a": 1, "a": 2}', ["a"], id="at the top"),
        pytest.param(
            '{"m": {"n": 1, "n": 2}, "l": [{"x": 1, "x": 1, "x": 1}]}',
            ["m.n", "l[0].x"],
            id="below",
        ),
        pytest.param('{"a": "\\u0022\\u0022", "b": 1, "b": 2}', ["b"], id="beside escaped quotes"),
    ],
)
def test_fields_that_stand_twice_have_paths(text: str, paths: list[str]) -> None:
    assert duplicate_fields(text.encode(), orjson.loads(text)) == paths
