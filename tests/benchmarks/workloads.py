"""The nodes and pods of `stellwerk_simulation.workloads` as a scheduler sees them, in process."""

from stellwerk.models.json_values import JsonObject
from stellwerk_simulation.workloads import node_name, on_node, posted_node, posted_pod


def make_node(index: int) -> JsonObject:
    """Node number `index` as a scheduler sees it."""
    node = posted_node(index)
    node["metadata"]["uid"] = f"uid-{node_name(index)}"
    node["spec"] = {}
    return node


def make_pod(kind: str, index: int, bound_to: str | None = None) -> JsonObject:
    """Pod number `index` of a workload as a scheduler sees it; `bound_to` names its node."""
    pod = posted_pod(kind, index, prefix="init" if bound_to else kind)
    if bound_to is not None:
        on_node(pod, bound_to)
    metadata = pod["metadata"]
    metadata["uid"] = f"uid-{metadata['name']}"
    metadata["resourceVersion"] = str(index + 1)
    pod["spec"]["priority"] = 0
    pod["status"] = {"phase": "Pending"}
    return pod
