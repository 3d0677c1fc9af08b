"""The pods that a DaemonSet has: which nodes should have one, and what such a pod looks like.

The embedded cluster's controller makes its pods with it; simulations, plans and `decide` read
manifests with it, and suppose them on new nodes. Invariant: a pod is for one node, by an affinity
for its name, and whether that node takes it is left to the scheduler.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Final

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import parse_node_selector
from stellwerk_kube.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    parse_taints,
    parse_tolerations,
    untolerated,
)

DAEMON_SET: Final = "DaemonSet"
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
_NOTHING: Final[Mapping[str, object]] = {}


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
    spec, metadata = template["spec"], node["metadata"]
    labels, name = metadata.get("labels") or {}, metadata["name"]
    if spec.get("nodeName") not in (None, "", name):
        return False, False
    if not (spec.get("nodeSelector") or {}).items() <= labels.items():
        return False, False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = parse_node_selector(affinity.get(REQUIRED))
    if required is not None and not required.matches(labels, name):
        return False, False
    taints = parse_taints((node.get("spec") or {}).get("taints"))
    tolerations = parse_tolerations(with_tolerations(spec))
    executing = untolerated(taints, tolerations, (NO_EXECUTE,))
    scheduling = untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))
    return not scheduling, not executing


def for_node(spec: JsonObject, node_name: str) -> JsonObject:
    """The specification of a DaemonSet's pod for one node, made of its template's."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
    affinity = spec.get("affinity") or {}
    node_affinity = {
        **(affinity.get("nodeAffinity") or {}),
        REQUIRED: {"nodeSelectorTerms": [term]},
    }
    return {
        **deepcopy(spec),
        "affinity": {**affinity, "nodeAffinity": node_affinity},
        "tolerations": with_tolerations(spec),
    }
