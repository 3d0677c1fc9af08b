"""StatefulSets: pods with numbers, started and stopped in order, or at once if the set says so.

Invariant: a pod with a number is created only when no pod of that number exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import is_terminating, labels_of
from stellwerk_cluster.apimachinery.pods import is_finished, is_ready
from stellwerk_cluster.controllers.workload import (
    REVISION_LABEL,
    WorkloadController,
    ready_count,
    template_hash,
)

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject

_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


class StatefulSetController(WorkloadController):
    """Keeps the pods `name-0` to `name-N`, one after the other or all at once."""

    plural = "statefulsets"

    @override
    def sync(self, workload: JsonObject) -> None:
        pods = {pod["metadata"]["name"]: pod for pod in self.owned_pods(workload)}
        wanted = workload["spec"]["replicas"]
        revision = f"{workload['metadata']['name']}-{template_hash(workload['spec']['template'])}"
        parallel = workload["spec"]["podManagementPolicy"] == "Parallel"
        if self._fill(workload, pods, wanted, revision, parallel=parallel):
            self._shrink(workload, pods, wanted, parallel=parallel)
            self._roll(workload, pods, wanted, revision)
        self._write_counts(workload, list(pods.values()), revision)

    def _fill(
        self,
        workload: JsonObject,
        pods: dict[str, JsonObject],
        wanted: int,
        revision: str,
        *,
        parallel: bool,
    ) -> bool:
        """Create missing pods; whether all wanted ones are there and, in order, ready."""
        complete = True
        for ordinal in range(wanted):
            name = _pod_name(workload, ordinal)
            pod = pods.get(name)
            if pod is None:
                self._create(workload, name, ordinal, revision)
                complete = False
            elif is_finished(pod) and not is_terminating(pod):
                self.delete_pod(workload, pod)
                complete = False
            elif parallel or (is_ready(pod) and not is_terminating(pod)):
                continue
            if not parallel:
                return False
        return complete

    def _create(self, workload: JsonObject, name: str, ordinal: int, revision: str) -> None:
        labels = {_NAME_LABEL: name, _INDEX_LABEL: str(ordinal), REVISION_LABEL: revision}
        pod = self.pod_from_template(workload, name=name, labels=labels)
        pod["spec"]["hostname"] = name
        pod["spec"]["subdomain"] = workload["spec"].get("serviceName", "")
        claims = workload["spec"].get("volumeClaimTemplates") or ()
        for claim in claims:
            self._create_claim(workload, claim, name)
        if claims:
            own = [
                {
                    "name": claim["metadata"]["name"],
                    "persistentVolumeClaim": {"claimName": _claim_name(claim, name)},
                }
                for claim in claims
            ]
            names = {volume["name"] for volume in own}
            others = [
                each for each in pod["spec"].get("volumes") or () if each["name"] not in names
            ]
            pod["spec"]["volumes"] = [*own, *others]
        self.create_pod(workload, pod)

    def _create_claim(self, workload: JsonObject, claim: JsonObject, pod_name: str) -> None:
        namespace, name = workload["metadata"]["namespace"], _claim_name(claim, pod_name)
        if self.api.find("persistentvolumeclaims", namespace, name) is None:
            metadata = {**claim["metadata"], "name": name}
            body = {"metadata": metadata, "spec": dict(claim["spec"])}
            self.api.create(self.api.kinds.resource("persistentvolumeclaims"), namespace, body)

    def _shrink(
        self, workload: JsonObject, pods: dict[str, JsonObject], wanted: int, *, parallel: bool
    ) -> None:
        surplus = [pod for name, pod in pods.items() if _ordinal(workload, name) >= wanted]
        surplus.sort(key=lambda pod: _ordinal(workload, pod["metadata"]["name"]), reverse=True)
        for pod in surplus:
            if not is_terminating(pod):
                self.delete_pod(workload, pod)
            if not parallel:
                return

    def _roll(
        self, workload: JsonObject, pods: dict[str, JsonObject], wanted: int, revision: str
    ) -> None:
        """Replace the last pod of an older template; the next one follows when it is back."""
        strategy = workload["spec"]["updateStrategy"]
        if strategy["type"] != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition", 0)
        for ordinal in range(wanted - 1, partition - 1, -1):
            pod = pods.get(_pod_name(workload, ordinal))
            if pod is None or is_terminating(pod):
                return
            if labels_of(pod).get(REVISION_LABEL) != revision:
                self.delete_pod(workload, pod)
                return

    def _write_counts(self, workload: JsonObject, pods: list[JsonObject], revision: str) -> None:
        ready = ready_count(pods)
        updated = sum(1 for pod in pods if labels_of(pod).get(REVISION_LABEL) == revision)
        counts = {
            "readyReplicas": ready,
            "currentReplicas": updated,
            "updatedReplicas": updated,
        }
        self.write_status(
            workload,
            {
                "replicas": len(pods),
                "availableReplicas": ready,
                **{name: count for name, count in counts.items() if count},
                "observedGeneration": workload["metadata"]["generation"],
                "currentRevision": revision,
                "updateRevision": revision,
            },
        )


def _pod_name(workload: JsonObject, ordinal: int) -> str:
    return f"{workload['metadata']['name']}-{ordinal}"


def _claim_name(claim: JsonObject, pod_name: str) -> str:
    return f"{claim['metadata']['name']}-{pod_name}"


def _ordinal(workload: JsonObject, pod_name: str) -> int:
    tail = pod_name.removeprefix(f"{workload['metadata']['name']}-")
    return int(tail) if tail.isdigit() else -1
