"""A package that is installed while the operator runs is found when a profile names its plugin."""

import asyncio
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from stellwerk.scheduler.profiles.new_plugins import NewPlugins
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, running

SOURCE = """
from stellwerk.framework.node_adapter import NodeFilterPlugin

class {name}(NodeFilterPlugin):
    name = "{name}"
    def filter_node(self, pod, node):
        return None if node.name == "late" else "not the late one"
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory of packages that this process looks into."""
    known = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def install(site: Path, name: str, source: str = SOURCE) -> None:
    """What pip leaves behind: a module, and metadata with an entry point."""
    (site / f"{name.lower()}.py").write_text(source.format(name=name))
    information = site / f"{name.lower()}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = f"[stellwerk.plugins]\n{name} = {name.lower()}:{name}\n"
    (information / "entry_points.txt").write_text(points)


def accepted(world: InProcess, profile: str) -> bool:
    return world.operator.loader.entries[profile].refusal is None


def naming(plugin: str) -> dict[str, Any]:
    return {"plugins": {"filter": {"enabled": [{"name": plugin}]}}}


async def test_the_profile_serves_once_the_package_is_there(site: Path) -> None:
    async with running() as world:
        finder = NewPlugins(world.operator.loader)
        world.apply(make_node("early"), make_node("late"))
        world.apply(make_profile("a", **naming("LatePlugin")), make_pod("web", scheduler_name="a"))
        assert not accepted(world, "a")
        assert world.operator.loader.lacks_plugins()
        await finder.look()
        assert not accepted(world, "a")
        install(site, "LatePlugin")
        await finder.look()
        assert accepted(world, "a")
        assert not world.operator.loader.lacks_plugins()
        await eventually(lambda: world.node_of("web") == "late")


async def test_a_package_that_is_broken_is_named_once_and_harms_nothing(
    site: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = InProcess()
    finder = NewPlugins(world.operator.loader)
    world.apply(make_profile("a"), make_profile("b", **naming("BrokenPlugin")))
    install(site, "BrokenPlugin", "raise OSError('no such library')")
    for _ in range(3):
        await finder.look()
    assert not accepted(world, "b")
    assert accepted(world, "a")
    said = [line for line in caplog.messages if "BrokenPlugin" in line and "entry point" in line]
    assert len(said) == 1
    assert "OSError: no such library" in said[0]


async def test_nothing_is_read_while_no_profile_lacks_a_plugin(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = "stellwerk.scheduler.profiles.new_plugins"
    monkeypatch.setattr(f"{module}.LOOK_SECONDS", 0.0)
    looks: list[int] = []
    world = InProcess()

    def installed() -> tuple[EntryPoint, ...]:
        looks.append(1)
        return ()

    finder = NewPlugins(world.operator.loader, installed)
    world.apply(make_profile("a"), make_profile("wrong", podMaxBackoffSeconds=0))
    task = asyncio.create_task(finder.run())
    for _ in range(20):
        await asyncio.sleep(0)
    assert looks == []
    world.apply(make_profile("b", **naming("NoSuchPlugin")))
    await eventually(lambda: looks)
    task.cancel()
    await asyncio.wait({task})
