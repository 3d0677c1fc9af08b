"""What the kubelet says about pressure: conditions of nodes, and why a pod was evicted.

Called by the node pressure worker. Invariant: the texts are those of the kubelet of v1.36.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.quantity import resource_amount
from stellwerk_cluster.apimachinery.objects import pick
from stellwerk_cluster.hollow.eviction_thresholds import RESOURCE_OF, binary_quantity

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.hollow.eviction_ranking import Candidate
    from stellwerk_cluster.hollow.eviction_thresholds import Threshold
    from stellwerk_cluster.hollow.node_usage import Observation

CONDITION_TEXTS: Final = {
    "MemoryPressure": {
        "True": ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        "False": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    },
    "DiskPressure": {
        "True": ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        "False": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    },
    "PIDPressure": {
        "True": ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        "False": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    },
}
"""Condition → status → reason and message."""


def eviction_message(
    pod: JsonObject, candidate: Candidate, threshold: Threshold, observed: Observation
) -> str:
    """The message of an evicted pod: what was low, how low, which containers were above requests.

    What a pod uses counts as used by its containers in equal parts.
    """
    resource = RESOURCE_OF[threshold.signal]
    wanted, available = threshold.amount.of(observed.capacity), observed.available
    message = (
        f"The node was low on resource: {resource}. Threshold quantity: "
        f"{binary_quantity(wanted)}, available: {binary_quantity(available)}. "
    )
    parts = {"memory": ("memory",), "ephemeral-storage": ("logs", "writable")}.get(resource, ())
    containers = pod["spec"]["containers"]
    used = candidate.used(parts) // len(containers)
    for container in containers:
        request = pick(container, ("resources", "requests", resource)) or "0"
        if used > resource_amount(resource, request):
            message += (
                f"Container {container['name']} was using {binary_quantity(used)}, "
                f"request is {request}, has larger consumption of {resource}. "
            )
    return message
