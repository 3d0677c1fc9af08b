"""tests/unit mirrors operator/: the test of a module lies where the module lies, under its name."""

from pathlib import Path
from typing import Final

from tests.support.repository import ROOT

UNIT: Final = ROOT / "tests" / "unit"
OPERATOR: Final = ROOT / "operator"

OF_SEVERAL_PLUGINS: Final = {
    "client/test_fenced_writes.py",
    "plugins/test_gpu_plugins.py",
    "plugins/test_hints_of_node_plugins.py",
    "plugins/test_hints_pairwise.py",
    "plugins/test_node_plugins.py",
    "plugins/test_resource_plugins.py",
    "plugins/test_small_plugins.py",
}
"""One table each, whose rows are plugins."""


def module_of(test: Path) -> Path:
    """The path under operator/ of the module that a test is named for."""
    inside = test.relative_to(UNIT)
    beside = {"stellwerk_cluster", "stellwerk_simulation"}
    package = OPERATOR if inside.parts[0] in beside else OPERATOR / "stellwerk"
    return package / inside.parent / inside.name.removeprefix("test_")


def test_every_unit_test_is_named_for_the_module_it_tests() -> None:
    tests = {str(path.relative_to(UNIT)): path for path in UNIT.rglob("test_*.py")}
    astray = {name for name, path in tests.items() if not module_of(path).is_file()}
    assert sorted(astray - OF_SEVERAL_PLUGINS) == []
    assert sorted(OF_SEVERAL_PLUGINS - astray) == [], "these exist no more, or have a module"
