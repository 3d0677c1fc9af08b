"""Priority: the priority of pods and groups, from the PriorityClass that they name.

Called for pods, PodGroups and PriorityClasses. Invariant: at most one class is the default of all
that name none, and the two system classes cannot be deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.failures import StatusError, forbidden
from stellwerk_cluster.apimachinery.feature_gates import PREEMPTION, PREEMPTION_POLICY
from stellwerk_cluster.apimachinery.objects import EMPTY
from stellwerk_cluster.validation.scheduling import SYSTEM_CLASSES
from stellwerk_kube import admission
from stellwerk_kube.admission import AdmissionError, give_priority

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.kinds import ResourceKind
    from stellwerk_cluster.apimachinery.strategy import Reader
    from stellwerk_kube.json_values import JsonObject

PRIORITY_CLASSES: Final = "priorityclasses.scheduling.k8s.io"


def admit_priority(pod: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give a new pod the priority of its class, or of the class that is the default.

    Raises:
        StatusError: there is no such class, or the pod gives another number or policy (403).
    """
    spec = pod["spec"]
    priority_class = chosen_priority_class(spec, cluster)
    if priority_class is None and spec.get("priorityClassName"):
        why = f"no PriorityClass with name {spec['priorityClassName']} was found"
        raise forbidden_pod(pod, kind, why)
    try:
        give_priority(spec, priority_class)
    except AdmissionError as error:
        raise forbidden_pod(pod, kind, str(error)) from error


def chosen_priority_class(spec: JsonObject, cluster: Reader) -> JsonObject | None:
    """The PriorityClass that a specification names, or the default one; None without any."""
    if name := spec.get("priorityClassName"):
        return cluster.find(PRIORITY_CLASSES, "", name)
    return admission.chosen_priority_class(spec, cluster.all(PRIORITY_CLASSES))


def forbidden_pod(pod: JsonObject, kind: ResourceKind, why: str) -> StatusError:
    """The refusal of a pod by an admission plugin."""
    return forbidden(kind, pod["metadata"].get("name", ""), why)


def admit_pod_group(group: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give a group the priority of its class, or of the class that is the default.

    Raises:
        StatusError: there is no such class, or the group gives another number (403).
    """
    if cluster.feature(PREEMPTION) and cluster.enabled("Priority"):
        _give_priority(group, cluster, kind)


def admit_pod_group_v1beta1(group: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """Give a group of 1.37 the priority of its class, and whether it may preempt.

    Raises:
        StatusError: as for the older form.
    """
    if not cluster.enabled("Priority"):
        return
    chosen = _give_priority(group, cluster, kind)
    if cluster.feature(PREEMPTION_POLICY):
        policy = (chosen or EMPTY).get("preemptionPolicy", "PreemptLowerPriority")
        spec = group["spec"]
        if spec.setdefault("preemptionPolicy", policy) != policy:
            why = (
                f"preemptionPolicy set in the pod group ({spec['preemptionPolicy']}) must match "
                f"the one computed ({policy}) based on the priority class set in the spec"
            )
            raise forbidden(kind, group["metadata"].get("name", ""), why)


def keep_pod_group_priority(
    new: JsonObject, old: JsonObject, _cluster: Reader, _kind: ResourceKind
) -> None:
    """A change that leaves out what admission has filled in leaves it as it is, as of pods."""
    for name in ("priorityClassName", "priority", "preemptionPolicy"):
        if name in old["spec"] and new["spec"].get(name) is None:
            new["spec"][name] = old["spec"][name]


def _give_priority(group: JsonObject, cluster: Reader, kind: ResourceKind) -> JsonObject | None:
    """Fill in the number of the class that the answer is; None: there is none."""
    spec, name = group["spec"], group["metadata"].get("name", "")
    chosen = chosen_priority_class(spec, cluster)
    if chosen is None and spec.get("priorityClassName"):
        why = f"no PriorityClass with name {spec['priorityClassName']} was found"
        raise forbidden(kind, name, why)
    priority = (chosen or EMPTY).get("value", 0)
    if spec.get("priority", priority) != priority:
        why = (
            f"priority set in the pod group ({spec['priority']}) must match the priority computed "
            f"({priority}) based on the priority class set in the spec"
        )
        raise forbidden(kind, name, why)
    if chosen is not None:
        spec["priorityClassName"] = chosen["metadata"]["name"]
    spec["priority"] = priority
    return chosen


def admit_priority_class(priority_class: JsonObject, cluster: Reader, kind: ResourceKind) -> None:
    """At most one class may be the global default.

    Raises:
        StatusError: there is one already (403).
    """
    if not priority_class.get("globalDefault"):
        return
    name = priority_class["metadata"].get("name", "")
    for other in cluster.all(PRIORITY_CLASSES):
        if other.get("globalDefault") and other["metadata"]["name"] != name:
            why = (
                f"PriorityClass {other['metadata']['name']} is already marked as default. "
                "Only one default can exist"
            )
            raise forbidden(kind, name, why)


def admit_priority_class_update(
    new: JsonObject, _old: JsonObject, cluster: Reader, kind: ResourceKind
) -> None:
    """As for a new class."""
    admit_priority_class(new, cluster, kind)


def protect_priority_class(
    priority_class: JsonObject, _cluster: Reader, kind: ResourceKind
) -> None:
    """The two system classes stay.

    Raises:
        StatusError: it is one of them (403).
    """
    name = priority_class["metadata"]["name"]
    if name in SYSTEM_CLASSES:
        raise forbidden(kind, name, "this is a system priority class and cannot be deleted")
