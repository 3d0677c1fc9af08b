"""Deployments: one ReplicaSet for each version of the template, and the roll-over between them.

Invariant: the current ReplicaSet grows only while all of them together want at most maxSurge pods
more than the Deployment does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, key_of, labels_of, timestamp, with_value
from stellwerk_cluster.controllers.workload import WorkloadController, absolute, template_hash
from stellwerk_cluster.registry.deletion import DeleteOptions, delete

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api

REPLICA_SETS: Final = "replicasets.apps"
HASH_LABEL: Final = "pod-template-hash"
_REVISION: Final = "deployment.kubernetes.io/revision"


class DeploymentController(WorkloadController):
    """Scales the ReplicaSets of a Deployment towards its current template, step by step."""

    plural = "deployments"
    children = (REPLICA_SETS,)

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Deployments and ReplicaSets."""
        super().__init__(api, index)
        self._replica_sets = api.kinds.resource("replicasets", "apps")

    @override
    def sync(self, workload: JsonObject) -> None:
        owned = self.index.owned(workload["metadata"]["uid"], REPLICA_SETS)
        digest = template_hash(workload["spec"]["template"])
        current = next((each for each in owned if labels_of(each).get(HASH_LABEL) == digest), None)
        old = [each for each in owned if each is not current]
        if current is None:
            self._create(workload, digest, owned)
            return
        if not workload["spec"].get("paused"):
            self._roll(workload, current, old)
        self._clean_up(workload, old)
        self._write_status(workload, current, [*old, current])

    def _create(self, workload: JsonObject, digest: str, owned: list[JsonObject]) -> None:
        spec, metadata = workload["spec"], workload["metadata"]
        template = spec["template"]
        labels = {**((template.get("metadata") or EMPTY).get("labels") or {}), HASH_LABEL: digest}
        revision = 1 + max((_revision(each) for each in owned), default=0)
        match_labels = {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: digest}
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "labels": labels,
                "annotations": {_REVISION: str(revision)},
                "ownerReferences": [self.owner_reference(workload)],
            },
            "spec": {
                "replicas": 0,
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": {**spec["selector"], "matchLabels": match_labels},
                "template": {
                    **template,
                    "metadata": {**(template.get("metadata") or {}), "labels": labels},
                },
            },
        }
        self.api.create(self._replica_sets, metadata["namespace"], body)
        annotated = ("metadata", "annotations", _REVISION)
        self.api.modify(
            self.kind,
            key_of(workload),
            lambda obj: with_value(obj, annotated, str(revision)),
            owned_under="",
        )

    def _roll(self, workload: JsonObject, current: JsonObject, old: list[JsonObject]) -> None:
        """One step from the old ReplicaSets to the current one."""
        spec = workload["spec"]
        wanted = spec["replicas"]
        surge, unavailable = _roll_limits(spec)
        total = sum(_replicas(each) for each in [*old, current])
        if spec["strategy"]["type"] == "Recreate":
            for each in old:
                self._scale(workload, each, 0)
            if not any((each["status"].get("replicas") or 0) for each in old):
                self._scale(workload, current, wanted)
            return
        growth = max(0, wanted + surge - total)
        if _replicas(current) != wanted:
            grown = min(wanted, _replicas(current) + growth)
            self._scale(workload, current, grown if _replicas(current) < wanted else wanted)
        available = sum(each["status"].get("availableReplicas", 0) for each in [*old, current])
        removable = available - (wanted - unavailable)
        for each in old:
            unhealthy = _replicas(each) - each["status"].get("availableReplicas", 0)
            less = min(_replicas(each), unhealthy + max(0, removable))
            removable -= max(0, less - unhealthy)
            self._scale(workload, each, _replicas(each) - less)

    def _scale(self, workload: JsonObject, replica_set: JsonObject, replicas: int) -> None:
        before = _replicas(replica_set)
        if before == replicas:
            return
        self.api.patch(self._replica_sets, key_of(replica_set), {"spec": {"replicas": replicas}})
        direction = "up" if replicas > before else "down"
        name = replica_set["metadata"]["name"]
        text = f"Scaled {direction} replica set {name} from {before} to {replicas}"
        self.report(workload, "ScalingReplicaSet", text)

    def _clean_up(self, workload: JsonObject, old: list[JsonObject]) -> None:
        """Forget all but the last few empty ReplicaSets."""
        empty = [each for each in old if not _replicas(each) and not each["status"].get("replicas")]
        empty.sort(key=_revision)
        keep = workload["spec"]["revisionHistoryLimit"]
        for each in empty[: max(0, len(empty) - keep)]:
            delete(self.api, self._replica_sets, key_of(each), DeleteOptions())

    def _write_status(
        self, workload: JsonObject, current: JsonObject, owned: list[JsonObject]
    ) -> None:
        wanted = workload["spec"]["replicas"]
        total = sum(each["status"].get("replicas", 0) for each in owned)
        available = sum(each["status"].get("availableReplicas", 0) for each in owned)
        updated = current["status"].get("replicas", 0)
        counts = {
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(each["status"].get("readyReplicas", 0) for each in owned),
            "availableReplicas": available,
            "unavailableReplicas": max(0, max(total, wanted) - available),
        }
        enough = available >= wanted - _roll_limits(workload["spec"])[1]
        done = updated == wanted == total == available
        conditions = [
            _condition(
                "Available", "MinimumReplicasAvailable", "MinimumReplicasUnavailable", holds=enough
            ),
            _condition(
                "Progressing",
                "NewReplicaSetAvailable" if done else "ReplicaSetUpdated",
                "",
                holds=True,
            ),
        ]
        self.write_status(
            workload,
            {
                "observedGeneration": workload["metadata"]["generation"],
                **{name: count for name, count in counts.items() if count},
                "conditions": self._stamped(workload, conditions),
            },
        )

    def _stamped(self, workload: JsonObject, conditions: list[JsonObject]) -> list[JsonObject]:
        """The conditions with their times; those that did not change keep theirs."""
        now = timestamp(self.api.now())
        before = {
            each["type"]: each for each in (workload.get("status") or EMPTY).get("conditions") or ()
        }
        stamped = []
        for condition in conditions:
            old = before.get(condition["type"], EMPTY)
            same_status = old.get("status") == condition["status"]
            same = same_status and old.get("reason") == condition["reason"]
            stamped.append(
                {
                    **condition,
                    "lastUpdateTime": old["lastUpdateTime"] if same else now,
                    "lastTransitionTime": old["lastTransitionTime"] if same_status else now,
                }
            )
        return stamped


def _replicas(replica_set: JsonObject) -> int:
    count: int = replica_set["spec"].get("replicas", 1)
    return count


def _revision(replica_set: JsonObject) -> int:
    return int((replica_set["metadata"].get("annotations") or EMPTY).get(_REVISION, 0))


def _roll_limits(spec: JsonObject) -> tuple[int, int]:
    """(most pods too many, most pods unavailable) while rolling over; never both zero."""
    rolling = spec["strategy"].get("rollingUpdate") or EMPTY
    wanted = spec["replicas"]
    surge = absolute(rolling.get("maxSurge", 0), wanted, round_up=True)
    unavailable = absolute(rolling.get("maxUnavailable", 0), wanted, round_up=False)
    return surge, unavailable if surge or unavailable else 1


def _condition(type_: str, reason: str, failing_reason: str, *, holds: bool) -> JsonObject:
    text = (
        "Deployment has minimum availability."
        if holds
        else "Deployment does not have minimum availability."
    )
    return {
        "type": type_,
        "status": "True" if holds else "False",
        "reason": reason if holds else failing_reason,
        "message": text if type_ == "Available" else "",
    }
