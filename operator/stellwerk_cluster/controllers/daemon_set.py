"""DaemonSets: one pod for each node that fits.

Invariant: a pod is bound by the scheduler, through a node affinity for the name of its node, and
never by this controller.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk.models.selectors import parse_node_selector
from stellwerk.models.taints import (
    NO_EXECUTE,
    NO_SCHEDULE,
    parse_taints,
    parse_tolerations,
    untolerated,
)
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, key_of, labels_of, pick
from stellwerk_cluster.controllers.workload import (
    REVISION_LABEL,
    WorkloadController,
    is_active,
    ready_count,
    template_hash,
)

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.registry.entries import StoreEvent

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_TOLERATIONS: Final = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class DaemonSetController(WorkloadController):
    """Keeps one pod for each node whose labels and taints the template accepts."""

    plural = "daemonsets"

    def __init__(self, api: Api, index: Index) -> None:
        """Follow DaemonSets, pods and nodes."""
        super().__init__(api, index)
        api.store.collection("nodes").listeners.append(self._on_node)

    def _on_node(self, event: StoreEvent) -> None:
        before = event.previous.obj if event.previous else EMPTY
        node = event.entry.obj
        if labels_of(before) != labels_of(node) or before.get("spec") != node["spec"]:
            for entry in self.api.store.collection(self.kind.storage_name).entries():
                self.queue.add(entry.key)

    @override
    def sync(self, workload: JsonObject) -> None:
        revision = template_hash(workload["spec"]["template"])
        pods = self.owned_pods(workload)
        by_node: dict[str, list[JsonObject]] = {}
        for pod in pods:
            by_node.setdefault(_target(pod), []).append(pod)
        fitting = [
            node["metadata"]["name"]
            for node in self.api.all("nodes")
            if _fits(node, workload["spec"]["template"])
        ]
        for name in fitting:
            active = [pod for pod in by_node.get(name, ()) if not is_terminating(pod)]
            finished = [pod for pod in active if not is_active(pod)]
            for pod in finished:
                self.delete_pod(workload, pod)
            if not by_node.get(name):
                self._create(workload, name, revision)
        for name in by_node.keys() - set(fitting):
            for pod in by_node[name]:
                if not is_terminating(pod):
                    self.delete_pod(workload, pod)
        self._roll(workload, pods, revision)
        self._write_counts(workload, fitting, pods, revision)

    def _create(self, workload: JsonObject, node_name: str, revision: str) -> None:
        name = workload["metadata"]["name"]
        pod = self.pod_from_template(
            workload, generateName=f"{name}-", labels={REVISION_LABEL: revision}
        )
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node_name]}]}
        affinity = pod["spec"].get("affinity") or {}
        node_affinity = {
            **(affinity.get("nodeAffinity") or {}),
            _REQUIRED: {"nodeSelectorTerms": [term]},
        }
        pod["spec"]["affinity"] = {**affinity, "nodeAffinity": node_affinity}
        pod["spec"]["tolerations"] = [*(pod["spec"].get("tolerations") or ()), *_TOLERATIONS]
        self.create_pod(workload, pod)

    def _roll(self, workload: JsonObject, pods: list[JsonObject], revision: str) -> None:
        """Replace one pod of an older template, if all others are ready."""
        if workload["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return
        outdated = [pod for pod in pods if labels_of(pod).get(REVISION_LABEL) != revision]
        if outdated and ready_count(pods) == len(pods) and not is_terminating(outdated[0]):
            self.delete_pod(workload, outdated[0])
            self.queue.add(key_of(workload))

    def _write_counts(
        self, workload: JsonObject, fitting: list[str], pods: list[JsonObject], revision: str
    ) -> None:
        active = [pod for pod in pods if is_active(pod)]
        bound = [pod for pod in active if pod["spec"].get("nodeName")]
        ready = ready_count(bound)
        optional = {
            "updatedNumberScheduled": sum(
                1 for pod in bound if labels_of(pod).get(REVISION_LABEL) == revision
            ),
            "numberAvailable": ready,
            "numberUnavailable": len(fitting) - ready,
        }
        self.write_status(
            workload,
            {
                "currentNumberScheduled": len(bound),
                "numberMisscheduled": 0,
                "desiredNumberScheduled": len(fitting),
                "numberReady": ready,
                **{name: count for name, count in optional.items() if count},
                "observedGeneration": workload["metadata"]["generation"],
            },
        )


def _target(pod: JsonObject) -> str:
    """The node a pod of a DaemonSet is for."""
    bound: str = pod["spec"].get("nodeName", "")
    terms = pick(pod, ("spec", "affinity", "nodeAffinity", _REQUIRED, "nodeSelectorTerms")) or ()
    for term in terms:
        for field in term.get("matchFields") or ():
            if field["key"] == "metadata.name" and field["values"]:
                return str(field["values"][0])
    return bound


def _fits(node: JsonObject, template: JsonObject) -> bool:
    """Whether the DaemonSet wants a pod there: selector and affinity match, no taint forbids it."""
    spec, labels = template["spec"], labels_of(node)
    if not (spec.get("nodeSelector") or EMPTY).items() <= labels.items():
        return False
    required = parse_node_selector(pick(spec, ("affinity", "nodeAffinity", _REQUIRED)))
    if required is not None and not required.matches(labels, node["metadata"]["name"]):
        return False
    tolerations = parse_tolerations([*(spec.get("tolerations") or ()), *_TOLERATIONS])
    taints = parse_taints(node["spec"].get("taints"))
    return not untolerated(taints, tolerations, (NO_SCHEDULE, NO_EXECUTE))
