"""Whether a kubelet takes a bound pod: `lifecycle.predicateAdmitHandler` of v1.36.

The hollow kubelet asks before it starts a pod. Invariant: a refusal has the kubelet's reason and
message, and the first that applies is given: resources, node affinity, ports, NoExecute taints.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, meta, pick
from stellwerk_kube.quantity import resource_amount
from stellwerk_kube.resource_amounts import is_scalar_resource, resource_amounts
from stellwerk_kube.selectors import parse_node_selector
from stellwerk_kube.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    Taint,
    parse_taints,
    parse_tolerations,
    untolerated,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from stellwerk_kube.json_values import JsonObject

_OS_LABEL: Final = "kubernetes.io/os"
_REQUIRED: Final = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
_ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (what a pod's port means that names no address)
_PRESSURES: Final = ("MemoryPressure", "DiskPressure", "PIDPressure")
_MEMORY_TAINT: Final = Taint("node.kubernetes.io/memory-pressure", "", NO_SCHEDULE)
_MIN_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Priority from which a pod is critical: that of system-cluster-critical."""
_FIRST: Final = ("cpu", "memory", "ephemeral-storage")


class UsedHostPort(NamedTuple):
    """A port of the node that a pod takes for itself."""

    address: str
    protocol: str
    port: int


class PodAdmitFailure(NamedTuple):
    """The refusal of a pod: its status.reason and message."""

    reason: str
    message: str


class AdmittedPods:
    """The resources given to the pods on one node, counted as they come and go."""

    def __init__(self) -> None:
        """Begin with an empty node."""
        self.used: dict[str, int] = {}
        """Requests by resource, cpu in millicores."""
        self._given: dict[str, tuple[Mapping[str, int], frozenset[UsedHostPort]]] = {}

    def __len__(self) -> int:
        """The number of pods."""
        return len(self._given)

    def __contains__(self, uid: object) -> bool:
        """Whether a pod is among them, by its uid."""
        return uid in self._given

    def ports(self) -> Iterator[UsedHostPort]:
        """The host ports that are taken."""
        for _, ports in self._given.values():
            yield from ports

    def add(self, pod: JsonObject) -> None:
        """Count a pod; of one that is counted already, what it asks for now."""
        uid = meta(pod)["uid"]
        self.remove(uid)
        requests = requests_of(pod)
        self._given[uid] = (requests, frozenset(_host_ports(pod)))
        for name, amount in requests.items():
            self.used[name] = self.used.get(name, 0) + amount

    def remove(self, uid: str) -> None:
        """Count a pod no longer, if it was counted."""
        given = self._given.pop(uid, None)
        for name, amount in (given[0] if given else EMPTY).items():
            self.used[name] -= amount


def refusal_of(pod: JsonObject, node: JsonObject, others: AdmittedPods) -> PodAdmitFailure | None:
    """The kubelet's refusal of a pod beside these admitted ones, or None."""
    return (
        _under_pressure(pod, node)
        or _wrong_system(pod, node)
        or next(insufficient(pod, node, others), None)
        or _misplaced(pod, node)
        or _taken_ports(pod, others)
        or _driven_off(pod, node)
    )


def requests_of(pod: JsonObject) -> Mapping[str, int]:
    """The requests of a pod, cpu in millicores; with a resize that its status does not show."""
    return resource_amounts(pod["spec"], pod.get("status")).requests


def allocatable_of(node: JsonObject) -> dict[str, int]:
    """The allocatable of a node, cpu in millicores."""
    status = node.get("status") or EMPTY
    given = status.get("allocatable") or status.get("capacity") or EMPTY
    return {name: resource_amount(name, amount) for name, amount in given.items()}


def _under_pressure(pod: JsonObject, node: JsonObject) -> PodAdmitFailure | None:
    """Under pressure only critical pods start; under that of memory, all but BestEffort ones."""
    conditions = (node.get("status") or EMPTY).get("conditions") or ()
    true = [each["type"] for each in conditions if each.get("status") == "True"]
    pressures = [type_ for type_ in true if type_ in _PRESSURES]
    critical = is_static(pod) or (pod["spec"].get("priority") or 0) >= _MIN_CRITICAL_PRIORITY
    if not pressures or critical:
        return None
    if pressures == ["MemoryPressure"]:
        tolerations = parse_tolerations(pod["spec"].get("tolerations"))
        best_effort = (pod.get("status") or EMPTY).get("qosClass") == "BestEffort"
        if not best_effort or not untolerated([_MEMORY_TAINT], tolerations, (NO_SCHEDULE,)):
            return None
    return PodAdmitFailure("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")


