"""The counts of the house: that they count what they say, not what they come to.

Four are rules: a class is found by its name alone, a limit's name has one meaning, few docstrings
ask instead of saying, and a pod's way stays short (`test_pod_way`). `make lint` looks at words
(`texts`).
"""

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


def test_no_two_limits_share_a_name(source: House) -> None:
    assert source.limits_of_two_meanings() == {}


def test_docstrings_name_their_subject_and_do_not_ask_for_it(source: House) -> None:
    modules = source.modules.values()
    asking = [text for each in modules for _, text in each.docstrings() if is_question(text)]
    assert len(asking) < QUESTIONS, "`python -m tests.structure.house --details` names them"


@pytest.fixture
def house(tmp_path: Path) -> House:
    package = tmp_path / "stellwerk"
    (package / "gangs").mkdir(parents=True)
    (tmp_path / "stellwerk_cli").mkdir()
    texts = {
        "__init__.py": '"""The package."""\n',
        "../stellwerk_cli/page.py": "def name(found: dict[str, str]) -> str:\n"
        '    return found["name"]\n\n\n'
        "def of(pod: dict[str, dict[str, str]]) -> str:\n"
        '    return pod["metadata"]["name"]\n',
        "large.py": '"""Large."""\n\nfrom stellwerk import alone\n'
        "MAX_NODES: Final = 1\n_MAX_PODS: Final = 1\n" + "\n" * 98,
        "alone.py": '"""What it is."""\n\n\nclass Twice:\n    """Once."""\n',
        "step.py": "def act() -> None:\n    _step()\n    _often()\n    _often()\n\n\n"
        "def _step() -> None: ...\n\n\ndef _often() -> None: ...\n",
        "wide.py": "class Wide:\n"
        + "".join(f"    def act_{n}(self) -> None: ...\n" for n in range(26)),
        "gangs/__init__.py": "MAX_PODS: Final = 1\n_MAX_NODES: Final = 2\n",
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
        "8 modules, 159 lines",
        "  stellwerk: 7 modules, 153 lines",
        "  stellwerk_cli: 1 modules, 6 lines",
        "1 of 31 functions are private and named once beside their definition",
        "1 classes have more than 25 methods",
        "  Wide: 26",
        "5 modules under 80 lines, packages aside",
        "  0 of them with one importer, 0 lines",
        "  1 of them with two importers",
        "1 names of modules occur twice or more",
        "1 names of public classes of stellwerk do",
        "1 subscripts by a string in page, commands and demo, objects of the API aside",
        "2 of 5 docstrings begin with a question word, 1 of them of modules",
        "devices: 0 modules in 0 packages, 0 lines",
        "groups: 2 modules in 1 packages, 7 lines",
    ]


def test_names_that_recur_are_named_with_their_places(house: House) -> None:
    assert house.names_that_recur() == {"alone": ["stellwerk.alone", "stellwerk.gangs.alone"]}
    assert house.classes_that_recur("stellwerk") == {
        "Twice": ["stellwerk.alone", "stellwerk.gangs.alone"]
    }


def test_limits_of_one_name_and_two_values_are_named_with_their_places(house: House) -> None:
    assert house.limits_of_two_meanings() == {"MAX_NODES": ["stellwerk.gangs", "stellwerk.large"]}


@pytest.mark.parametrize(
    ("docstring", "asks"),
    [("Which pods wait.", True), ("Whether it waits.", False), ("", False), ("Whatever.", False)],
)
def test_a_docstring_that_begins_with_a_question_word(docstring: str, *, asks: bool) -> None:
    assert is_question(docstring) is asks
