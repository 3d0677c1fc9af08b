"""tests/unit mirrors operator/: the test of a module lies where the module lies, under its name.

A module with several subjects may have a test file for each: `test_<module>_<subject>.py`.
"""

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
    "stellwerk_plugins/test_arguments.py",
}
"""One table each, whose rows are plugins."""


def has_module(test: Path) -> bool:
    """Whether a test is named for a module under operator/, with or without a subject of it."""
    inside = test.relative_to(UNIT)
    beside = {path.name for path in OPERATOR.glob("stellwerk_*")}
    package = OPERATOR if inside.parts[0] in beside else OPERATOR / "stellwerk"
    words = inside.stem.removeprefix("test_").split("_")
    names = ("_".join(words[:count]) for count in range(len(words), 0, -1))
    return any((package / inside.parent / f"{name}.py").is_file() for name in names)


def test_every_unit_test_is_named_for_the_module_it_tests() -> None:
    tests = {str(path.relative_to(UNIT)): path for path in UNIT.rglob("test_*.py")}
    astray = {name for name, path in tests.items() if not has_module(path)}
    assert sorted(astray - OF_SEVERAL_PLUGINS) == []
    assert sorted(OF_SEVERAL_PLUGINS - astray) == [], "these exist no more, or have a module"
