"""What becomes of a group: all or none, in the best placement, in another order if need be."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.models.pod import parse_pod
from stellwerk.models.pod_group import parse_pod_group
from stellwerk.world.gangs.group_attempt import GroupRequest, answered
from stellwerk.world.gangs.group_decision import decide_group
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.group_decisions import GroupWorld, nodes_of
from tests.support.in_process import make_profile
from tests.support.pod_groups import constrained_to, make_group, make_member

ZONE = "topology.kubernetes.io/zone"
RACK = "example.com/rack"


def node(name: str, cpu: str, zone: str = "", rack: str = "") -> JsonObject:
    labels = {key: value for key, value in ((ZONE, zone), (RACK, rack)) if value}
    return make_node(name, cpu=cpu, labels=labels)


def members(*cpus: str, group: str = "g", **spec: Any) -> list[JsonObject]:
    return [make_member(f"p{n}", group, cpu=cpu, **spec) for n, cpu in enumerate(cpus)]


def bound(name: str, node_name: str, **spec: Any) -> JsonObject:
    return make_pod(name, node_name=node_name, **spec)


def test_a_gang_that_fits_is_placed() -> None:
    world = GroupWorld(node("n1", "2"), node("n2", "1"))
    decision = world.decide(make_group("g", 3), members("1", "1", "1"))
    assert decision.placed
    assert sorted(nodes_of(decision).values()) == ["n1", "n1", "n2"]


def test_with_too_little_room_none_is_placed_and_each_says_why() -> None:
    world = GroupWorld(node("n1", "2"))
    decision = world.decide(make_group("g", 3), members("1", "1", "1"))
    assert not decision.placed
    assert [each.failure is None for each in decision.attempt.results] == [True, True, False]
    assert decision.message.startswith("0/1 placements are available")


@pytest.mark.parametrize(
    ("release", "tried", "why"),
    [
        pytest.param("1.36", 4, "pod group is unschedulable", id="1.36 tries every member"),
        pytest.param(
            "1.37", 3, "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining", id="1.37"
        ),
    ],
)
def test_an_attempt_ends_when_too_few_can_be_placed(release: str, tried: int, why: str) -> None:
    world = GroupWorld(node("n1", "2"), compatibility=release)
    decision = world.decide(make_group("g", 3), members("1", "3", "4", "1"))
    assert not decision.placed
    assert len(decision.attempt.results) == tried
    assert decision.message.startswith(
        f"0/1 placements are available, first placement status: {why}"
    )


def test_other_orders_have_members_that_were_not_tried() -> None:
    # Both at once fit only if the one that needs a whole node comes first.
    world = GroupWorld(node("n1", "3"), node("n2", "2"), compatibility="1.37")
    decision = world.decide(make_group("g", 4), members("1", "3", "1", "1"))
    assert not decision.placed
    decision = world.decide(make_group("g", 3), members("2", "1", "3"))
    assert not decision.placed
    decision = world.decide(make_group("g", 3), members("1", "1", "3"))
    assert decision.placed


def test_of_a_basic_group_each_pod_counts() -> None:
    world = GroupWorld(node("n1", "2"))
    assert world.decide(make_group("g"), members("1", "1", "1")).attempt.placed == 2


def test_large_members_first_where_the_first_order_fails() -> None:
    world = GroupWorld(node("n1", "3"), node("n2", "2"))
    decision = world.decide(make_group("g", 3), members("1", "1", "3"))
    assert decision.placed
    assert decision.attempts > 1
    assert not world.decide(make_group("g", 3), members("1", "1", "3"), budget_seconds=0).placed


def test_a_partner_of_affinity_comes_first() -> None:
    term = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    needy = make_member("a", "g", cpu="1", affinity=affinity)
    partner = make_member("b", "g", cpu="1", labels={"app": "db"})
    world = GroupWorld(node("n1", "2", zone="z"))
    assert world.decide(make_group("g", 2), [needy, partner]).placed


def test_all_members_share_the_value_of_a_constraint() -> None:
    world = GroupWorld(node("a1", "2", "a"), node("b1", "2", "b"), node("b2", "1", "b"))
    group = make_group("g", 3, schedulingConstraints=constrained_to(ZONE))
    decision = world.decide(group, members("1", "1", "1"))
    assert sorted(nodes_of(decision).values()) == ["b1", "b1", "b2"]
    assert decision.placements == 2


def test_of_several_placements_the_fuller_one_is_taken() -> None:
    world = GroupWorld(node("a1", "8", "a"), node("b1", "3", "b"))
    group = make_group("g", 3, schedulingConstraints=constrained_to(ZONE))
    assert set(nodes_of(world.decide(group, members("1", "1", "1"))).values()) == {"b1"}


def nominated(world: GroupWorld, pods: Sequence[JsonObject], *nodes: str) -> list[JsonObject]:
    """The members, of which the first ones are nominated to these nodes."""
    for pod, node_name in zip(pods, nodes, strict=False):
        world.world.nominator.nominate(parse_pod(pod), node_name)
    return list(pods)


@pytest.mark.parametrize(
    ("release", "nominations", "expected"),
    [
        pytest.param("1.38", ["a1"], {"a1"}, id="the nominated node's, though another is fuller"),
        pytest.param("auto", ["a1"], {"a1"}, id="whatever the server, unless a release is named"),
        pytest.param("1.37", ["a1"], {"b1"}, id="up to 1.37 the fuller one"),
        pytest.param("1.38", [], {"b1"}, id="without nominations the fuller one"),
        pytest.param("1.38", ["c1"], {"b1"}, id="one that holds too few competes like others"),
        pytest.param("1.38", ["gone"], {"b1"}, id="a node that is gone is in none"),
        pytest.param("1.38", ["b1", "a1", "a1"], {"a1"}, id="of several the one of most members"),
        pytest.param("1.38", ["a1", "b1"], {"a1"}, id="of equal ones the first"),
    ],
)
def test_the_placement_of_the_nominated_nodes_is_tried_first(
    release: str, nominations: list[str], expected: set[str]
) -> None:
    nodes = [node("a1", "8", "a"), node("b1", "3", "b"), node("c1", "2", "c")]
    world = GroupWorld(*nodes, compatibility=release)
    group = make_group("g", 3, priority=0, schedulingConstraints=constrained_to(ZONE))
    pods = nominated(world, members("1", "1", "1"), *nominations)
    decision = world.decide(group, pods)
    assert set(nodes_of(decision).values()) == expected
    assert decision.attempts == (1 if expected == {"a1"} else 3)
    # What was nominated before stands where nothing is bound.
    assert [world.world.nominator.node_of(parse_pod(each).uid) for each in pods] == [
        *nominations,
        *[""] * (3 - len(nominations)),
    ]


def test_the_nominated_placement_is_tried_though_many_promise_more() -> None:
    nodes = [node(f"n{n:02}", "8" if n else "20", rack=f"r{n:02}") for n in range(40)]
    world = GroupWorld(*nodes, bound("there", "n00", cpu="1"), compatibility="1.38")
    group = make_group("g", 2, priority=0, schedulingConstraints=constrained_to(RACK))
    pods = nominated(world, members("1", "1"), "n00")
    assert set(nodes_of(world.decide(group, pods)).values()) == {"n00"}


def test_where_members_are_already_decides_the_domain() -> None:
    world = GroupWorld(node("a1", "8", "a"), node("b1", "3", "b"), bound("there", "a1", cpu="1"))
    there = world.cache.pod(world.pod("there")["metadata"]["uid"])
    assert there is not None
    group = make_group("g", 3, schedulingConstraints=constrained_to(ZONE))
    decision = world.decide(group, members("1", "1"), [there])
    assert set(nodes_of(decision).values()) == {"a1"}


def test_without_the_label_anywhere_there_is_no_placement() -> None:
    world = GroupWorld(node("n1", "8"))
    group = make_group("g", 1, schedulingConstraints=constrained_to(ZONE))
    decision = world.decide(group, members("1"))
    assert decision.message.startswith("no feasible placements found")
    assert decision.same_for_all


def test_many_placements_are_narrowed_down_by_what_they_could_hold() -> None:
    nodes = [node(f"n{n}", "4" if n == 17 else "2", rack=f"r{n:02}") for n in range(40)]
    world = GroupWorld(*nodes)
    group = make_group("g", 4, schedulingConstraints=constrained_to(RACK))
    decision = world.decide(group, members("1", "1", "1", "1"))
    assert set(nodes_of(decision).values()) == {"n17"}
    assert decision.attempts == 1


def test_a_preferred_level_is_kept_if_it_can_be() -> None:
    one = node("a1", "2", "a", "r1"), node("a2", "2", "a", "r2"), node("b1", "4", "b", "r3")
    key = "scheduling.stellwerk.dev/preferred-topology"
    pair = make_group("g", 2, {key: f"{ZONE},{RACK}"})
    assert len(set(nodes_of(GroupWorld(*one).decide(pair, members("1", "1"))).values())) == 1
    six = make_group("g", 6, {key: f"{ZONE},{RACK}"})
    assert GroupWorld(*one).decide(six, members(*["1"] * 6)).placed


def test_enough_of_each_role_or_none() -> None:
    roles = {"scheduling.stellwerk.dev/min-count-by-role": "launcher=1,worker=2"}
    workers = [
        make_member(f"w{n}", "g", cpu="1", labels={"scheduling.stellwerk.dev/role": "worker"})
        for n in range(3)
    ]
    role = {"scheduling.stellwerk.dev/role": "launcher"}
    launcher = make_member("l", "g", cpu="1", labels=role)
    world = GroupWorld(node("n1", "3"))
    group = make_group("g", 3, roles)
    assert world.decide(group, [launcher, *workers]).placed
    # Three have room, but in this order the launcher is the one left over; another order helps.
    assert world.decide(group, [*workers, launcher]).placed
    assert not world.decide(group, [*workers, launcher], budget_seconds=0).placed


@settings(max_examples=20)
@given(
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.lists(st.integers(1, 3), min_size=1, max_size=6),
    st.integers(1, 6),
)
def test_a_second_look_is_never_worse(nodes: list[int], cpus: list[int], wanted: int) -> None:
    world = GroupWorld(*(node(f"n{n}", str(cpu)) for n, cpu in enumerate(nodes)))
    group = make_group("g", min(wanted, len(cpus)))
    pods = members(*map(str, cpus))
    greedy = world.decide(group, pods, budget_seconds=0)
    looked = world.decide(group, pods)
    assert looked.placed >= greedy.placed
    if greedy.placed:
        assert looked.attempts == 1


def test_a_member_beyond_the_limit_of_complexity_has_no_node() -> None:
    world = GroupWorld(node("n1", "4"))
    terms = [{"key": f"k{number}", "operator": "Exists"} for number in range(50)]
    selector = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    pods = [*members("1"), make_member("huge", "g", cpu="1", affinity=affinity)]
    decision = world.decide(make_group("g", 2), pods, max_complexity=10)
    assert not decision.placed
    (huge,) = [each for each in decision.attempt.results if each.pod.name == "huge"]
    assert huge.evaluated == 0
    assert huge.failure is not None


def test_nodes_may_come_while_placements_are_tried() -> None:
    world = GroupWorld(*(node(f"n{n}", "2", f"z{n % 2}") for n in range(2)))
    group = parse_pod_group(make_group("g", 2, schedulingConstraints=constrained_to(ZONE)))
    pods = [parse_pod(each) for each in members("1", "1")]
    steps = answered(decide_group(world.world, world.served, GroupRequest(group, pods)))
    decision, added = None, 0
    while decision is None:
        try:
            next(steps)
            world.apply(node(f"later-{added}", "1", "z1"))
            added += 1
        except StopIteration as ended:
            decision = ended.value
    assert decision.placed
    assert added >= 4
    zones = {
        world.cache.snapshot.node_at(world.cache.snapshot.row_of[name]).labels[ZONE]
        for name in nodes_of(decision).values()
    }
    assert len(zones) == 1


GROUP_PLUGINS = ("GangScheduling", "TopologyPlacementGenerator", "PodGroupPodsCount")
ZONED = make_group("g", 2, schedulingConstraints=constrained_to("zone"))


def named(*names: str) -> JsonObject:
    return {"plugins": {"multiPoint": {"enabled": [{"name": name} for name in names]}}}


def zones_of(pods: int, spec: JsonObject) -> list[str]:
    """The zones of a gang's pods; `full` has room for two beside others, `empty` for many."""
    nodes = [
        make_node(f"{zone}{n}", cpu="4", labels={"zone": zone})
        for zone in ("empty", "full")
        for n in range(2)
    ]
    others = [make_pod(f"v{n}", cpu="3", node_name=f"full{n}") for n in range(2)]
    world = GroupWorld(*nodes, *others)
    world.apply(make_profile("stellwerk", generation=2, **spec))
    world.served = world.world.profiles.served["stellwerk"]
    decision = world.decide(ZONED, [make_member(f"p{n}", "g", cpu="1") for n in range(pods)])
    assert decision.placed
    return [name.rstrip("01") for name in nodes_of(decision).values()]


