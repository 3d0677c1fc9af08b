"""Nodes that are not there yet, with what comes to a cluster together with a node.

What-if and plans of nodes add them to a World of their own. Invariant: a supposed node is as a real
one would be once its kubelet and its drivers have reported; the room for volumes of drivers that
publish it, which is unknown before that, is taken to be enough and named.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from stellwerk.models.pod import PodInfo
from stellwerk.world.world import World
from stellwerk_kube.daemon_pods import DAEMON_SET
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import HOSTNAME_LABEL, NodeInfo
from stellwerk_kube.selectors import parse_label_selector
from stellwerk_kube.taints import NO_EXECUTE, NO_SCHEDULE, untolerated

_CAPACITY: Final = "CSIStorageCapacity"
_MAX_NODES_PER_STEP: Final = 256
"""Nodes that are looked at before yielding; 256 take a millisecond or two."""
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


def daemon_pods(world: World) -> Iterator[PodInfo | None]:
    """One pod of each DaemonSet that new nodes would get a pod of; None after each step.

    A scheduler does not know DaemonSets, but their pods. A pod names its node in place of the
    affinity that its DaemonSet has: where that seems to keep it from most of the nodes that its
    selector and tolerations allow, new nodes are taken not to get one.
    """
    found: dict[tuple[str, str, str], PodInfo] = {}
    on_nodes: dict[tuple[str, str, str], int] = {}
    nodes = list(world.cache.nodes())
    for number, node in enumerate(nodes):
        if number % _MAX_NODES_PER_STEP == 0:
            yield None
        for pod in world.cache.pods_on(node.name).values():
            if pod.owner is not None and pod.owner[0].rpartition(" ")[2] == DAEMON_SET:
                on_nodes[pod.owner] = on_nodes.get(pod.owner, 0) + 1
                found.setdefault(pod.owner, pod)
    for owner, pod in found.items():
        wanted = 0
        for number, node in enumerate(nodes):
            if number % _MAX_NODES_PER_STEP == 0:
                yield None
            wanted += may_start(pod, node)
        if 2 * on_nodes[owner] >= wanted:
            yield pod


def suppose_daemon_pods(world: World, node: NodeInfo, pods: Iterable[PodInfo]) -> Sequence[PodInfo]:
    """Put the pods of DaemonSets on a supposed node that chooses them; returns them."""
    placed = []
    for pod in pods:
        if may_start(pod, node):
            there = pod.with_node(node.name)
            there.uid = there.name = f"{pod.owner[1] if pod.owner else pod.name}-{node.name}"
            world.cache.set_pod(there)
            placed.append(there)
    return placed


def may_start(pod: PodInfo, node: NodeInfo) -> bool:
    """Whether a DaemonSet's pod comes to a node, by its selector and its tolerations."""
    return _is_selected(pod, node, (NO_SCHEDULE, NO_EXECUTE))


def keeps_running(pod: PodInfo, node: NodeInfo) -> bool:
    """Whether a DaemonSet's pod that is on a node stays there."""
    return _is_selected(pod, node, (NO_EXECUTE,))


def _is_selected(pod: PodInfo, node: NodeInfo, effects: Collection[str]) -> bool:
    if not pod.spec.node_selector.items() <= node.labels.items():
        return False
    return not untolerated(node.taints, pod.spec.tolerations, effects)


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