def _wrong_system(pod: JsonObject, node: JsonObject) -> PodAdmitFailure | None:
    system = labels_of(node).get(_OS_LABEL, "linux")
    if (pod["spec"].get("nodeSelector") or EMPTY).get(_OS_LABEL, system) != system:
        text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
        return PodAdmitFailure("PodOSSelectorNodeLabelDoesNotMatch", text)
    if (pick(pod, ("spec", "os", "name")) or system) != system:
        text = "Failed to admit pod as the OS field doesn't match node OS"
        return PodAdmitFailure("PodOSNotSupported", text)
    return None


def insufficient(
    pod: JsonObject, node: JsonObject, others: AdmittedPods
) -> Iterator[PodAdmitFailure]:
    """The resources there are too little of, in the order of NodeResourcesFit.

    Extended resources that the node does not name belong to the cluster, and are left out.
    """
    allocatable, asked = allocatable_of(node), requests_of(pod)
    if len(others) + 1 > allocatable.get("pods", 0):
        yield _out_of("pods", 1, len(others), allocatable.get("pods", 0))
    wanted = [name for name in _FIRST if asked.get(name)]
    wanted += sorted(name for name in asked if is_scalar_resource(name) and name in allocatable)
    for name in wanted:
        capacity, used = allocatable.get(name, 0), others.used.get(name, 0)
        # Nothing is too much of nothing, also where more is promised than there is.
        if asked[name] and asked[name] > capacity - used:
            yield _out_of(name, asked[name], used, capacity)


def _out_of(resource: str, requested: int, used: int, capacity: int) -> PodAdmitFailure:
    text = (
        f"Node didn't have enough resource: {resource}, requested: {requested}, used: {used}, "
        f"capacity: {capacity}"
    )
    return PodAdmitFailure(f"OutOf{resource}", text)


def _misplaced(pod: JsonObject, node: JsonObject) -> PodAdmitFailure | None:
    spec, labels, name = pod["spec"], labels_of(node), meta(node)["name"]
    selected = (spec.get("nodeSelector") or EMPTY).items() <= labels.items()
    required = parse_node_selector(pick(spec, _REQUIRED))
    if not selected or (required is not None and not required.matches(labels, name)):
        return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
    if spec.get("nodeName") not in {None, "", name}:
        return _predicate("NodeName", "node(s) didn't match the requested node name")
    return None


def _taken_ports(pod: JsonObject, others: AdmittedPods) -> PodAdmitFailure | None:
    wanted = list(_host_ports(pod))
    if wanted and any(_collide(one, other) for other in others.ports() for one in wanted):
        return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
    return None


def _collide(one: UsedHostPort, other: UsedHostPort) -> bool:
    same_door = (one.protocol, one.port) == (other.protocol, other.port)
    return same_door and (
        one.address == other.address or _ANY_ADDRESS in {one.address, other.address}
    )


def _host_ports(pod: JsonObject) -> Iterator[UsedHostPort]:
    """Host ports of containers and sidecars."""
    spec = pod["spec"]
    sidecars = [
        each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"
    ]
    for container in [*spec["containers"], *sidecars]:
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                address = port.get("hostIP") or _ANY_ADDRESS
                yield UsedHostPort(address, port.get("protocol") or "TCP", port["hostPort"])


def _driven_off(pod: JsonObject, node: JsonObject) -> PodAdmitFailure | None:
    taints = parse_taints((node.get("spec") or EMPTY).get("taints"))
    tolerations = parse_tolerations(pod["spec"].get("tolerations"))
    if not is_static(pod) and untolerated(taints, tolerations, (NO_EXECUTE,)):
        return _predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate")
    return None


def _predicate(name: str, why: str) -> PodAdmitFailure:
    return PodAdmitFailure(name, f"Predicate {name} failed: {why}")


def is_static(pod: JsonObject) -> bool:
    """Whether a pod comes from a file of its node: it has the annotation of a mirror pod."""
    annotations = meta(pod).get("annotations") or EMPTY
    return "kubernetes.io/config.mirror" in annotations
