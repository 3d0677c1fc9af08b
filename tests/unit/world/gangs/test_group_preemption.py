"""Whose eviction makes room for a group: none too many, units whole, terminating pods first."""

from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.plugins import registry
from stellwerk.world.gangs import group_preemption
from stellwerk.world.gangs.group_attempt import GroupRequest, answered, decided_at_once
from stellwerk.world.gangs.group_decision import decide_group
from stellwerk.world.gangs.group_preemption import (
    NEVER,
    NO_VICTIMS,
    NOT_WITH_CONSTRAINTS,
    TOO_MANY,
)
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.group_decisions import GroupWorld
from tests.support.pod_groups import constrained_to, make_group, make_member
from tests.support.preemption_cases import costing, of_daemon_set, preempting

HIGH = 100


def victim(name: str, node_name: str, **spec: Any) -> JsonObject:
    return make_pod(name, node_name=node_name, **{"cpu": "1", "priority": 0, **spec})


def members(count: int, **spec: Any) -> list[JsonObject]:
    return [
        make_member(f"p{n}", "g", **{"cpu": "1", "priority": HIGH, **spec}) for n in range(count)
    ]


def victims_of(world: GroupWorld, count: int, **group: Any) -> list[str]:
    decision = world.decide(make_group("g", count, **{"priority": HIGH, **group}), members(count))
    assert not decision.placed
    assert decision.preemption is not None
    assert len(decision.preemption.nodes) == count
    return sorted(pod.name for pod in decision.preemption.victims)


def test_no_pod_is_evicted_that_can_be_spared() -> None:
    nodes = [make_node(f"n{n}", cpu="2") for n in range(2)]
    pods = [victim(f"v{n}", f"n{n // 2}") for n in range(4)]
    assert len(victims_of(GroupWorld(*nodes, *pods), 3)) == 3


def test_less_important_pods_go_first() -> None:
    low, high = victim("low", "n0", priority=-5), victim("high", "n0", priority=5)
    assert victims_of(GroupWorld(make_node("n0", cpu="2"), low, high), 1) == ["low"]


def test_the_priority_is_the_groups() -> None:
    world = GroupWorld(make_node("n0", cpu="1"), victim("v", "n0", priority=5))
    decision = world.decide(make_group("g", 1, priority=0), members(1))
    assert decision.message.endswith(NO_VICTIMS)


def test_a_group_whose_server_knows_no_priorities_has_that_of_its_pods() -> None:
    world = GroupWorld(make_node("n0", cpu="1"), victim("v", "n0", priority=5))
    decision = world.decide(make_group("g", 1), members(1))
    assert decision.preemption is not None


def test_a_group_with_disruption_mode_goes_whole() -> None:
    nodes = [make_node(f"n{n}", cpu="1") for n in range(2)]
    group = make_group("w", 2, disruptionMode="PodGroup", priority=5)
    pods = [make_member(f"w{n}", "w", cpu="1", node_name=f"n{n}") for n in range(2)]
    assert victims_of(GroupWorld(*nodes, group, *pods), 1) == ["w0", "w1"]


def test_of_groups_that_go_whole_the_one_whose_pod_began_first_stays() -> None:
    objects: list[JsonObject] = [make_node(f"n{n}", cpu="1") for n in range(4)]
    starts = {"a0": "05", "a1": "00", "b0": "01", "b1": "02"}
    for number, (name, minute) in enumerate(starts.items()):
        pod = make_member(name, name[0], cpu="1", node_name=f"n{number}", priority=0)
        pod["status"] = {"startTime": f"2026-01-01T00:{minute}:00Z"}
        objects.append(pod)
    objects += [make_group(name, 2, disruptionMode="PodGroup", priority=0) for name in "ab"]
    assert victims_of(GroupWorld(*objects), 1) == ["b0", "b1"]


# --- DefaultPreemption's arguments are followed --------------------------------------------------


def started(pod: JsonObject, minute: str) -> JsonObject:
    pod["status"] = {"startTime": f"2026-01-01T00:{minute}:00Z"}
    return pod


def fair_world(*objects: JsonObject, release: str, **args: Any) -> GroupWorld:
    """It is half past midnight."""
    clock = VirtualClock(datetime(2026, 1, 1, 0, 30, tzinfo=UTC))
    profile = preempting(**args)
    return GroupWorld(*objects, compatibility=release, clock=clock, **profile)


