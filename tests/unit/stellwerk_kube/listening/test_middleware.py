"""What handlers see of the limits: JSON is counted, and an answer has its time."""

import time

import pytest
from aiohttp import web

from stellwerk_kube.listening.limits import Limits
from stellwerk_kube.listening.middleware import json_within
from tests.support.echoing_port import GET, SHORT, answer_to, listening

pytestmark = pytest.mark.skips_time


async def test_an_answer_that_takes_too_long_is_given_up() -> None:
    async with listening(SHORT) as port:
        answer, seconds = await answer_to(port, GET.replace(b"echo", b"slow"))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b"\r\n\r\nnot answered within 0.5 s\n")
    assert seconds < 2


def test_json_is_counted_before_it_is_made() -> None:
    limits = Limits(json_depth=3, json_tokens=12)
    assert json_within(limits, b'{"a": [[1, "]]]]]]]]]]]]]]]"]]}') == {"a": [[1, "]" * 15]]}
    for body, text in (
        (b"[[[[]]]]", "the JSON is nested deeper than 3\n"),
        (b"[" * 250_000, "the JSON is nested deeper than 3\n"),
        (b"[1, 2, 3, 4, 5, 6]", "the JSON has more than 12 tokens\n"),
        (b'"' + b'\\"' * 130_000, None),
        (b'["' + b"\\" * 250_000, None),
        (b"{}}", None),
    ):
        started = time.monotonic()
        with pytest.raises(web.HTTPBadRequest) as refused:
            json_within(limits, body)
        assert time.monotonic() - started < 0.5
        assert text in {None, refused.value.text}
