"""No module imports itself by way of others: each can be read, and changed, after what it uses.

Imports for type checking count, since a reader follows them too. `make layers` runs this beside
the contracts in pyproject.toml.
"""

from collections.abc import Collection, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

import grimp
import pytest

Imports = Mapping[str, Collection[str]]
"""Module → the modules it imports."""


def project_imports() -> Imports:
    """What every module of the wheel imports; importing a module imports its package first."""
    graph = grimp.build_graph("stellwerk", "stellwerk_cluster", cache_dir=None)
    return {
        module: graph.find_modules_directly_imported_by(module) | _package(module)
        for module in graph.modules
    }


def circles(imports: Imports) -> list[list[str]]:
    """Circles to break, each from a module back to it; none is left once these are broken.

    After a circle is found, the import that closes it is left out and the search begins again.
    """
    remaining = {module: sorted(imports[module]) for module in sorted(imports)}
    found: list[list[str]] = []
    while True:
        try:
            TopologicalSorter(remaining).prepare()
        except CycleError as error:
            backwards: list[str] = error.args[1]  # each is imported by the one after it
            circle = backwards[::-1]
            found.append(circle)
            remaining[circle[0]].remove(circle[1])
        else:
            return found


def _package(module: str) -> set[str]:
    package = module.rpartition(".")[0]
    return {package} if package else set()


def test_no_module_imports_itself_by_way_of_others() -> None:
    found = circles(project_imports())
    assert not found, "\n".join(["circles of modules:", *map(" → ".join, found)])


@pytest.mark.parametrize(
    ("imports", "count"),
    [
        pytest.param({"a": {"b"}, "b": {"c"}, "c": set()}, 0, id="a chain"),
        pytest.param({"a": {"b"}, "b": {"a"}}, 1, id="two modules"),
        pytest.param({"a": {"b"}, "b": {"c"}, "c": {"a", "b"}}, 2, id="one circle within another"),
        pytest.param({"p": {"p.a"}, "p.a": {"p"}}, 1, id="a package and its module"),
    ],
)
def test_circles_are_found(imports: Imports, count: int) -> None:
    found = circles(imports)
    assert len(found) == count
    for circle in found:
        assert circle[0] == circle[-1]
        assert all(imported in imports[module] for module, imported in pairwise(circle))
