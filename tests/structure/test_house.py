"""The counts of the house: that they count what they say, not what they come to.

Four are rules: a class is found by its name alone, no symbol is called turn, few docstrings ask
instead of saying, and a pod's way stays short (`test_pod_way`).
"""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.structure.house import House, is_question, lines

QUESTIONS: Final = 100
"""So many docstrings may begin with a question word; they circle what they are about."""


@pytest.fixture(scope="module")
def source() -> House:
    return House.read()


def test_no_two_public_classes_of_the_scheduler_share_a_name(source: House) -> None:
    assert source.classes_that_recur("stellwerk") == {}


def test_no_symbol_is_called_turn(source: House) -> None:
    """The word meant six things: each has a name of its own now, such as slice or queue order."""
    turn = re.compile(r"(?:^|_)(?:turn(?!_away)|TURN)[sS]?(?:_|$)|Turns?(?![a-z])")
    found = [
        f"{module.name}: {name}"
        for module in source.modules.values()
        for node in ast.walk(module.tree)
        for kind in ("name", "id", "attr", "arg", "asname")
        if isinstance(name := getattr(node, kind, None), str) and turn.search(name)
    ]
    assert found == []


def test_docstrings_name_their_subject_and_do_not_ask_for_it(source: House) -> None:
    modules = source.modules.values()
    asking = [text for each in modules for _, text in each.docstrings() if is_question(text)]
    assert len(asking) < QUESTIONS, "`python -m tests.structure.house --details` names them"


@pytest.fixture
def house(tmp_path: Path) -> House:
    package = tmp_path / "stellwerk"
    (package / "gangs").mkdir(parents=True)
    texts = {
        "__init__.py": '"""The package."""\n',
        "page.py": 'def name(found: dict[str, str]) -> str:\n    return found["name"]\n\n\n'
        'def of(pod: dict[str, dict[str, str]]) -> str:\n    return pod["metadata"]["name"]\n',
        "large.py": '"""Large."""\n\nfrom stellwerk import alone\n' + "\n" * 100,
        "alone.py": '"""What it is."""\n\n\nclass Twice:\n    """Once."""\n',
        "gangs/__init__.py": "",
        "gangs/alone.py": (
            "from stellwerk.alone import Twice as Other\n\n\n"
            'class Twice(Other):\n    """Where it is."""\n'
        ),
    }
    for name, text in texts.items():
        (package / name).write_text(text)
    return House.read(tmp_path)


def test_the_counts_of_a_small_house(house: House) -> None:
    assert list(lines(house)) == [
        "6 modules, 120 lines",
        "  stellwerk: 6 modules, 120 lines",
        "3 modules under 80 lines, packages aside",
        "  0 of them with one importer, 0 lines",
        "  1 of them with two importers",
        "1 names of modules occur twice or more",
        "1 names of public classes of stellwerk do",
        "1 subscripts by a string in page, commands and demo, objects of the API aside",
        "2 of 5 docstrings begin with a question word, 1 of them of modules",
        "devices: 0 modules in 0 packages, 0 lines",
        "groups: 2 modules in 1 packages, 5 lines",
    ]


def test_names_that_recur_are_named_with_their_places(house: House) -> None:
    assert house.names_that_recur() == {"alone": ["stellwerk.alone", "stellwerk.gangs.alone"]}
    assert house.classes_that_recur("stellwerk") == {
        "Twice": ["stellwerk.alone", "stellwerk.gangs.alone"]
    }


@pytest.mark.parametrize(
    ("docstring", "asks"),
    [("Which pods wait.", True), ("Whether it waits.", False), ("", False), ("Whatever.", False)],
)
def test_a_docstring_that_begins_with_a_question_word(docstring: str, *, asks: bool) -> None:
    assert is_question(docstring) is asks
