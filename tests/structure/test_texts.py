"""What `make lint` finds in texts, by examples; the texts themselves are not read here."""

import pytest

from tests.structure.texts import faults_of_line, faults_of_module


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
