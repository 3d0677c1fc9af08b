"""Counting room for groups: asked by protocol, so that a fork of NodeResourcesFit counts alike."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from stellwerk.framework.extension_points import COUNTS_ROOM
from stellwerk.framework.types import PluginFailure
from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.plugins import node_resources_fit, registry
from stellwerk.profiles.spec.plugin_description import ExtensionPoint
from stellwerk.world.gangs.group_attempt import GroupRequest
from stellwerk.world.gangs.group_capacity import UNCOUNTED, capacity, resources_counted_by_plugins
from stellwerk.world.gangs.group_decision import MAX_PLACEMENTS_TRIED, GroupDecision, decide_group
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.group_decisions import GroupWorld, driven, nodes_of
from tests.support.pod_groups import constrained_to, make_group, make_member

ORIGINAL = "NodeResourcesFit"
FORK = "RoomFork"
RACK = "example.com/rack"
RACKS = MAX_PLACEMENTS_TRIED + 3


@pytest.fixture
def _fork(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install a copy of NodeResourcesFit's file under another name, as a package of a user."""
    source = inspect.getsource(node_resources_fit)
    assert source.count(f'"{ORIGINAL}"') == 1
    (tmp_path / "room_fork.py").write_text(source.replace(f'"{ORIGINAL}"', f'"{FORK}"'))
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint(FORK, "room_fork:NodeResourcesFit", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group else [])
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
    yield
    registry._registry.cache_clear()  # noqa: SLF001


def world_with(plugin: str, *objects: JsonObject) -> GroupWorld:
    names = [{"name": ORIGINAL}]
    points = {"disabled": names, "enabled": [{"name": plugin}]} if plugin != ORIGINAL else {}
    world = GroupWorld(*objects, plugins={"multiPoint": points})
    assert plugin in {each.name for at in world.served.framework.plugins.values() for each in at}
    return world


def members(count: int, cpu: str, **spec: Any) -> list[JsonObject]:
    return [make_member(f"p{number}", "g", cpu=cpu, **spec) for number in range(count)]


def decide(plugin: str, objects: list[JsonObject], group: JsonObject, cpu: str) -> GroupDecision:
    return world_with(plugin, *objects).decide(group, members(3, cpu, priority=10))


def outcome(decision: GroupDecision) -> dict[str, Any]:
    preemption = decision.preemption
    return {
        "nodes": nodes_of(decision),
        "message": decision.message.replace(FORK, ORIGINAL),
        "attempts": decision.attempts,
        "victims": sorted(pod.name for pod in preemption.victims) if preemption else None,
        "rejected by": {ORIGINAL if name == FORK else name for name in decision.rejected_by},
    }


TWO_NODES = [make_node("n1", cpu="2"), make_node("n2", cpu="1")]
MANY_RACKS = [
    make_node(f"n{number}", cpu="4" if number == RACKS - 1 else "2", labels={RACK: f"r{number}"})
    for number in range(RACKS)
]
FULL = [
    make_node("n1", cpu="4"),
    make_node("n2", cpu="4"),
    *(make_pod(f"v{n}", node_name=f"n{1 + n % 2}", cpu="2", priority=n) for n in range(4)),
]


@pytest.mark.usefixtures("_fork")
@pytest.mark.parametrize(
    ("objects", "group", "cpu", "placed"),
    [
        pytest.param(TWO_NODES, make_group("g", 3), "1", True, id="a gang that fits"),
        pytest.param(TWO_NODES, make_group("g", 3), "2", False, id="a gang that fits nowhere"),
        pytest.param(
            MANY_RACKS,
            make_group("g", 3, schedulingConstraints=constrained_to(RACK)),
            "1",
            True,
            id="the last of more racks than are tried",
        ),
        pytest.param(FULL, make_group("g", 3), "2", False, id="a gang that preempts"),
    ],
)
def test_a_fork_decides_groups_as_the_original(
    objects: list[JsonObject], group: JsonObject, cpu: str, *, placed: bool
) -> None:
    original = decide(ORIGINAL, objects, group, cpu)
    assert original.placed == placed
    assert outcome(decide(FORK, objects, group, cpu)) == outcome(original)


@pytest.mark.usefixtures("_fork")
def test_by_a_forks_count_the_only_rack_with_room_is_tried_first_and_alone() -> None:
    group = make_group("g", 3, schedulingConstraints=constrained_to(RACK))
    assert decide(FORK, MANY_RACKS, group, "1").attempts == 1


@pytest.mark.usefixtures("_fork")
@pytest.mark.parametrize("plugin", [ORIGINAL, FORK])
def test_a_group_that_the_cluster_is_too_small_for_waits_for_the_plugin_that_counts(
    plugin: str,
) -> None:
    world = world_with(plugin, *TWO_NODES)
    pods = [parse_pod(each) for each in members(3, "1")]
    assert resources_counted_by_plugins(world.world, world.served, pods) == {"cpu"}
    group = replace(parse_pod_group(make_group("g", 3)), min_resources={"cpu": 9_000})
    decision = driven(decide_group(world.world, world.served, GroupRequest(group, pods)))
    assert "insufficient cpu" in decision.message
    assert decision.rejected_by == {plugin}


def test_without_a_plugin_that_counts_nothing_limits_the_members_of_a_node() -> None:
    world = GroupWorld(
        make_node("n1", cpu="2"), plugins={"multiPoint": {"disabled": [{"name": ORIGINAL}]}}
    )
    pods = [parse_pod(each) for each in members(3, "1")]
    world.cache.update_snapshot()
    found = capacity(world.world, world.served, pods)
    assert not found.exact
    assert found.per_row.tolist() == [UNCOUNTED]


@pytest.mark.usefixtures("_fork")
def test_a_plugin_of_a_user_that_counts_nonsense_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with(FORK, *TWO_NODES)
    (plugin,) = COUNTS_ROOM.among(world.served.framework.plugins[ExtensionPoint.FILTER])
    monkeypatch.setattr(type(plugin.plugin), "counted_resources", lambda *_: 3)  # type: ignore[attr-defined]
    world = world_with(FORK, *TWO_NODES)
    pods = [parse_pod(each) for each in members(3, "1")]
    with pytest.raises(PluginFailure, match=r"CountsRoom.*RoomFork.*answered int, not names"):
        resources_counted_by_plugins(world.world, world.served, pods)
