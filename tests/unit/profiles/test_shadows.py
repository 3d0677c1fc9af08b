"""A shadow says what it would have done, and does nothing."""

from typing import Any

import pytest

from stellwerk.world.world import World
from tests.support.answers import as_json
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.storage import claim_volume, make_claim, make_class

PACKING = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]


def make_shadow(of: str = "s", **spec: Any) -> dict[str, Any]:
    profile = make_profile("next", created=5, **{"sampleOneIn": 1, **spec})
    profile["spec"] = {**profile["spec"], "shadowOf": of}
    del profile["spec"]["schedulerName"]
    return profile


async def schedule(world: InProcess, pods: int) -> None:
    for number in range(pods):
        world.apply(make_pod(f"p{number}", cpu="500m", schedulerName="s"))
        await quiet(20)


def found(world: InProcess) -> dict[str, Any]:
    described = world.operator.loader.shadows.described("next")
    assert described is not None
    return as_json(described)


def refusal_of(world: InProcess) -> str | None:
    refusal = world.operator.loader.entries["next"].refusal
    return None if refusal is None else refusal.message


async def test_differences_have_both_scores_and_the_plugin_that_made_them() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(pluginConfig=PACKING))
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(5)))
        await schedule(world, 10)
        said = found(world)
        assert said["compared"] == said["decisions"] == 10
        assert said["differing"] == len(said["differences"]) > 0
        assert float(said["meanGain"]) > 0
        for each in said["differences"]:
            assert each["node"] != each["shadowNode"]
            assert each["shadowTotal"] > each["total"]
            assert each["plugin"] == "NodeResourcesFit"
        assert all(world.node_of(f"p{number}") for number in range(10))
        assert world.operator.world.queue.pending()["active"] == 0


async def test_the_same_profile_never_differs_by_its_ties() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow())
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(20)))
        await schedule(world, 20)
        assert (found(world)["compared"], found(world)["differing"]) == (20, 0)


async def test_a_node_that_the_shadow_turns_away_and_one_that_it_alone_has() -> None:
    disabled: dict[str, Any] = {"plugins": {"filter": {"disabled": [{"name": "TaintToleration"}]}}}
    tainted = make_node("n1", cpu="4")
    tainted["spec"] = {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}
    async with running() as world:
        world.apply(make_profile("s", **disabled), make_shadow(), tainted)
        await schedule(world, 1)
        (difference,) = found(world)["differences"]
        assert (difference["node"], difference["shadowNode"]) == ("n1", "")
        assert difference["plugin"] == "TaintToleration"
        assert "untolerated taint" in difference["reason"]
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(**disabled), tainted)
        await schedule(world, 1)
        (difference,) = found(world)["differences"]
        assert (difference["node"], difference["shadowNode"]) == ("", "n1")
        assert world.node_of("p0") is None, "a shadow never binds"


async def test_one_in_so_many_and_none_for_pods_that_waited() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(sampleOneIn=4))
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(5)))
        await schedule(world, 16)
        assert (found(world)["decisions"], found(world)["compared"]) == (16, 4)
    async with running() as world:
        world.apply(make_shadow(skipIfWaitedSeconds=2), make_node("n1"))
        world.apply(make_profile("s"))
        world.apply(make_pod("early", schedulerName="s"))
        world.clock.advance(3)
        await quiet(50)
        assert (found(world)["compared"], found(world)["skipped"]) == (0, 1)


async def test_a_pod_that_was_unschedulable_for_long_has_not_waited_for_its_turn() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(skipIfWaitedSeconds=2))
        world.apply(make_node("small", cpu="1m"), make_pod("p", cpu="1", schedulerName="s"))
        await quiet(50)
        world.clock.advance(30)
        world.apply(make_node("n1", cpu="2"))
        await quiet(50)
        assert world.node_of("p") == "n1"
        assert (found(world)["compared"], found(world)["skipped"]) == (2, 0)


async def test_pods_that_come_in_a_rhythm_are_not_always_left_out() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(sampleOneIn=2), make_node("n", cpu="64"))
        compared = [0]
        for number in range(40):
            world.apply(make_pod(f"p{number}", schedulerName="s"))
            await quiet(20)
            compared.append(found(world)["compared"])
        assert found(world)["decisions"] == 40
        looked_at = [number for number in range(40) if compared[number + 1] > compared[number]]
        assert len(looked_at) == 20
        assert {number % 2 for number in looked_at} == {0, 1}


async def test_volumes_that_the_decision_has_reserved_are_still_free_for_the_shadow() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(pluginConfig=PACKING))
        world.apply(make_node("full", cpu="4"), make_node("empty", cpu="4"))
        world.apply(make_pod("there", cpu="2", node_name="full"))
        handlers = world.operator.handlers
        handlers.on_object("StorageClass", None, make_class("local"))
        handlers.on_object("PersistentVolumeClaim", None, make_claim("data", storage_class="local"))
        volumes = claim_volume("data")
        world.apply(make_pod("p", cpu="500m", schedulerName="s", volumes=volumes))
        while "uid-default-p" not in world.cache.assumed_pods:
            await quiet(1)
        await quiet(1)
        (difference,) = found(world)["differences"]
        assert (difference["node"], difference["shadowNode"]) == ("empty", "full")


