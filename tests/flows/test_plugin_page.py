"""The snippets of docs/writing-a-plugin.md run as printed, and decide what the page says."""

import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.backend.queued_pod import Place
from stellwerk.plugins import registry
from stellwerk_cli.cli import main
from tests.support.builders import make_node, make_pod
from tests.support.explaining_port import explaining_port
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.repository import ROOT

PAGE = ROOT / "docs" / "writing-a-plugin.md"
MODULE = "snippets_of_the_plugin_page"
LABEL = "example.com/blinking-lights"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.fixture
def page(tmp_path: Path) -> Iterator[None]:
    """The page's Python as one module of a package, whose plugins are installed."""
    directory = tmp_path
    (directory / f"{MODULE}.py").write_text("\n".join(blocks("python")))
    names = ["LightsPerNode", "Lights", "NormalizedLights", "PoolOnly"]
    names += ["ExplainedPools", "OutOfService", "Cheapest", "SameTeam"]
    written = "\n".join(f"{name} = {MODULE}:{name}" for name in names)
    metadata = directory / "snippets-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: snippets\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{written}\n")
    sys.path.insert(0, str(directory))
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
    try:
        assert set(names) <= registry.known_plugins().keys()
        yield
    finally:
        sys.path.remove(str(directory))
        registry._registry.cache_clear()  # noqa: SLF001
        sys.modules.pop(MODULE, None)


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
async def test_a_filter_whose_key_is_none_for_some_pods_tells_teams_apart() -> None:
    enabled = {"filter": {"enabled": [{"name": "SameTeam"}]}}
    async with running() as world:
        world.apply(make_profile("lights", plugins=enabled), make_node("n", labels={"team": "red"}))
        for team in ("red", "blue"):
            pods = [
                make_pod(f"{team}-{number}", labels={"team": team}, scheduler_name="lights")
                for number in range(2)
            ]
            world.apply(*pods)
        await eventually(lambda: all(map(world.node_of, ("red-0", "red-1"))))
        await eventually(lambda: all(map(world.condition, ("blue-0", "blue-1"))))
        assert not any(map(world.node_of, ("blue-0", "blue-1")))


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


@pytest.mark.usefixtures("page")
async def test_a_proposal_and_a_line_of_the_plugin_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    enabled = {"filter": {"enabled": [{"name": "ExplainedPools"}]}}
    async with explaining_port() as port:
        port.world.apply(make_node("n"))
        assert await placed(port.world, plugins=enabled) is None
        asked = ["explain", "pod", "web", "--url", port.url]
        assert await asyncio.to_thread(main, asked) == 0
    printed = capsys.readouterr().out
    assert "ExplainedPools: there are 0 pools" in printed
    assert "• label n pool=shared" in printed


@pytest.mark.usefixtures("page")
async def test_objects_of_a_kind_of_its_own_decide_and_wake() -> None:
    outage = {"metadata": {"name": "n", "uid": "outage", "resourceVersion": "1"}}
    async with running() as world:
        handlers = world.operator.handlers
        handlers.on_object("Outage", "ADDED", outage)
        world.apply(make_node("n"))
        enabled = {"filter": {"enabled": [{"name": "OutOfService"}]}}
        assert await placed(world, plugins=enabled) is None
        assert [kind.plural for kind in world.operator.sources.kinds] == ["outages"]
        handlers.on_object("Outage", "DELETED", outage)
        await eventually(lambda: world.node_of("web") == "n")


@pytest.mark.usefixtures("page")
async def test_a_source_of_numbers_decides_with_what_it_read_last() -> None:
    async def prices(_: str, **__: Any) -> dict[str, str]:
        return {"dear": "9", "cheap": "1"}

    async with running() as world:
        world.operator.web.get = prices  # type: ignore[assignment, method-assign]
        world.apply(make_node("dear"), make_node("cheap"))
        enabled = {"score": {"enabled": [{"name": "Cheapest", "weight": 100}]}}
        world.apply(make_profile("lights", plugins=enabled))
        await eventually(lambda: bool(list(world.operator.world.objects.list("Prices"))))
        assert await placed(world, plugins=enabled) == "cheap"
