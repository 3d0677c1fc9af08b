"""A pod's whole way on a fork: its group, Reserve, what is slow, and what is not asked."""

import time
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from stellwerk.answers.what_if import Supposition
from stellwerk.explain.report import explain_on
from stellwerk.explain.what_if import what_if
from stellwerk.framework.types import Code, Status
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.answers import written
from tests.support.builders import make_node, make_pod
from tests.support.explaining_port import explaining_port
from tests.support.group_decisions import GroupWorld
from tests.support.in_process import make_profile, quiet
from tests.support.pod_groups import make_group, make_member
from tests.support.scripted_plugins import Script, installed


@pytest.fixture
def script() -> Iterator[Script]:
    with installed() as script:
        yield script


def group_of(count: int, cpu: str = "3", nodes: int = 2) -> GroupWorld:
    made = [make_node(f"n{number}", cpu="4") for number in range(nodes)]
    members = [make_member(f"p{number}", "g", cpu=cpu) for number in range(count)]
    return GroupWorld(*made, make_group("g", count), *members)


def explained(world: GroupWorld, name: str) -> JsonObject:
    live = world.world
    pod = next(each.newest for each in live.queue.entries.values() if each.newest.name == name)
    fork = live.fork(Random(0))
    profile = fork.profiles.of(pod)
    assert profile is not None
    return written(explain_on(fork, pod, profile, live))


def test_a_member_of_a_group_that_does_not_fit_gets_no_node() -> None:
    found = explained(group_of(3), "p0")
    assert "wouldGetNode" not in found
    assert found["wouldWait"].startswith('with its pod group "g": ')


def test_a_member_of_a_group_that_fits_gets_one() -> None:
    found = explained(group_of(2), "p1")
    assert found["wouldGetNode"] in {"n0", "n1"}
    assert "wouldWait" not in found


def test_a_member_waits_for_the_others() -> None:
    world = GroupWorld(make_node("n", cpu="4"), make_group("g", 3), make_member("p", "g", cpu="1"))
    assert explained(world, "p")["wouldWait"] == (
        "waiting for minCount pods of the gang: 1 of 3 exist"
    )


def test_what_if_decides_waiting_members_with_their_group() -> None:
    answer = written(what_if(group_of(3).world, Supposition()))
    assert not answer["placed"]
    assert len(answer["unplaced"]) == 3
    nodes = [make_node("new", cpu="4")]
    answer = written(what_if(group_of(3).world, Supposition(add_nodes=nodes)))
    assert sorted(each["node"] for each in answer["placed"]) == ["n0", "n1", "new"]


def test_a_supposed_member_counts_with_those_that_wait() -> None:
    world = GroupWorld(
        *(make_node(f"n{number}", cpu="4") for number in range(2)),
        make_group("g", 2),
        make_member("p0", "g", cpu="3"),
    )
    answer = written(what_if(world.world, Supposition(pod=make_member("p1", "g", cpu="3"))))
    assert [each["pod"] for each in answer["placed"]] == ["default/p1"]
    alone = GroupWorld(make_node("n", cpu="4"), make_group("g", 2))
    answer = written(what_if(alone.world, Supposition(pod=make_member("p1", "g", cpu="3"))))
    assert "1 of 2 exist" in answer["unplaced"][0]["message"]


def scripted(nodes: int = 2, point: str = "reserve") -> JsonObject:
    return {
        "id": "scripted",
        "nodes": [make_node(f"n{number}") for number in range(nodes)],
        "pod": make_pod("web", cpu="1"),
        "profile": {"plugins": {point: {"enabled": [{"name": "First"}]}}},
    }


def of_case(case: JsonObject) -> JsonObject:
    loaded = Case(case)
    return written(explain_on(loaded.world, loaded.pod, loaded.profile))


def test_what_reserve_refuses_gets_no_node(script: Script) -> None:
    script.answers["First.reserve"] = Status(Code.UNSCHEDULABLE, ("no licence left",))
    found = of_case(scripted())
    assert "wouldGetNode" not in found
    assert "no licence left" in found["wouldWait"]


def test_permit_is_named_as_left_out(script: Script) -> None:
    assert not script.calls
    found = of_case(scripted(point="permit"))
    assert found["wouldGetNode"]
    assert found["leftOut"] == [
        {"plugin": "First", "reason": "its Permit runs only when the pod is bound"}
    ]


async def test_an_extender_is_named_as_left_out() -> None:
    async with explaining_port() as port:
        extender = {"urlPrefix": "http://127.0.0.1:1/", "filterVerb": "filter"}
        managed = {"managedResources": [{"name": "example.com/foo"}]}
        port.world.apply(
            make_profile("asking", extenders=[extender]),
            make_profile("other", extenders=[{**extender, **managed}]),
            make_node("n"),
        )
        await quiet()
        _, asked = await port.post("/what-if", {"pod": make_pod("p", scheduler_name="asking")})
        (left,) = asked["notAsked"]
        assert left["plugin"] == "http://127.0.0.1:1/"
        _, other = await port.post("/what-if", {"pod": make_pod("p", scheduler_name="other")})
        assert "notAsked" not in other, "it manages another resource"


def test_a_tie_is_said_with_its_nodes() -> None:
    found = of_case({
        "id": "tie",
        "nodes": [make_node(f"n{number}") for number in range(3)],
        "pod": make_pod("web", cpu="1"),
        "profile": {},
    })  # fmt: skip
    assert found["tied"] == 3
    assert sorted(found["tiedNodes"]) == ["n0", "n1", "n2"]
    assert found["wouldGetNode"] in found["tiedNodes"]


async def test_a_plugin_that_is_cut_off_when_deciding_is_cut_off_here(script: Script) -> None:
    def slowly(*_: Any) -> Any:
        time.sleep(5)

    async with explaining_port() as port:
        guard = port.world.operator.guard
        guard._limit_seconds = 0.05  # noqa: SLF001 of each call
        guard.install()
        filtering = {"filter": {"enabled": [{"name": "First"}]}}
        port.world.apply(make_profile("slow", plugins=filtering), make_node("n"))
        await quiet()
        script.answers["First.filter"] = slowly
        _, found = await port.post("/what-if", {"pod": make_pod("p", scheduler_name="slow")})
    (unplaced,) = found["unplaced"]
    assert "did not return within 0.05 s" in unplaced["message"]
    assert port.world.operator.budget.taken_seconds == 0, "questions are to no profile's account"