@pytest.mark.parametrize("release", ["1.36", "1.37"])
@pytest.mark.parametrize(
    ("args", "goes", "why"),
    [
        pytest.param({}, "young", "", id="as kube-scheduler"),
        pytest.param(
            {"minRunSeconds": 600},
            "old",
            "minRunSeconds puts 1 pod that has run for less than 600 s behind others",
            id="who has just begun stays",
        ),
        pytest.param(
            {"minRunSeconds": 600, "spareDaemonSetPods": True},
            "young",
            "spareDaemonSetPods puts 1 pod of a DaemonSet behind others",
            id="the pod of a DaemonSet stays before it",
        ),
        pytest.param(
            {"orderByDeletionCost": True},
            "young",
            "orderByDeletionCost puts 1 pod of a higher deletion cost behind others",
            id="the dearer pod stays",
        ),
    ],
)
def test_of_equal_pods_the_one_that_is_spared_stays(
    args: JsonObject, goes: str, why: str, release: str
) -> None:
    old = of_daemon_set(costing(started(victim("old", "n0"), "01"), "9"))
    young = started(victim("young", "n0"), "29")
    world = fair_world(make_node("n0", cpu="2"), old, young, release=release, **args)
    decision = world.decide(make_group("g", 1, priority=HIGH), members(1))
    assert decision.preemption is not None
    assert [pod.name for pod in decision.preemption.victims] == [goes]
    assert decision.preemption.decided_by == why


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_of_groups_that_go_whole_the_one_that_has_just_begun_stays(release: str) -> None:
    objects: list[JsonObject] = [make_node(f"n{n}", cpu="1") for n in range(4)]
    starts = {"a0": "01", "a1": "29", "b0": "28", "b1": "29"}
    for number, (name, minute) in enumerate(starts.items()):
        pod = make_member(name, name[0], cpu="1", node_name=f"n{number}", priority=0)
        objects.append(started(pod, minute))
    objects += [make_group(name, 2, disruptionMode="PodGroup", priority=0) for name in "ab"]
    world = fair_world(*objects, release=release, minRunSeconds=600)
    assert victims_of(world, 1) == ["a0", "a1"]


def test_a_group_evicts_who_is_spared_where_there_is_no_other() -> None:
    only = started(victim("only", "n0"), "29")
    world = fair_world(make_node("n0", cpu="1"), only, release="1.37", minRunSeconds=600)
    assert victims_of(world, 1) == ["only"]


def test_constraints_that_constrain_nothing_do_not_keep_a_group_from_preempting() -> None:
    world = GroupWorld(make_node("n0", cpu="1"), victim("v", "n0"))
    assert victims_of(world, 1, schedulingConstraints={}) == ["v"]


def test_what_a_preemption_costs_does_not_grow_with_the_pods_that_could_go() -> None:
    def steps(nodes: int) -> int:
        pods = [victim(f"v{n}", f"n{n // 4}") for n in range(nodes * 4)]
        world = GroupWorld(*(make_node(f"n{n}", cpu="4") for n in range(nodes)), *pods)
        assert len(victims_of(world, 4)) == 4
        pending = [parse_pod(each) for each in members(4)]
        request = GroupRequest(parse_pod_group(make_group("g", 4, priority=HIGH)), pending)
        return sum(1 for _ in answered(decide_group(world.world, world.served, request)))

    assert steps(20) < 2 * steps(4)


@pytest.mark.parametrize("release", ["1.36", "1.37"])
def test_terminating_pods_count_as_gone(release: str) -> None:
    leaving = victim("leaving", "n0")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    nodes = [make_node("n0", cpu="2")]
    world = GroupWorld(*nodes, leaving, victim("stays", "n0"), compatibility=release)
    assert victims_of(world, 1) == []


def test_own_members_are_never_victims() -> None:
    own = make_member("own", "g", cpu="1", node_name="n0", priority=0)
    world = GroupWorld(make_node("n0", cpu="1"), own)
    decision = world.decide(make_group("g", 1, priority=HIGH), members(1))
    assert decision.message.endswith(NO_VICTIMS)


def test_a_member_that_never_preempts_keeps_the_group_from_it() -> None:
    world = GroupWorld(make_node("n0", cpu="1"), victim("v", "n0"))
    never = members(1, preemptionPolicy="Never")
    assert world.decide(make_group("g", 1, priority=HIGH), never).message.endswith(NEVER)


