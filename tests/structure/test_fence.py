"""The docstring of Fence names every function that asks `check`, and no other."""

import ast
import re
from collections.abc import Iterator

from stellwerk.client.connection import Fence
from tests.support.repository import ROOT

_CLIENT = ROOT / "operator/stellwerk/client"
_CHECK = re.compile(r"\b_?fence\.check\(")


def _calling() -> Iterator[str]:
    """Each function or method of the client that calls `check` of a fence."""
    for file in sorted(_CLIENT.glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            prefix, functions = "", [node]
            if isinstance(node, ast.ClassDef):
                prefix, functions = f"{node.name}.", node.body
            for each in functions:
                if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                if _CHECK.search(ast.unparse(each)):
                    yield f"{prefix}{each.name}"


def test_the_docstring_names_all_who_ask_the_fence() -> None:
    paragraphs = (Fence.__doc__ or "").split("\n\n")
    (callers,) = (each for each in paragraphs if each.strip().startswith("These call `check`"))
    named = set(re.findall(r"`([\w.]+)`", callers)) - {"check"}
    assert named == set(_calling())
