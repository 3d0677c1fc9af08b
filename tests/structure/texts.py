"""The words of docstrings, comments and documents: what is never right, with its place.

`make lint` runs it (`python -m tests.structure.texts`), beside ruff, which knows no English.
Invariant: what needs judgement is no rule here.
"""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final

from tests.support.repository import ROOT

PERSONS: Final = re.compile(
    r"\b((any|every|no|some)body|(any|every|some)one|no one(?!-)|who(m|ever)"
    r"|(is|are|was|were|be|been) told|for ever)\b",
    re.IGNORECASE,
)
"""Words for persons where a thing acts."""
TURN: Final = re.compile(r"(?:^|_)(?:turn(?!_away)|TURN)[sS]?(?:_|$)|Turns?(?![a-z])")
"""A word in symbols that meant six things: each has a name of its own, such as slice."""
BEGINNINGS: Final = re.compile(
    r"\s*(So (?:many|long)|Of|The same|That|What|Which|How|Why|Who|Whose|Whom|Where|When)\b"
)
"""Beginnings of docstrings that leave out the noun: the thing or the act comes first."""
_MODULE: Final = re.compile(r"`([\w/]+\.py)`")
_OPERATOR: Final = ROOT / "operator"


@cache
def modules() -> dict[str, str]:
    """The source of each module below operator/, by its path there."""
    return {
        str(path.relative_to(_OPERATOR)): path.read_text("utf-8")
        for path in sorted(_OPERATOR.rglob("*.py"))
    }


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


def docstrings(source: str) -> Iterator[tuple[int, str, bool]]:
    """(line, text, whether another text stands right before it) of the docstrings of a module.

    A text behind an assignment is one, too.
    """
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        behind_text = False
        for each in body if isinstance(body, list) else ():
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield each.lineno, text, behind_text
                    behind_text = True
                case _:
                    behind_text = False


def faults_of_docstrings(source: str) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of docstrings: their first words, and a text behind a text."""
    for number, text, behind_text in docstrings(source):
        if found := BEGINNINGS.match(text):
            yield number, f'a docstring begins with the thing or the act, not with "{found[1]}"'
        if behind_text:
            yield number, "a text right behind a text: only one of them belongs to what is above"


def faults_of_line(line: str) -> Iterator[str]:
    """What is wrong with a line of a docstring, a comment or a document."""
    if found := PERSONS.search(line):
        yield f'"{found[0]}": name the thing, not a person'


def faults_of_module(source: str, present: set[str]) -> Iterator[tuple[int, str]]:
    """(line, what is wrong) of a module, where these paths of modules are present."""
    for number, line in texts(source):
        yield from ((number, fault) for fault in faults_of_line(line))
        if "See the module" in line:
            yield number, "a docstring that says nothing of its own"
        for name in _MODULE.findall(line):
            if not any(f"/{each}".endswith(f"/{name}") for each in present):
                yield number, f"no module is called {name}"
    for node in ast.walk(ast.parse(source)):
        for kind in ("name", "id", "attr", "arg", "asname"):
            name = getattr(node, kind, None)
            if isinstance(name, str) and TURN.search(name):
                yield getattr(node, "lineno", 1), f'{name}: "turn" means too much'


def documents() -> Iterator[str]:
    """The paths of the documents that people write."""
    for folder in ("", ".github/", "docs/**/", "tests/**/"):
        for path in sorted(ROOT.glob(f"{folder}*.md")):
            if path.parent.name != "made":
                yield str(path.relative_to(ROOT))


def faults() -> Iterator[str]:
    """A line for each fault: path, line number, what is wrong."""
    present = set(modules())
    for path, source in modules().items():
        for number, fault in faults_of_module(source, present):
            yield f"operator/{path}:{number}: {fault}"
        for number, fault in faults_of_docstrings(source):
            yield f"operator/{path}:{number}: {fault}"
    for path in documents():
        for number, line in enumerate((ROOT / path).read_text("utf-8").splitlines(), start=1):
            yield from (f"{path}:{number}: {fault}" for fault in faults_of_line(line))


if __name__ == "__main__":
    found = [*faults()]
    sys.stdout.writelines(f"{line}\n" for line in found)
    sys.exit(bool(found))
