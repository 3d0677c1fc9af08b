"""The registry knows every plugin, and survives packages that are broken."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from stellwerk.plugins.registry import (
    ENTRY_POINT_GROUP,
    IN_TREE,
    describe,
    instantiate,
    known_plugins,
    out_of_tree,
)
from stellwerk.profiles.spec.defaults import DEFAULT_PLUGINS
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from tests.support.plugin_runs import PluginHandle


class Snippets:
    """Modules of an installed package."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def entry_point(self, name: str, source: str, attribute: str = "Own") -> EntryPoint:
        (self._directory / f"{name}.py").write_text(source)
        return EntryPoint(name, f"{name}:{attribute}", ENTRY_POINT_GROUP)


@pytest.fixture
def snippets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Snippets]:
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield Snippets(tmp_path)
    for name in set(sys.modules) - known:
        del sys.modules[name]


OWN = """
class Own:
    name = "Own"
    aliases = ("Mine",)
    def filter(self, state, pod, nodes): ...
"""


def test_every_default_plugin_is_known() -> None:
    assert DEFAULT_PLUGINS.keys() <= known_plugins().keys()


def test_in_tree_plugins_keep_the_default_order() -> None:
    names = [plugin.name for plugin in IN_TREE if plugin.name in DEFAULT_PLUGINS]
    assert names == list(DEFAULT_PLUGINS)


def test_names_are_distinct() -> None:
    names = [plugin.name for plugin in IN_TREE]
    assert len(set(names)) == len(names)


def test_the_default_profile_loads_and_every_plugin_can_be_made() -> None:
    profile = load_profile(DEFAULT_PROFILE_MANIFEST, known_plugins())
    handle = PluginHandle.empty()
    made = [instantiate(name, handle, profile.args.get(name)) for name in profile.plugins.names]
    assert [plugin.name for plugin in made] == list(profile.plugins.names)


def test_extension_points_are_those_of_the_methods() -> None:
    assert known_plugins()["NodeAffinity"].extension_points == {
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.FILTER,
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
    }
    assert known_plugins()["SchedulingGates"].extension_points == {ExtensionPoint.PRE_ENQUEUE}
    assert known_plugins()["PrioritySort"].extension_points == {ExtensionPoint.QUEUE_SORT}
    assert known_plugins()["DefaultBinder"].extension_points == {ExtensionPoint.BIND}


def test_node_prefer_avoid_pods_outweighs_everything_else() -> None:
    assert known_plugins()["NodePreferAvoidPods"].default_weight == 10_000
    assert known_plugins()["ImageLocality"].default_weight == 1


def test_a_class_of_an_entry_point_is_a_plugin_under_its_name_and_aliases(
    snippets: Snippets,
) -> None:
    found = out_of_tree([snippets.entry_point("good", OWN)], ())
    assert found.keys() == {"Own", "Mine"}
    assert describe(found["Mine"]).name == "Own"
    assert describe(found["Own"]).extension_points == {ExtensionPoint.FILTER}


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        pytest.param("import no_such_module", "no_such_module", id="an import fails"),
        pytest.param("raise RuntimeError('boom')", "boom", id="the module raises"),
        pytest.param("", "Own", id="the attribute is missing"),
        pytest.param("Own = 3", "not a class", id="the attribute is no class"),
        pytest.param("class Own: ...", "not a class with a class variable", id="it has no name"),
        pytest.param(
            "class Own: name = 'Own'", "implements no extension point", id="it does nothing"
        ),
        pytest.param(
            "class Own:\n    name = 'NodeName'\n    def filter(self): ...",
            "the name NodeName is taken",
            id="its name is taken",
        ),
    ],
)
def test_an_unusable_entry_point_is_named_in_a_warning_and_absent(
    snippets: Snippets, caplog: pytest.LogCaptureFixture, source: str, reason: str
) -> None:
    points = [snippets.entry_point("broken", source), snippets.entry_point("good", OWN)]
    with caplog.at_level(logging.WARNING):
        found = out_of_tree(points, ("NodeName",))
    assert found.keys() == {"Own", "Mine"}
    (record,) = caplog.records
    assert "broken = broken:Own" in record.getMessage()
    assert reason in record.getMessage()


def test_of_two_entry_points_with_one_name_the_first_counts(
    snippets: Snippets, caplog: pytest.LogCaptureFixture
) -> None:
    points = [snippets.entry_point("first", OWN), snippets.entry_point("second", OWN)]
    assert out_of_tree(points, ())["Own"].__module__ == "first"
    assert "second" in caplog.text


class Everything:
    """Has each extension point's method."""

    name: ClassVar[str] = "Everything"
    pre_enqueue = sort_key = pre_filter = filter = post_filter = pre_score = score = None
    reserve = permit = pre_bind = bind = post_bind = placement_keys = score_placements = None


def test_every_extension_point_of_the_scheduling_cycle_has_a_method() -> None:
    assert describe(Everything).extension_points == set(ExtensionPoint)


def test_packages_of_this_distribution_are_imported_when_a_plugin_is_first_named() -> None:
    script = (
        "import sys; from stellwerk.plugins.registry import known_plugins\n"
        "known = known_plugins()\n"
        "def imported(): return any(each.startswith('stellwerk_plugins') for each in sys.modules)\n"
        "assert {'PodState', 'QOSSort'} <= set(known) and not imported()\n"
        "assert 'PodState' in known and imported()\n"
        "assert 'stellwerk_plugins.qos_sort' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
