"""Rows by a name of their CSINode: the same as asking each node, after any change."""

from random import Random

from stellwerk.plugins.shared.csi_nodes import CSINodeRows
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node
from tests.support.storage import StorageWorld, make_csi_node

DRIVERS = ("disk", "file", "block")


def drivers_of(csi_node: JsonObject) -> list[str]:
    return [driver["name"] for driver in csi_node["spec"]["drivers"]]


def nodes_with(world: StorageWorld, rows: CSINodeRows, driver: str) -> set[str]:
    view = world.view()
    return set(view.snapshot.names(view.row_numbers()[rows.mask(view, driver)]))


def test_rows_are_those_of_the_csi_nodes_after_any_change() -> None:
    random, drivers = Random(3), dict[str, list[str]]()
    world = StorageWorld([make_node("a")])
    rows = CSINodeRows(world.objects, drivers_of)
    nodes = {"a"}
    for _ in range(200):
        name = random.choice("abcdef")
        match random.randrange(4):
            case 0:
                world.cache.set_node(parse_node(make_node(name)))
                nodes.add(name)
            case 1 if name in nodes:
                world.cache.remove_node(name)
                nodes.discard(name)
            case 2 if name in drivers:
                world.objects.remove("CSINode", make_csi_node(name))
                del drivers[name]
            case _:
                drivers[name] = random.sample(DRIVERS, random.randrange(4))
                world.add("CSINode", make_csi_node(name, dict.fromkeys(drivers[name])))
        for driver in DRIVERS:
            having = {node for node, names in drivers.items() if driver in names}
            assert nodes_with(world, rows, driver) == having & nodes
