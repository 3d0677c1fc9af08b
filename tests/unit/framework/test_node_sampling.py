"""How many feasible nodes a search finds, in which order, and where the next one begins."""

from collections.abc import Mapping
from typing import Any

import pytest

from stellwerk.framework.node_sampling import nodes_to_find
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, pod_info
from tests.support.preemption_cases import Arena, make_arena

BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
NO_SCORES = {point: {"disabled": [{"name": "*"}]} for point in ("preScore", "score")}


@pytest.mark.parametrize(
    ("percentage", "nodes", "expected"),
    [
        pytest.param(None, 5_000, 5_000, id="unset: all"),
        pytest.param(0, 100, 100, id="adaptive at 100: half, but at least 100"),
        pytest.param(0, 1_000, 420, id="adaptive at 1,000: 42 %"),
        pytest.param(0, 5_000, 500, id="adaptive at 5,000: 10 %"),
        pytest.param(0, 6_000, 300, id="adaptive at 6,000: never below 5 %"),
        pytest.param(50, 99, 99, id="below 100 nodes all"),
        pytest.param(1, 99, 99, id="below 100 nodes all, whatever is asked for"),
        pytest.param(50, 300, 150, id="half"),
        pytest.param(50, 150, 100, id="never fewer than 100"),
        pytest.param(1, 20_000, 200, id="an explicit percentage below 5 is honoured"),
        pytest.param(-1, 5_000, 500, id="negative is 0"),
        pytest.param(100, 5_000, 5_000, id="all"),
        pytest.param(101, 5_000, 5_000, id="above 100 is 100"),
    ],
)
def test_how_many_feasible_nodes_are_enough(
    percentage: int | None, nodes: int, expected: int
) -> None:
    assert nodes_to_find(percentage, nodes) == expected


def zoned(zones: Mapping[str, str], key: str = "topology.kubernetes.io/zone") -> list[JsonObject]:
    return [make_node(name, labels={key: zone}) for name, zone in zones.items()]


SIX = {"1": "one", "2": "one", "3": "one", "4": "one", "5": "two", "6": "two"}


def visiting_order(nodes: list[JsonObject]) -> list[str]:
    snapshot = make_arena(nodes, []).cache.snapshot
    return snapshot.names(snapshot.visit_order.tolist())


def test_zones_take_turns() -> None:
    assert visiting_order(zoned(SIX)) == ["1", "5", "2", "6", "3", "4"]


def test_the_beta_zone_label_goes_first() -> None:
    nodes = zoned(SIX, BETA_ZONE)
    for node in nodes:
        node["metadata"]["labels"]["topology.kubernetes.io/zone"] = "all the same"
    assert visiting_order(nodes) == ["1", "5", "2", "6", "3", "4"]


def test_a_zone_is_one_only_together_with_its_region() -> None:
    labels = [{"topology.kubernetes.io/region": region} for region in ("r1", "r1", "r2")]
    nodes = [
        make_node(str(number), zone="same", labels=label)
        for number, label in enumerate(labels, start=1)
    ]
    assert visiting_order(nodes) == ["1", "3", "2"]


# --- where a search begins and ends -----------------------------------------------------------


def many(count: int = 200, **by_number: JsonObject) -> list[JsonObject]:
    return [
        make_node(f"n{number:03}", **by_number.get(f"n{number:03}", {})) for number in range(count)
    ]


def sampling(nodes: list[JsonObject], percentage: int = 50, **profile: Any) -> Arena:
    return make_arena(nodes, [], profile={"percentageOfNodesToScore": percentage, **profile})


def found_names(arena: Arena) -> list[str]:
    snapshot = arena.cache.snapshot
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    return snapshot.names(found.view().row_numbers().tolist())


def test_a_search_begins_after_the_last_node_looked_at_and_wraps_around() -> None:
    arena = sampling(many(150))
    names = [f"n{number:03}" for number in range(150)]
    assert found_names(arena) == names[:100]
    assert found_names(arena) == names[100:] + names[:50]
    assert found_names(arena) == names[50:]


def test_nodes_that_do_not_fit_are_looked_at_but_not_counted() -> None:
    full = {f"n{number:03}": {"cpu": "0"} for number in range(20)}
    arena = sampling(many(200, **full))
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    assert found.evaluated == 120
    assert int(found.fits.sum()) == 100
    assert found_names(arena)[0] == "n120"


def test_where_too_few_fit_all_are_looked_at() -> None:
    full = {f"n{number:03}": {"cpu": "0"} for number in range(150)}
    arena = sampling(many(200, **full))
    found = arena.framework.filtering.find_feasible(pod_info("p", cpu="1"))
    assert found.evaluated == 200
    assert int(found.fits.sum()) == 50


def test_without_score_plugins_one_feasible_node_is_enough() -> None:
    arena = sampling(many(), plugins=NO_SCORES)
    assert found_names(arena) == ["n000"]
    assert found_names(arena) == ["n001"]
