import contextlib
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.json_text import JsonError, read_json


def refusal(content: bytes) -> str:
    with pytest.raises(JsonError) as caught:
        read_json(content)
    return str(caught.value)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "unexpected end of JSON input"),
        (b'{"a": ', "unexpected end of JSON input"),
        (b'{"kind": "ConfigMap", ', "unexpected end of JSON input"),
        (b'"a', "unexpected end of JSON input"),
        (b"-", "unexpected end of JSON input"),
        (b"tru", "unexpected end of JSON input"),
        (b"{x}", "invalid character 'x' looking for beginning of object key string"),
        (b'{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        (b"[1,]", "invalid character ']' looking for beginning of value"),
        (b"x", "invalid character 'x' looking for beginning of value"),
        (b"'a'", "invalid character '\\'' looking for beginning of value"),
        (b'{"a" 1}', "invalid character '1' after object key"),
        (b'{"a":1 "b"}', "invalid character '\"' after object key:value pair"),
        (b"[1 2]", "invalid character '2' after array element"),
        (b"{} x", "invalid character 'x' after top-level value"),
        (b"01", "invalid character '1' after top-level value"),
        (b"1.x", "invalid character 'x' after decimal point in numeric literal"),
        (b"1ex", "invalid character 'x' in exponent of numeric literal"),
        (b"-x", "invalid character 'x' in numeric literal"),
        (b"trxe", "invalid character 'x' in literal true (expecting 'u')"),
        (b'"\\x"', "invalid character 'x' in string escape code"),
        (b'"\\u00g"', "invalid character 'g' in \\u hexadecimal character escape"),
        (b'"a\nb"', "invalid character '\\n' in string literal"),
        (b'"a\x00b"', "invalid character '\\x00' in string literal"),
        (b"\xc7\x1c", "invalid character '\u00c7' looking for beginning of value"),
    ],
)
def test_the_first_character_that_is_wrong_is_named(content: bytes, why: str) -> None:
    assert refusal(content) == why


def test_what_go_takes_is_taken() -> None:
    assert read_json(b'{"a": "\xff"}') == {"a": "\ufffd"}
    assert read_json(b'"\\ud800"') == "\ufffd"


def test_a_value_nested_without_end_is_refused() -> None:
    assert refusal(b"[" * 100_000 + b"]" * 100_000) == "exceeded max depth"


_TEXTS = st.binary(max_size=30) | st.text('{}[]:,"\\ut10.e-nulf ', max_size=20).map(str.encode)


@given(content=_TEXTS)
def test_whatever_the_fast_reader_refuses_is_refused_in_words(content: bytes) -> None:
    found: object = None
    try:
        found = orjson.loads(content)
    except orjson.JSONDecodeError:
        with contextlib.suppress(JsonError):
            read_json(content)
        return
    assert read_json(content) == found


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"[" * 1_000_000, id="open brackets"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, id="closed ones"),
        pytest.param(b'{"a":' * 300_000 + b"1", id="objects"),
        pytest.param(b"[[]," * 300_000 + b"1", id="between others"),
    ],
)
def test_a_deep_text_is_refused_before_its_brackets_are_followed(content: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(JsonError, match="exceeded max depth"):
        read_json(content)
    assert time.perf_counter() - began < 0.3


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b'["' + b"[" * 20_000 + b'", x]', "invalid character 'x' looking for beginning of value"),
        (b'["\\"' + b"[" * 20_000 + b'", x]', "invalid character 'x' looking for beginning"),
        (b"[" + b"[]," * 20_000 + b"x]", "invalid character 'x' looking for beginning of value"),
    ],
)
def test_brackets_in_texts_and_side_by_side_are_not_deep(content: bytes, error: str) -> None:
    with pytest.raises(JsonError, match=error):
        read_json(content)
