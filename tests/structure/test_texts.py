"""What `make lint` finds in texts, by examples; the texts themselves are not read here."""

import pytest

from tests.structure.texts import faults_of_docstrings, faults_of_line, faults_of_module


@pytest.mark.parametrize(
    ("line", "found"),
    [
        pytest.param("so that nobody waits", True, id="nobody"),
        pytest.param("No one waits", True, id="no one"),
        pytest.param("a task that runs for ever", True, id="for ever"),
        pytest.param("the handler is told", True, id="told"),
        pytest.param("no one-line text, and whole rooms", False, id="other words"),
    ],
)
def test_persons_are_found(line: str, *, found: bool) -> None:
    assert bool([*faults_of_line(line)]) is found


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        pytest.param('"""Whatever nobody reads."""\n', [1], id="a docstring"),
        pytest.param("x = 1  # nobody\n", [1], id="a comment"),
        pytest.param('x = "nobody"\n', [], id="a string of the program"),
        pytest.param('"""One.\n\nSee the module.\n"""\n', [3], id="a docstring about nothing"),
        pytest.param('"""As in `away.py` and `here.py`."""\n', [1], id="a module that is gone"),
        pytest.param("def my_turn() -> None: ...\n", [1], id="a symbol"),
        pytest.param("def turn_away() -> None: ...\n", [], id="turning away"),
    ],
)
def test_faults_of_a_module_have_their_line(source: str, faults: list[int]) -> None:
    assert [line for line, _ in faults_of_module(source, {"stellwerk/here.py"})] == faults


@pytest.mark.parametrize(
    ("source", "faults"),
    [
        pytest.param('A = 1\n"""So many pods of a namespace."""\n', [2], id="an amount"),
        pytest.param('A = 1\n"""So long there is no answer."""\n', [2], id="a time"),
        pytest.param('A = 1\n"""Of each further pod."""\n', [2], id="a noun left out"),
        pytest.param('def f() -> None:\n    """The same, later."""\n', [2], id="a reference"),
        pytest.param('"""That which waits."""\n', [1], id="a pronoun"),
        pytest.param('def f() -> None:\n    """How a pod waits."""\n', [2], id="a question"),
        pytest.param('A = 1\n"""One."""\n"""Another."""\n', [3], id="two texts in a row"),
        pytest.param(
            'def f() -> bool:\n    """Whether a pod waits."""\n', [], id="the answer yes or no"
        ),
        pytest.param('A = 1\n"""Offers of a node."""\n', [], id="a longer word"),
        pytest.param('A = 1\n"""One."""\nB = 2\n"""Other."""\n', [], id="a text each"),
        pytest.param('A = "Of a text"\n', [], id="a string of the program"),
    ],
)
def test_docstrings_begin_with_the_thing_or_the_act(source: str, faults: list[int]) -> None:
    assert [line for line, _ in faults_of_docstrings(source)] == faults