def test_budgets_are_kept_where_they_can_be() -> None:
    guarded = victim("guarded", "n0", labels={"app": "guarded"})
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "default", "uid": "b"},
        "spec": {"selector": {"matchLabels": {"app": "guarded"}}},
        "status": {"disruptionsAllowed": 0},
    }
    world = GroupWorld(make_node("n0", cpu="2"), guarded, victim("other", "n0"))
    world.operator.handlers.on_object("PodDisruptionBudget", "ADDED", budget)
    assert victims_of(world, 1) == ["other"]


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_all_members_are_nominated(wanted: int) -> None:
    nodes = [make_node(f"n{n}", cpu="2") for n in range(2)]
    world = GroupWorld(*nodes, *(victim(f"v{n}", f"n{n // 2}") for n in range(4)))
    assert len(victims_of(world, wanted)) == wanted


@settings(max_examples=12)
@given(st.lists(st.integers(-3, 3), min_size=2, max_size=6), st.integers(1, 3))
def test_without_any_one_victim_there_would_be_no_room(priorities: list[int], wanted: int) -> None:
    wanted = min(wanted, len(priorities))
    nodes = [make_node(f"n{n}", cpu="2") for n in range((len(priorities) + 1) // 2)]
    pods = [
        victim(f"v{n}", f"n{n // 2}", priority=priority) for n, priority in enumerate(priorities)
    ]
    if len(priorities) % 2:
        pods.append(victim("filler", f"n{len(priorities) // 2}", priority=HIGH))
    chosen = victims_of(GroupWorld(*nodes, *pods), wanted)
    assert len(chosen) == wanted
    least = sorted(priorities)[:wanted]
    assert sorted(priorities[int(name[1:])] for name in chosen) == least


def crowd(nodes: int, **spec: Any) -> GroupWorld:
    """Nodes of four cores, each with four pods."""
    objects = [make_node(f"n{n}", cpu="4", zone=f"z{n % 3}") for n in range(nodes)]
    pods = [victim(f"v{n}", f"n{n % nodes}", priority=n % 2, **spec) for n in range(4 * nodes)]
    return GroupWorld(*objects, *pods)


def preempted(world: GroupWorld, count: int, **spec: Any) -> tuple[list[int], int]:
    """(priorities of the victims, how many decisions on members it took)."""
    group = parse_pod_group(make_group("g", count, priority=HIGH))
    pods = [parse_pod(each) for each in members(count, cpu="2", labels={"app": "g"}, **spec)]
    steps = decide_group(world.world, world.served, GroupRequest(group, pods))
    asked, decision = 0, None
    ask = next(steps)
    while decision is None:
        asked += ask is not None
        try:
            ask = next(steps) if ask is None else steps.send(decided_at_once(ask))
        except StopIteration as ended:
            decision = ended.value
    assert decision.preemption is not None
    return [pod.priority for pod in decision.preemption.victims], asked


def test_of_many_pods_no_more_go_than_must() -> None:
    priorities, asked = preempted(crowd(40), 20)
    assert priorities == [0] * 40
    assert asked < 3 * 20


def test_of_many_pods_no_more_go_than_must_where_members_are_spread() -> None:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "g"}},
    }
    priorities, _ = preempted(crowd(30), 6, topologySpreadConstraints=[constraint])
    assert priorities == [0] * 12


def test_what_cannot_be_found_out_in_time_evicts_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_preemption, "MAX_MEMBER_DECISIONS", 0)
    keeps_away = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "labelSelector": {"matchLabels": {"app": "g"}},
                    "topologyKey": "topology.kubernetes.io/zone",
                }
            ]
        }
    }
    pods = members(2, cpu="2", labels={"app": "g"})
    decision = crowd(6, affinity=keeps_away).decide(make_group("g", 2, priority=HIGH), pods)
    assert decision.message.endswith(TOO_MANY)
    assert decision.preemption is None


def test_victims_are_looked_for_in_other_orders_too() -> None:
    world = GroupWorld(
        make_node("n0", cpu="3"), make_node("n1", cpu="2"), victim("v", "n0", cpu="3")
    )
    pods = [
        make_member(f"p{n}", "g", cpu=cpu, priority=HIGH) for n, cpu in enumerate(("1", "1", "3"))
    ]
    decision = world.decide(make_group("g", 3, priority=HIGH), pods)
    assert decision.preemption is not None
    assert [pod.name for pod in decision.preemption.victims] == ["v"]


# --- as 1.37 -------------------------------------------------------------------------------------


def test_members_stay_where_they_were_placed_without_victims() -> None:
    # The member is placed on the larger share that is free without victims, on n0; beside what
    # comes back there it has to have that node, though n1 would cost a less important pod.
    objects = [
        make_node("n0", cpu="4"),
        make_node("n1", cpu="2"),
        victim("dear", "n0", priority=5, cpu="4"),
        victim("cheap", "n1", priority=1, cpu="2"),
    ]
    group = make_group("g", 1, priority=HIGH)
    for release, name in (("1.36", "cheap"), ("1.37", "dear")):
        world = GroupWorld(*objects, compatibility=release)
        found = world.decide(group, members(1, cpu="1", priority=HIGH)).preemption
        assert found is not None
        assert [pod.name for pod in found.victims] == [name], release


