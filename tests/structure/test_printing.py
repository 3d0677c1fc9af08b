"""One door for what commands print: rich is known to one module, and to it without its markup.

`ruff` forbids `import rich` elsewhere (banned-api in pyproject.toml); what it cannot see is here.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

OPERATOR: Final = ROOT / "operator"
DOOR: Final = OPERATOR / "stellwerk_cli" / "commands" / "printer.py"
MARKUP: Final = {"rich.markup", "rich.emoji", "rich.jupyter", "rich.traceback", "rich.logging"}
"""Modules of rich that read texts, or print past a console."""


def imported(tree: ast.AST) -> Iterator[str]:
    """The modules that are imported anywhere in a module, and the names from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for path in OPERATOR.rglob("*.py")}


def test_one_module_prints_with_rich_and_knows_no_markup() -> None:
    modules = trees()
    names = {path: set(imported(tree)) for path, tree in modules.items()}
    with_rich = [
        path for path, found in names.items() if any(each.split(".")[0] == "rich" for each in found)
    ]
    assert with_rich == [DOOR]
    assert names[DOOR] & MARKUP == set()
    consoles = [
        node
        for node in ast.walk(modules[DOOR])
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Console"
    ]
    assert consoles == [], "a Printer is the only console"
    for node in ast.walk(modules[DOOR]):
        if isinstance(node, ast.keyword) and node.arg in {"markup", "emoji", "highlight"}:
            assert isinstance(node.value, ast.Constant), ast.unparse(node)
            assert node.value.value is False, ast.unparse(node)
        assert not (isinstance(node, ast.Attribute) and node.attr == "from_markup")


def test_a_cell_of_a_table_is_made_by_the_printer() -> None:
    """A string in a row would be parted by its line breaks, into what looks like other rows."""
    (row,) = (
        node
        for tree in trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "add_row"
    )
    (cells,) = row.args
    assert isinstance(cells, ast.Starred)
    assert isinstance(cells.value, ast.GeneratorExp)
    assert ast.unparse(cells.value.elt).startswith("_joined(")