@pytest.mark.parametrize(
    "spec", [{"gangScheduling": True}, named(*GROUP_PLUGINS)], ids=["the switch", "by name"]
)
def test_the_switch_and_the_names_mean_the_same(spec: JsonObject) -> None:
    assert zones_of(2, spec) == ["full"] * 2
    assert zones_of(3, spec) == ["empty"] * 3


def test_without_the_count_the_fuller_placement_wins_though_it_takes_fewer() -> None:
    disabled = {"placementScore": {"disabled": [{"name": "PodGroupPodsCount"}]}}
    assert zones_of(3, {"gangScheduling": True, "plugins": disabled}) == ["full"] * 2


def test_without_the_fullness_the_first_of_those_that_take_all_wins() -> None:
    disabled = {"placementScore": {"disabled": [{"name": "NodeResourcesFit"}]}}
    assert zones_of(2, {"gangScheduling": True, "plugins": disabled}) == ["empty"] * 2


def test_a_weight_of_a_placement_plugin_counts() -> None:
    weights: dict[str, Any] = {"gangScheduling": True, "weights": {"NodeResourcesFit": 100}}
    assert zones_of(3, weights) == ["full"] * 2


def test_without_a_generator_all_nodes_are_one_placement() -> None:
    assert set(zones_of(9, named("GangScheduling", "PodGroupPodsCount"))) == {"empty", "full"}
