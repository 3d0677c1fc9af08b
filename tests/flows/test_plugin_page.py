"""The snippets of docs/writing-a-plugin.md run as printed, and decide what the page says."""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from types import ModuleType
from typing import Any

import pytest
import yaml

from stellwerk.backend.queued_pod import Place
from stellwerk.plugins import registry
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "writing-a-plugin.md"
MODULE = "snippets_of_the_plugin_page"
LABEL = "example.com/blinking-lights"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def page() -> Iterator[None]:
    """The page's Python as one module, whose plugins are installed."""
    module = ModuleType(MODULE)
    sys.modules[MODULE] = module
    for block in blocks("python"):
        exec(compile(block, str(PAGE), "exec"), vars(module))  # noqa: S102 that is the test
    names = ("LightsPerNode", "Lights", "NormalizedLights", "PoolOnly")
    group = registry.ENTRY_POINT_GROUP
    points = [EntryPoint(name, f"{MODULE}:{name}", group) for name in names]
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
    assert registry.add_installed(points).keys() == set(names)
    yield
    registry._registry.cache_clear()  # noqa: SLF001
    del sys.modules[MODULE]


async def placed(world: InProcess, **spec: Any) -> str | None:
    world.apply(make_profile("lights", **spec), make_pod("web", scheduler_name="lights"))
    await eventually(lambda: world.node_of("web") or world.condition("web"))
    return world.node_of("web")


@pytest.mark.usefixtures("page")
@pytest.mark.parametrize("plugin", ["LightsPerNode", "NormalizedLights"])
async def test_the_node_with_most_lights_is_chosen(plugin: str) -> None:
    score = {"enabled": [{"name": plugin, "weight": 100}]}
    async with running() as world:
        for name, lights in (("few", "4"), ("many", "90"), ("none", "x")):
            world.apply(make_node(name, labels={LABEL: lights}))
        assert await placed(world, plugins={"score": score}) == "many"


@pytest.mark.usefixtures("page")
async def test_the_profile_of_the_page_is_accepted() -> None:
    (profile,) = blocks("yaml")
    async with running() as world:
        world.apply(make_node("n", labels={LABEL: "3"}))
        assert await placed(world, **yaml.safe_load(profile)["spec"]) == "n"


@pytest.mark.usefixtures("page")
async def test_the_filter_rejects_and_its_hint_wakes_for_another_pool_only() -> None:
    enabled = {"filter": {"enabled": [{"name": "PoolOnly"}]}}
    async with running() as world:
        world.apply(make_node("n"))
        assert await placed(world, plugins=enabled) is None
        assert "1 node(s) are in no pool" in (world.condition("web") or ("", ""))[1]
        uid = "uid-default-web"
        world.apply(make_node("n", labels={"other": "label"}))
        await quiet()
        assert world.queue.place(uid) is Place.UNSCHEDULABLE
        world.apply(make_node("n", labels={"pool": "a"}))
        world.clock.advance(30)
        await eventually(lambda: world.node_of("web") == "n")
