"""Foreign plugins whose answers are kept by less than they depend on are found out."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stellwerk.plugins import registry
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, running

MODULE = "plugins_with_keys_of_their_own"
SOURCE = """
from stellwerk.plugin_api import NodeFilterPlugin, NodeScorePlugin, Reuse

class Team(NodeFilterPlugin):
    name = "Team"
    filter_reuse = Reuse.NODE

    def filter_node(self, pod, node):
        return None if node.labels.get("team") == pod.labels.get("team") else "of another team"

class TeamWithSmallKey(Team):
    name = "TeamWithSmallKey"

    def filter_key(self, state, pod):
        return pod.spec

class TeamWithNoneAsKey(Team):
    name = "TeamWithNoneAsKey"

    def filter_key(self, state, pod):
        return None if "team" in pod.labels else pod.spec

class TeamScore(NodeScorePlugin):
    name = "TeamScore"
    score_reuse = Reuse.NODE

    def score_node(self, pod, node):
        return 100 if node.labels.get("team") == pod.labels.get("team") else 0

class TeamScoreWithSmallKey(TeamScore):
    name = "TeamScoreWithSmallKey"

    def score_key(self, state, pod):
        return pod.spec

class TeamScoreWithKey(TeamScore):
    name = "TeamScoreWithKey"

    def score_key(self, state, pod):
        return pod.labels.get("team")
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path) -> Iterator[None]:
    (tmp_path / f"{MODULE}.py").write_text(SOURCE)
    names = re.findall(r'    name = "(.+)"', SOURCE)
    written = "\n".join(f"{name} = {MODULE}:{name}" for name in names)
    metadata = tmp_path / "keys-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: keys\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{written}\n")
    sys.path.insert(0, str(tmp_path))
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
    yield
    sys.path.remove(str(tmp_path))
    registry._registry.cache_clear()  # noqa: SLF001
    sys.modules.pop(MODULE, None)


def profile(point: str, plugin: str) -> JsonObject:
    enabled = [{"name": plugin, **({"weight": 100} if point == "score" else {})}]
    return make_profile("teams", plugins={point: {"enabled": enabled}})


async def decided(world: InProcess, name: str, team: str) -> str | None:
    world.apply(make_pod(name, cpu="1m", labels={"team": team}, scheduler_name="teams"))
    await eventually(lambda: world.node_of(name) or world.condition(name))
    return world.node_of(name)


def nodes() -> list[JsonObject]:
    return [
        make_node(f"n{number}", cpu="8", labels={"team": "red" if number == 3 else "green"})
        for number in range(4)
    ]


@pytest.mark.parametrize(
    ("point", "plugin", "key"),
    [("filter", "Team", "filter_key"), ("score", "TeamScore", "score_key")],
)
async def test_with_the_default_key_a_plugin_sees_the_spec_alone(
    point: str, plugin: str, key: str
) -> None:
    async with running() as world:
        world.apply(profile(point, plugin), *nodes())
        assert await decided(world, "p", "red") is None
        said = str(world.condition("p"))
    assert "AttributeError: pod.labels is not part of the key by which answers are reused" in said
    kept_by = {
        "filter_key": "returns None for pods whose answers depend on more",
        "score_key": "has whatever else they depend on",
    }
    assert f"Give {plugin} a {key} that {kept_by[key]}" in said


async def test_a_filter_that_contradicts_what_was_kept_is_distrusted_and_asked_anew() -> None:
    async with running() as world:
        world.apply(profile("filter", "TeamWithSmallKey"), *nodes())
        for number in range(4):
            assert await decided(world, f"red-{number}", "red") == "n3"
        # One of two cycles asks about a row that fits, and there is one.
        placed = [await decided(world, f"blue-{number}", "blue") for number in range(4)]
        assert placed[1:] == [None, None, None]
        assert await decided(world, "green", "green") in {"n0", "n1", "n2"}
        framework = world.operator.world.profiles.served["teams"].framework
        why = framework.distrusted["TeamWithSmallKey"]
        assert "its Filter gave another answer for node n3" in why

        def stated() -> JsonObject:
            (found,) = (
                each for each in world.operator.profile_status.described() if each.name == "teams"
            )
            return {each.type: (each.status, each.reason) for each in found.conditions}

        assert stated()["PluginsTrusted"] == ("False", "KeptAnswerWrong")
        text = world.operator.exposition().decode()
        assert 'stellwerk_plugins_distrusted{plugin="TeamWithSmallKey",profile="teams"} 1.0' in text


async def test_a_filter_whose_key_is_none_is_asked_in_every_cycle() -> None:
    async with running() as world:
        world.apply(profile("filter", "TeamWithNoneAsKey"), *nodes())
        for number in range(4):
            assert await decided(world, f"red-{number}", "red") == "n3"
            assert await decided(world, f"green-{number}", "green") in {"n0", "n1", "n2"}
        framework = world.operator.world.profiles.served["teams"].framework
        assert not framework.distrusted


async def test_scores_are_compared_too_and_a_key_that_has_everything_is_kept() -> None:
    async with running() as world:
        world.apply(profile("score", "TeamScoreWithSmallKey"), *nodes())
        for number in range(4):
            assert await decided(world, f"red-{number}", "red") == "n3"
        placed = [await decided(world, f"green-{number}", "green") for number in range(4)]
        assert "n3" not in placed[1:]
        served = world.operator.world.profiles.served
        assert served["teams"].framework.distrusted.keys() == {"TeamScoreWithSmallKey"}
        world.apply(profile("score", "TeamScoreWithKey"))
        await eventually(lambda: not served["teams"].framework.distrusted)
        for number in range(8):
            team = ("red", "green")[number % 2]
            node = await decided(world, f"keyed-{number}", team)
            assert (node == "n3") == (team == "red")
        assert not served["teams"].framework.distrusted