def test_what_is_in_no_members_way_comes_back() -> None:
    objects = [make_node("n0", cpu="2"), make_node("n1", cpu="2")]
    pods = [victim(f"v{n}", f"n{n // 2}") for n in range(4)]
    world = GroupWorld(*objects, *pods, compatibility="1.37")
    decision = world.decide(make_group("g", 2, priority=HIGH), members(2, priority=HIGH))
    assert decision.preemption is not None
    assert len(decision.preemption.victims) == 2
    assert set(decision.preemption.nodes.values()) == {
        pod.node_name for pod in decision.preemption.victims
    }
    assert decision.message.endswith(
        ", pod group preemption: found a placement for podgroup, preempting 2 victims"
    )


def test_a_group_with_constraints_preempts_within_one_domain() -> None:
    zone = "topology.kubernetes.io/zone"
    nodes = [make_node(f"n{n}", cpu="1", zone=f"z{n // 2}") for n in range(4)]
    pods = [victim(f"v{n}", f"n{n}", priority=HIGH if n == 0 else 0) for n in range(4)]
    group = make_group("g", 2, priority=HIGH, schedulingConstraints=constrained_to(zone))
    pending = members(2, priority=HIGH)
    before = GroupWorld(*nodes, *pods, compatibility="1.36").decide(group, pending)
    assert before.message.endswith(NOT_WITH_CONSTRAINTS)
    found = GroupWorld(*nodes, *pods, compatibility="1.37").decide(group, pending).preemption
    assert found is not None
    assert sorted(pod.name for pod in found.victims) == ["v2", "v3"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"preemptionPolicy": "Never"}, NEVER, id="never"),
        pytest.param({"cpu": "9"}, "cannot be satisfied: 0 scheduled, 0 remaining", id="too large"),
    ],
)
def test_why_nothing_is_preempted_has_a_prefix(spec: dict[str, Any], why: str) -> None:
    world = GroupWorld(make_node("n0", cpu="1"), victim("v", "n0"), compatibility="1.37")
    pending = members(1, priority=HIGH, **spec)
    message = world.decide(make_group("g", 1, priority=HIGH), pending).message
    assert ", pod group preemption: " in message
    assert message.endswith(why)


def test_pods_away_from_the_members_matter_where_filters_look_further() -> None:
    # A member keeps away from its like in its zone, so that a pod on another node is in its way.
    zone = "topology.kubernetes.io/zone"
    nodes = [make_node("n0", cpu="1", zone="z"), make_node("n1", cpu="1", zone="z")]
    pods = [victim("here", "n0"), victim("near", "n1", labels={"app": "a"})]
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": zone}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    world = GroupWorld(*nodes, *pods, compatibility="1.37")
    pending = members(1, priority=HIGH, affinity=affinity)
    found = world.decide(make_group("g", 1, priority=HIGH), pending).preemption
    assert found is not None
    names = {pod.name for pod in found.victims}
    assert "near" in names
    taken = next(iter(found.nodes.values()))
    assert names == ({"here", "near"} if taken == "n0" else {"near"})


_SPARING = """
from stellwerk.plugin_api import AdmitsVictims, PostFilterResult, unschedulable


class Sparing(AdmitsVictims):
    name = "Sparing"

    def __init__(self, handle, args):
        pass

    def post_filter(self, state, pod, diagnosis):
        return PostFilterResult(unschedulable(self.name, "spares some"))

    def admits_victim(self, namespace, victim):
        return (namespace, victim.name) != ("default", "spared")
"""


def test_a_group_evicts_no_pod_that_a_plugin_of_a_user_does_not_admit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sparing.py").write_text(_SPARING)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("Sparing", "sparing:Sparing", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(registry, "entry_points", lambda group: [point] if group else [])
    registry._registry.cache_clear()  # noqa: SLF001 what is known stays known in a process
    try:
        objects = [make_node("n0", cpu="1"), make_node("n1", cpu="1")]
        objects += [victim("spared", "n0", priority=-9), victim("other", "n1")]
        assert victims_of(GroupWorld(*objects), 1) == ["spared"]
        plugins = {"multiPoint": {"enabled": [{"name": "Sparing"}]}}
        assert victims_of(GroupWorld(*objects, plugins=plugins), 1) == ["other"]
    finally:
        registry._registry.cache_clear()  # noqa: SLF001
