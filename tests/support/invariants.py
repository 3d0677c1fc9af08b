"""What must be true after every flow, whatever happened in it.

Flows call `check_invariants` when nothing is under way any more. Invariant: it reads, and changes
nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from stellwerk.backend.cache import Cache
from stellwerk.framework.services import ClusterClient
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_claims import is_device_resource
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.wiring import Operator
from stellwerk_cluster.registry.store import Store
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_kube.resource_amounts import PODS


async def check_invariants(operator: Operator, client: ClusterClient) -> None:
    """No pod lost, no node over-committed, and the snapshot as if it were new."""
    assert str(await operator.audit.run()) == "no discrepancies"
    nodes, _ = await client.list("/api/v1/nodes")
    pods, _ = await client.list("/api/v1/pods")
    check_capacity(nodes, pods)
    rebuilt = Cache()
    for node in nodes:
        rebuilt.set_node(parse_node(node))
    for pod in _on_nodes(pods):
        rebuilt.set_pod(pod)
    assert described(operator.world.cache.update_snapshot()) == described(rebuilt.update_snapshot())


def check_capacity(nodes: Iterable[JsonObject], pods: Iterable[JsonObject]) -> None:
    """The pods of no node request more than it has."""
    requested: dict[str, Counter[str]] = {}
    for pod in _on_nodes(pods):
        by_devices = pod.generated_claims is not None and bool(pod.generated_claims.extended)
        amounts = {
            resource: amount
            for resource, amount in pod.amounts.requests.items()
            if not (by_devices and is_device_resource(resource))
        }
        requested.setdefault(pod.node_name, Counter()).update({**amounts, PODS: 1})
    for node in map(parse_node, nodes):
        for resource, amount in requested.get(node.name, Counter()).items():
            offered = node.allocatable.get(resource, 0)
            assert amount <= offered, f"{node.name} has {offered} {resource}, pods want {amount}"


def check_unaltered(store: Store) -> None:
    """What readers in process share of the stored objects is still what is stored."""
    for name in store.names():
        altered = [each.key for each in store.collection(name).entries() if each.altered]
        assert not altered, f"{name} changed by a reader: {altered}"


def check_bound_once(notes: Iterable[tuple[str, str, str, str]]) -> None:
    """No pod was bound twice, by the events that were recorded (object, type, reason, note)."""
    scheduled = Counter(name for name, _, reason, _ in notes if reason == "Scheduled")
    assert {name for name, times in scheduled.items() if times > 1} == set()


def described(snapshot: Snapshot) -> Mapping[str, Any]:
    """What a snapshot says of each node, wherever its row is."""
    for row in snapshot.row_of.values():
        for resource in snapshot.node_at(row).allocatable:
            snapshot.resource_index(resource)
    return {
        name: {
            "pods": {pod.key for pod in snapshot.pods[row].values()},
            "allocatable": _amounts(snapshot, snapshot.allocatable[:, row].tolist()),
            "requested": _amounts(snapshot, snapshot.requested[:, row].tolist()),
            "extended": dict(snapshot.requested_extended(row)),
            "nonzero": snapshot.nonzero_requested[:, row].tolist(),
            "unschedulable": bool(snapshot.unschedulable[row]),
        }
        for name, row in snapshot.row_of.items()
    }


def _amounts(snapshot: Snapshot, column: list[int]) -> Mapping[str, int]:
    """By resource; one that is 0 is the same as none."""
    return {resource: column[row] for resource, row in snapshot.resource_row.items() if column[row]}


def _on_nodes(pods: Iterable[JsonObject]) -> list[PodInfo]:
    parsed = [parse_pod(pod) for pod in pods]
    return [pod for pod in parsed if pod.node_name and not pod.finished]
