"""PodGroups and Workloads before they are validated: defaults, and fields whose gate is off.

Called through their strategies. Invariant: a field whose gate is off is never stored anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, PREEMPTION, TOPOLOGY
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.defaults.declared import fill_defaults

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader

FINALIZER: Final = "scheduling.k8s.io/podgroup-protection"
_GATED: Final = {
    TOPOLOGY: ("schedulingConstraints",),
    PREEMPTION: ("disruptionMode", "priorityClassName", "priority"),
    CLAIMS: ("resourceClaims",),
}
"""Fields of groups and of templates, by the gate that they need."""


# --- groups -------------------------------------------------------------------------------------
def prepare_pod_group(group: JsonObject, cluster: Reader) -> None:
    """Drop fields whose gate is off, and protect the group as long as pods use it."""
    _drop_disabled(group["spec"], EMPTY, cluster)
    fill_defaults("PodGroupSpec", group["spec"])
    if cluster.enabled("PodGroupProtection"):
        finalizers = group["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            group["metadata"]["finalizers"] = [*finalizers, FINALIZER]


def admit_pod_group_update(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Drop fields whose gate is off and that the group does not have yet."""
    _drop_disabled(new["spec"], old["spec"], cluster)


# --- workloads ----------------------------------------------------------------------------------
def prepare_workload(workload: JsonObject, cluster: Reader) -> None:
    """Drop the fields of templates whose gate is off."""
    for template in workload["spec"].get("podGroupTemplates") or ():
        _drop_disabled(template, EMPTY, cluster)
        template.setdefault("schedulingConstraints", None)


def admit_workload_update(
    new: JsonObject, old: JsonObject, cluster: Reader, _kind: ResourceKind
) -> None:
    """Drop the fields of templates whose gate is off and that they do not have yet."""
    had = {each["name"]: each for each in old["spec"].get("podGroupTemplates") or ()}
    for template in new["spec"].get("podGroupTemplates") or ():
        _drop_disabled(template, had.get(template["name"], EMPTY), cluster)
        template.setdefault("schedulingConstraints", None)


# --- what groups and templates share ------------------------------------------------------------
def _drop_disabled(spec: JsonObject, old: JsonObject, cluster: Reader) -> None:
    for gate, names in _GATED.items():
        if not cluster.feature(gate):
            for name in names:
                if old.get(name) is None:
                    spec.pop(name, None)
