"""Objects by a part of their name: counted all, kept few, in steps."""

from stellwerk.explain.lists.search import MAX_FOUND, search_page
from stellwerk.explain.steps import finished
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod, owned


def world_of(nodes: int, *pods: JsonObject) -> World:
    written = [make_node(f"node-{number}", cpu="2") for number in range(nodes)]
    return Case({"id": "c", "nodes": written, "pods": [*pods], "pod": make_pod("other")}).world


def test_all_are_counted_and_some_are_shown_in_the_order_of_numbers() -> None:
    world = world_of(300)
    found = finished(search_page(world, (), (), "node-", 500))
    assert (found.total, len(found.items)) == (300, MAX_FOUND)
    assert [each.name for each in found.items[9:12]] == ["node-9", "node-10", "node-11"]
    found = finished(search_page(world, (), (), "node-29", 3))
    assert [each.name for each in found.items] == ["node-29", "node-290", "node-291"]


def test_pods_of_one_controller_name_it_once_before_them() -> None:
    labels = {"pod-template-hash": "5d9"}
    pods = [
        owned(make_pod(f"web-{n}", labels=labels, node_name="node-0"), name="web-5d9")
        for n in range(3)
    ]
    found = finished(search_page(world_of(1, *pods), (), (), "web", 9))
    assert [(each.kind, each.name) for each in found.items] == [
        ("Deployment", "default/web"),
        *(("Pod", f"default/web-{n}") for n in range(3)),
    ]


def test_a_search_in_a_large_cluster_goes_on_in_steps() -> None:
    assert sum(1 for _ in search_page(world_of(5000), (), (), "e-49", 20)) >= 5


def test_nothing_and_spaces_find_nothing() -> None:
    assert finished(search_page(world_of(1), (), (), "  ", 9)).total == 0
