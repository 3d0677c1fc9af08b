"""Texts from outside, as events, conditions and logs may show them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk_kube.untrusted_text import cut, json_escaped, printable, printable_lines, shown


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        pytest.param("0/3 nodes: ü 漢.", "0/3 nodes: ü 漢.", id="plain"),
        pytest.param("a\nb\tc\0d", "a b c d", id="line breaks, tabs and zeros"),
        pytest.param("\x1b[31mred", " [31mred", id="what a terminal would obey"),
        pytest.param("\u202etxt.exe", " txt.exe", id="what turns the direction round"),
        pytest.param("\ud800", " ", id="half a character"),
    ],
)
def test_control_characters_become_spaces(text: str, clean: str) -> None:
    assert printable(text) == clean


@pytest.mark.parametrize(
    ("text", "length"),
    [
        pytest.param("x" * 1024, 1024, id="fits"),
        pytest.param("x" * 1025, 1024, id="one too long"),
        pytest.param("ü" * 600, 1024, id="two bytes a letter"),
    ],
)
def test_texts_are_cut_to_what_the_api_takes(text: str, length: int) -> None:
    short = cut(text)
    assert len(short.encode()) <= length
    assert short == text if len(text.encode()) <= 1024 else short.endswith(" ...")


@given(st.text(st.characters(codec=None), max_size=2_000))
def test_what_is_shown_is_short_printable_and_stays_as_it_is(text: str) -> None:
    once = shown(text)
    assert len(once.encode()) <= 1024
    assert once.isprintable()
    assert shown(once) == once


def test_lines_stay_lines() -> None:
    assert printable_lines("a\x1b[2J\nb\r\n\x9b") == "a [2J\nb \n "


@given(text=st.text())
def test_escaped_json_says_the_same_in_printable_characters(text: str) -> None:
    escaped = json_escaped(json.dumps({text: text}, ensure_ascii=False, indent=1))
    assert json.loads(escaped) == {text: text}
    assert all(each.isprintable() or each == "\n" for each in escaped)