async def test_a_shadow_without_a_profile_to_shadow_says_so_and_recovers() -> None:
    async with running() as world:
        world.apply(make_shadow())
        await quiet(50)
        refusal = 'spec.shadowOf: no SchedulerProfile "s" serves'
        assert refusal_of(world) == refusal
        world.apply(make_profile("s"))
        assert refusal_of(world) is None
        assert set(world.profiles.served) == {"s"}
        world.delete("SchedulerProfile", "s")
        assert refusal_of(world) == refusal
        assert world.operator.loader.shadows.by_name == {}


async def test_a_shadow_that_cannot_decide_harms_itself_alone() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(), make_node("n1", cpu="4"))
        (shadow,) = world.operator.loader.shadows.by_name.values()
        shadow.profile.framework.filtering = None  # type: ignore[assignment]
        await schedule(world, 2)
        assert world.node_of("p1") == "n1"
        assert (found(world)["failed"], found(world)["compared"]) == (2, 0)


async def test_its_status_tells() -> None:
    async with running() as world:
        world.apply(make_profile("s"), make_shadow(), make_node("n1", cpu="4"))
        await schedule(world, 3)
        world.clock.advance(10)
        await world.status.write_changed()
        status = world.profile("next")
        assert status["shadow"]["compared"] == 3
        active = next(each for each in status["conditions"] if each["type"] == "Active")
        assert (active["reason"], active["status"]) == ("Shadowing", "True")


async def test_why_there_is_nothing_to_shadow() -> None:
    async with running() as world:
        world.apply(make_profile("packing"), make_shadow("packin"))
        refusal = 'spec.shadowOf: no SchedulerProfile "packin" serves; did you mean "packing"?'
        assert refusal_of(world) == refusal
        world.apply(make_shadow("next"))
        refusal = 'spec.shadowOf: "next" schedules no pods: it cannot shadow itself'
        assert refusal_of(world) == refusal
        other = make_shadow("packing")
        other["metadata"] = {**other["metadata"], "name": "other", "uid": "other"}
        world.apply(other, make_shadow("other"))
        refusal = 'spec.shadowOf: "other" schedules no pods: it is a shadow itself'
        assert refusal_of(world) == refusal


async def test_decisions_on_groups_are_compared_as_each_member_found_them() -> None:
    async with running() as world:
        world.apply(make_profile("s", gangScheduling=True))
        world.apply(make_shadow(gangScheduling=True, pluginConfig=PACKING))
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(5)))
        world.apply(make_group("g", 3), make_group("large", 2))
        world.apply(*(make_member(f"g{n}", "g", scheduler_name="s", cpu="1") for n in range(3)))
        world.apply(*(make_member(f"l{n}", "large", scheduler_name="s", cpu="9") for n in range(2)))
        await quiet(60)
        said = found(world)
        assert (said["compared"], said["groups"], said["failed"]) == (2, 2, 0)
        assert said["differing"] == 1
        assert {each["group"] for each in said["differences"]} == {"default/g"}
        # The first of them finds only empty nodes; the others would go where it went.
        assert {each["pod"] for each in said["differences"]} == {"default/g1", "default/g2"}
        assert all(each["shadowTotal"] > each["total"] for each in said["differences"])
        assert all(world.node_of(f"g{number}") for number in range(3))


async def test_the_same_profile_decides_the_same_on_groups() -> None:
    async with running() as world:
        world.apply(make_profile("s", gangScheduling=True), make_shadow(gangScheduling=True))
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(20)))
        world.apply(make_group("g", 10))
        members = (make_member(f"g{n}", "g", scheduler_name="s", cpu="1") for n in range(10))
        world.apply(*members)
        await quiet(60)
        said = found(world)
        assert (said["compared"], said["groups"], said["differing"]) == (1, 1, 0)
        assert all(world.node_of(f"g{number}") for number in range(10))


async def test_a_group_is_placed_though_no_shadow_can_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> World:
        raise RuntimeError("a plugin cannot be made again")

    async with running() as world:
        world.apply(make_profile("s", gangScheduling=True), make_shadow(gangScheduling=True))
        world.apply(make_node("n", cpu="4"), make_group("g", 2))
        monkeypatch.setattr(World, "fork", broken)
        world.apply(*(make_member(f"g{n}", "g", scheduler_name="s", cpu="1") for n in range(2)))
        await quiet(60)
        assert (found(world)["compared"], found(world)["failed"]) == (0, 1)
        assert all(world.node_of(f"g{number}") for number in range(2))


async def test_a_shadow_reads_no_numbers_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = {
        "type": "Prometheus",
        "address": "http://prometheus",
        "secretRef": {"namespace": "stellwerk", "name": "token"},
    }
    by_load: dict[str, Any] = {
        "plugins": {"score": {"enabled": [{"name": "TargetLoadPacking"}]}},
        "pluginConfig": [{"name": "TargetLoadPacking", "args": {"metricProvider": provider}}],
    }
    async with running() as world:
        followed = list[str]()
        monkeypatch.setattr(
            world.operator.sources, "follow", lambda source: followed.append(source.name)
        )
        world.apply(make_profile("s"), make_shadow(**by_load), make_node("n", cpu="4"))
        await schedule(world, 2)
        assert found(world)["compared"] == 2
        assert followed == []
        world.apply(make_profile("serving", **by_load))
        assert len(followed) == 1, "a profile that serves reads them"
