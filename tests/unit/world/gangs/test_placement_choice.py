"""Which plugins of a profile divide nodes into placements and score them."""

from typing import Any

import pytest

from stellwerk.models.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.group_decisions import GroupWorld, nodes_of
from tests.support.in_process import make_profile
from tests.support.pod_groups import constrained_to, make_group, make_member

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
