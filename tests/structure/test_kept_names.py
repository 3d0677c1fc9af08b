"""What is kept by a name that tenants may choose has a bound, and stands in one table."""

import ast
import re
from collections.abc import Iterator

from stellwerk.metrics import Metrics
from tests.support.repository import ROOT

_OPERATOR = ROOT / "operator"
_PACKAGES = ("stellwerk", "stellwerk_kube")
_PAGE = ROOT / "docs/security-findings.md"
_HEADING = "## What is kept by name\n"
_BYTES = re.compile(r"^[\d.]+ MiB|^as much as ")
"""Those whose processes live long; commands and what a user gives to them end soon."""


def _kept() -> Iterator[tuple[str, str]]:
    """Each table and memo of a module, and its bound: a number of entries, or `weak`."""
    for file in sorted(file for each in _PACKAGES for file in (_OPERATOR / each).rglob("*.py")):
        parts = file.relative_to(_OPERATOR).with_suffix("").parts
        module = ".".join(parts).removeprefix("stellwerk.")
        tree = ast.parse(file.read_text(encoding="utf-8"))
        numbers = {
            node.target.id: ast.unparse(node.value)
            for node in tree.body
            if isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.value is not None
        }
        for node in tree.body:
            for name, made in _made(node):
                if made.startswith(("WeakValueDictionary", "WeakKeyDictionary")):
                    yield f"{module}.{name}", "weak"
                elif found := re.match(r"lru_cache\(maxsize=(.+?)\)(?:\(|$)", made):
                    size = numbers.get(found[1], found[1])
                    yield f"{module}.{name}", str(eval(size, {}))  # noqa: S307 of our own source
                elif made.startswith(("cache", "lru_cache", "{}", "dict(", "RecentlyMade(")):
                    yield f"{module}.{name}", "by hand"


def _made(node: ast.stmt) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef) and node.args.args:
        yield from ((node.name, ast.unparse(each)) for each in node.decorator_list)
    elif isinstance(node, ast.AnnAssign | ast.Assign) and node.value is not None:
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        name = ast.unparse(target)
        if not (name.isupper() and ast.unparse(node.value) == "{}"):  # nothing is put into these
            yield name, ast.unparse(node.value)


def _rows() -> dict[str, str]:
    """The bounds of the page by name."""
    section = _PAGE.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `([\w.]+)` \| ([^|]+?) \|", section, re.MULTILINE))


def _memory() -> dict[str, str]:
    """What each may take, by name."""
    section = _PAGE.read_text(encoding="utf-8").partition(_HEADING)[2].partition("\n## ")[0]
    row = r"^\| `([\w.]+)` \|[^|]+\|[^|]+\| ([^|]+) \|"
    return dict(re.findall(row, section, re.MULTILINE))


def test_each_table_and_memo_stands_on_the_page_with_its_bound() -> None:
    rows, labels = _rows(), _labels()
    kept = dict(_kept())
    assert {name for name in rows if "." in name} == kept.keys()
    for name, bound in kept.items():
        told = rows[name].replace(",", "")
        assert told == bound if bound.isdigit() else told.startswith(("as long as", "fixed"))
        assert told.startswith("as long as") or bound != "weak"
        assert _BYTES.search(_memory()[name]), name
    assert {name for name in rows if "." not in name} == labels


def _labels() -> set[str]:
    """The labels of all metrics."""
    return {
        name for family in vars(Metrics()).values() for name in getattr(family, "label_names", ())
    }
