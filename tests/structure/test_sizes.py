"""A function fits on a screen or two, a module in one sitting. Docstrings count as lines.

The limits are the outermost; half of all functions have seven lines. Split at a change of subject.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

FUNCTION_LINES: Final = 60
MODULE_LINES: Final = 450

OPERATOR: Final = ROOT / "operator"


def modules() -> Iterator[tuple[str, str]]:
    """(path, text) of every module under operator/."""
    for path in sorted(OPERATOR.rglob("*.py")):
        yield str(path.relative_to(ROOT)), path.read_text()


def function_lengths(text: str) -> Iterator[tuple[int, str, int]]:
    """(line, name, number of lines) of every function of a module, nested ones and methods too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.lineno, node.name, node.end_lineno - node.lineno + 1


def test_no_function_is_longer_than_60_lines() -> None:
    too_long = [
        f"{path}:{line} {name}: {length} lines"
        for path, text in modules()
        for line, name, length in function_lengths(text)
        if length > FUNCTION_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_no_module_is_longer_than_450_lines() -> None:
    lengths = {path: len(text.splitlines()) for path, text in modules()}
    too_long = [
        f"{path}: {length} lines" for path, length in lengths.items() if length > MODULE_LINES
    ]
    assert not too_long, "\n".join(too_long)


def test_functions_are_measured_from_def_to_end() -> None:
    lengths = {name: n for _, name, n in function_lengths(Path(__file__).read_text())}
    assert lengths["modules"] == 4
    assert lengths["test_functions_are_measured_from_def_to_end"] == 4
