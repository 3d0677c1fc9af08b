"""Nodes that are not there yet, with what comes to a cluster together with a node.

What-if and plans of nodes add them to a World of their own. Invariant: a supposed node is as a real
one would be once its kubelet and its drivers have reported; what nobody can know before that, the
room for volumes of drivers that publish it, is taken to be enough, and named.
"""

from typing import Final

from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import HOSTNAME_LABEL, NodeInfo
from stellwerk.models.selectors import parse_label_selector
from stellwerk.world.world import World

_CAPACITY: Final = "CSIStorageCapacity"
_ENOUGH: Final = "64Pi"
"""Bytes of a supposed CSIStorageCapacity: larger than any claim of a cluster that exists."""


def suppose_node(world: World, node: NodeInfo) -> list[str]:
    """Add a node; returns the storage classes for whose volumes it is taken to have room.

    These are the classes whose driver publishes its capacity, but none that the new node shares
    with a node that is there. The snapshot is not updated.
    """
    world.cache.set_node(node)
    assumed = []
    for storage_class in world.objects.list("StorageClass"):
        name = storage_class["metadata"]["name"]
        if _publishes_capacity(world, storage_class) and not _has_capacity(world, name, node):
            world.objects.set(_CAPACITY, _capacity(name, node))
            assumed.append(name)
    return assumed


def _publishes_capacity(world: World, storage_class: JsonObject) -> bool:
    driver = world.objects.get("CSIDriver", "", str(storage_class.get("provisioner")))
    waits = storage_class.get("volumeBindingMode") == "WaitForFirstConsumer"
    return waits and driver is not None and bool((driver.get("spec") or {}).get("storageCapacity"))


def _has_capacity(world: World, class_name: str, node: NodeInfo) -> bool:
    """Whether a driver has said how much room of a class nodes like this one have."""
    return any(
        topology.matches(node.labels)
        for capacity in world.objects.list(_CAPACITY)
        if capacity.get("storageClassName") == class_name
        and (topology := parse_label_selector(capacity.get("nodeTopology"))) is not None
    )


def _capacity(class_name: str, node: NodeInfo) -> JsonObject:
    labels = node.labels
    hostname = {HOSTNAME_LABEL: labels[HOSTNAME_LABEL]} if HOSTNAME_LABEL in labels else labels
    return {
        "metadata": {"namespace": "default", "name": f"supposed-{class_name}-{node.name}"},
        "storageClassName": class_name,
        "nodeTopology": {"matchLabels": dict(hostname)},
        "capacity": _ENOUGH,
    }
