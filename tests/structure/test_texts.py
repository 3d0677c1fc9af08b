"""Docstrings, comments and documents name things, not persons, and modules that exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain

import pytest

from tests.structure.test_documents import DOCUMENTS
from tests.support.repository import ROOT

_PERSONS = re.compile(
    r"\b((any|every|no|some)body|(any|every|some)one|no one(?!-)|who(m|ever)"
    r"|(is|are|was|were|be|been) told|for ever)\b",
    re.IGNORECASE,
)
_MODULE = re.compile(r"`([\w/]+\.py)`")


def modules() -> Iterator[tuple[str, str]]:
    """(path, text) of every module under operator/."""
    for path in sorted((ROOT / "operator").rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def texts(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every docstring and comment of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines = str(node.value.value).splitlines()
            yield from enumerate(lines, start=node.lineno)
    for number, line in enumerate(source.splitlines(), start=1):
        # Strings with a # are taken, too: that is cheaper than to tell them apart.
        if "# " in line:
            yield number, line.partition("# ")[2]


def lines_of_documents() -> Iterator[tuple[str, int, str]]:
    for document in DOCUMENTS:
        for number, line in enumerate(document.read_text().splitlines(), start=1):
            yield str(document.relative_to(ROOT)), number, line


@cache
def lines_of_modules() -> list[tuple[str, int, str]]:
    """(path, line, text) of the docstrings and comments under operator/."""
    return [(path, number, line) for path, source in modules() for number, line in texts(source)]


def test_texts_speak_of_things() -> None:
    found = [
        f"{path}:{number} {match.group()}"
        for path, number, line in chain(lines_of_documents(), lines_of_modules())
        if (match := _PERSONS.search(line))
    ]
    assert not found, "\n".join(found)


def test_docstrings_say_something_of_their_own() -> None:
    found = [f"{path}:{n}" for path, n, line in lines_of_modules() if "See the module" in line]
    assert not found, "\n".join(found)


def test_modules_that_are_named_exist() -> None:
    present = {
        str(path.relative_to(ROOT / "operator")) for path in (ROOT / "operator").rglob("*.py")
    }
    found = [
        f"{path}:{number} {name}"
        for path, number, line in lines_of_modules()
        for name in _MODULE.findall(line)
        if not any(f"/{each}".endswith(f"/{name}") for each in present)
    ]
    assert not found, "\n".join(found)


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
    assert bool(_PERSONS.search(line)) is found
