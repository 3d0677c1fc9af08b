"""Which nodes a DaemonSet wants a pod on, and which it lets a running pod stay on.

Used by `daemon_set`. Invariant: a taint NoSchedule keeps new pods away and ends none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk.models.selectors import parse_node_selector
from stellwerk.models.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    parse_taints,
    parse_tolerations,
    untolerated,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, labels_of, pick

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_EVERYWHERE: Final = (
    ("not-ready", "NoExecute"),
    ("unreachable", "NoExecute"),
    ("disk-pressure", "NoSchedule"),
    ("memory-pressure", "NoSchedule"),
    ("pid-pressure", "NoSchedule"),
    ("unschedulable", "NoSchedule"),
)
_ON_THE_HOST_NETWORK: Final = ("network-unavailable", "NoSchedule")


def with_tolerations(spec: JsonObject) -> list[JsonObject]:
    """The tolerations of a pod of a DaemonSet: its own, and those that all of them get."""
    own: list[JsonObject] = list(spec.get("tolerations") or ())
    wanted = [*_EVERYWHERE, *([_ON_THE_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    for name, effect in wanted:
        toleration = {
            "key": f"node.kubernetes.io/{name}",
            "operator": "Exists",
            "effect": effect,
        }
        if toleration not in own:
            own.append(toleration)
    return own


def wanted_and_allowed(node: JsonObject, template: JsonObject) -> tuple[bool, bool]:
    """(whether the node should get a pod, whether a pod that it has may stay)."""
    spec, labels = template["spec"], labels_of(node)
    name = node["metadata"]["name"]
    if spec.get("nodeName") not in (None, "", name):
        return False, False
    if not (spec.get("nodeSelector") or EMPTY).items() <= labels.items():
        return False, False
    required = parse_node_selector(pick(spec, ("affinity", "nodeAffinity", REQUIRED)))
    if required is not None and not required.matches(labels, name):
        return False, False
    taints = parse_taints(node["spec"].get("taints"))
    tolerations = parse_tolerations(with_tolerations(spec))
    executing = untolerated(taints, tolerations, (NO_EXECUTE,))
    scheduling = untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))
    return not scheduling, not executing


def target_of(pod: JsonObject) -> str:
    """The node that a pod of a DaemonSet is on, or is for."""
    bound: str = pod["spec"].get("nodeName", "")
    if bound:
        return bound
    terms = pick(pod, ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")) or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and field["values"]:
                return str(field["values"][0])
    return ""
