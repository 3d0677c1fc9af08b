"""Scores by NUMA zones beyond what recordings show."""

from typing import Any

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_plugins.numa.plugin import NodeResourceTopologyMatch
from tests.support.builders import make_cache, make_node
from tests.support.plugin_runs import make_plugin


def zone(number: int, cpus: int) -> dict[str, Any]:
    amounts = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    return {
        "name": f"node-{number}",
        "type": "Node",
        "costs": [
            {"name": f"node-{other}", "value": 10 + 5 * abs(other - number)} for other in range(4)
        ],
        "resources": [{"name": name, "available": amount} for name, amount in amounts.items()],
    }


def score(zones: list[dict[str, Any]], cpus: int) -> int:
    cache, objects = make_cache([make_node("n", cpu="640")]), IndexedObjectStore()
    objects.set("NodeResourceTopology", {"metadata": {"name": "n"}, "zones": zones})
    args = {"scoringStrategy": {"type": "LeastNUMANodes"}}
    plugin = make_plugin(NodeResourceTopologyMatch, cache.snapshot, args, objects=objects)
    cache.update_snapshot()
    amounts = {"cpu": str(cpus), "memory": f"{cpus}Gi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    pod = parse_pod({"metadata": {"name": "web"}, "spec": {"containers": [container, container]}})
    return int(plugin.score(CycleState(), pod, NodeView(cache.snapshot))[0])


def test_the_order_of_zones_in_the_object_does_not_matter() -> None:
    zones = [zone(0, 2), zone(1, 4), zone(2, 1), zone(3, 3)]
    assert len({score(order, 3) for order in (zones, zones[::-1], zones[2:] + zones[:2])}) == 1


def test_of_many_zones_only_small_sets_are_tried() -> None:
    assert score([zone(number, 2) for number in range(40)], 4) > 0
    assert score([zone(number, 2) for number in range(40)], 6) == 0
    assert score([zone(number, 2) for number in range(8)], 6) > 0


def test_amounts_beyond_any_machine_are_added_up_all_the_same() -> None:
    few, endless = zone(0, 2), zone(1, 2)
    for each in (few, endless):
        each["resources"][0]["available"] = "9E"
    assert score([few, endless], 2) > 0


def test_a_distance_that_is_none_counts_as_unknown() -> None:
    far, none = ([zone(0, 2), zone(1, 2)] for _ in range(2))
    for zones, value in ((far, 255), (none, 2**70)):
        for each in zones:
            each["costs"] = [{"name": f"node-{other}", "value": value} for other in range(2)]
    assert score(none, 2) == score(far, 2) > 0
