import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apiserver.continue_tokens import ContinueToken, read_token, write_token
from tests.support.odd_requests import odd_tokens

_HEAD = "invalid continue token: continue key is not valid"
_GOOD = {"v": "meta.k8s.io/v1", "rv": 7, "start": "/p2\0"}


def _mismatch(found: str, field: str, type_name: str) -> str:
    place = f"Go struct field continueToken.{field} of type {type_name}"
    return f": json: cannot unmarshal {found} into {place}"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def refusal(text: str) -> str:
    with pytest.raises(StatusError) as caught:
        read_token(text, "default")
    assert caught.value.code == 400
    return caught.value.message


@pytest.mark.parametrize(
    ("namespace", "token"),
    [
        pytest.param("default", ContinueToken(7, ("default", "p2")), id="of one namespace"),
        pytest.param(None, ContinueToken(7, ("default", "p2")), id="across namespaces"),
        pytest.param(None, ContinueToken(7, ("", "n")), id="of a cluster-scoped kind"),
        pytest.param("default", ContinueToken(-1, ("default", "p2")), id="of the present"),
    ],
)
def test_a_token_is_read_as_it_was_written(namespace: str | None, token: ContinueToken) -> None:
    assert read_token(write_token(token, namespace), namespace) == token


def test_a_token_looks_like_the_api_servers() -> None:
    recorded = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjE4LCJzdGFydCI6Ii9wMlx1MDAwMCJ9"
    assert write_token(ContinueToken(218, ("default", "p2")), "default") == recorded
    present = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoicDJcdTAwMDAifQ"
    assert write_token(ContinueToken(-1, ("default", "p2")), "default") == present


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "illegal base64 data at input byte 0"),
        ("e30=", "illegal base64 data at input byte 3"),
        ("eé", "illegal base64 data at input byte 1"),
        ("xxx", "invalid character 'Ç' looking for beginning of value"),
        (encoded(b"{"), "unexpected end of JSON input"),
    ],
)
def test_what_holds_no_json_is_refused(text: str, why: str) -> None:
    assert refusal(text) == f"{_HEAD}: {why}"


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        ([], ": json: cannot unmarshal array into Go value of type storage.continueToken"),
        (5, ": json: cannot unmarshal number into Go value of type storage.continueToken"),
        (None, ": server does not recognize this encoded version "),
        ({}, ": server does not recognize this encoded version "),
        ({**_GOOD, "v": "v2"}, ": server does not recognize this encoded version v2"),
        (
            {**_GOOD, "start": 1},
            _mismatch("number", "start", "string"),
        ),
        (
            {**_GOOD, "rv": {}},
            _mismatch("object", "rv", "int64"),
        ),
        (
            {**_GOOD, "RV": True},
            _mismatch("bool", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": 1.5},
            _mismatch("number 1.5", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": (1 << 64) - 1},
            _mismatch("number 18446744073709551615", "rv", "int64"),
        ),
        (
            {**_GOOD, "rv": 0},
            ": incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
        ),
        ({**_GOOD, "start": ""}, ": encoded start key empty (version meta.k8s.io/v1)"),
        ({**_GOOD, "start": "../secrets/a"}, ": ../secrets/a"),
        ({**_GOOD, "start": "//a"}, ": //a"),
        ({**_GOOD, "start": "a/"}, ": a/"),
    ],
)
def test_what_is_no_token_is_refused_in_words(payload: Any, why: str) -> None:
    assert refusal(encoded(orjson.dumps(payload))) == f"{_HEAD}{why}"


@given(text=odd_tokens(), namespace=st.sampled_from([None, "default"]))
def test_every_text_is_a_token_or_a_bad_request(text: str, namespace: str | None) -> None:
    try:
        token = read_token(text, namespace)
    except StatusError as refused:
        code = refused.code
    else:
        assert read_token(write_token(token, namespace), namespace).after == token.after
        return
    assert code == 400
