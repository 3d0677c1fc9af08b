"""Deployments: one ReplicaSet for each version of the template, and the roll-over between them.

Invariant: the current ReplicaSet grows only while all of them together want at most maxSurge pods
more than the Deployment does.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.failures import StatusError
from stellwerk_cluster.apimachinery.objects import EMPTY, key_of, meta, with_value
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.controllers import deployment_status, rollout
from stellwerk_cluster.controllers.rollout import HASH_LABEL, replicas_of, revision_of
from stellwerk_cluster.controllers.workload import WorkloadController, template_hash
from stellwerk_cluster.registry.deletion import DeleteOptions, delete

if TYPE_CHECKING:
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

REPLICA_SETS: Final = "replicasets.apps"
_NOT_COPIED: Final = frozenset(
    (
        "kubectl.kubernetes.io/last-applied-configuration",
        rollout.REVISION,
        rollout.REVISION_HISTORY,
        rollout.DESIRED,
        rollout.MOST,
        "deprecated.deployment.rollback.to",
    )
)
_ALREADY_EXISTS: Final = "AlreadyExists"


class DeploymentController(WorkloadController):
    """Scales the ReplicaSets of a Deployment towards its current template, step by step."""

    plural = "deployments"
    children = (REPLICA_SETS,)

    def __init__(self, api: Api, index: Index) -> None:
        """Follow Deployments and ReplicaSets, and the end of the pods that Recreate waits for."""
        super().__init__(api, index)
        self._replica_sets = api.kinds.resource("replicasets", "apps")
        self._awaited: dict[str, tuple[str, str]] = {}
        """Pod uid → the Deployment that waits for the pod's end."""
        api.store.collection("pods").listeners.append(
            lambda event: self._on_pod(event.entry.obj, gone=event.type == "DELETED")
        )

    def _on_pod(self, pod: JsonObject, *, gone: bool) -> None:
        uid = pod["metadata"]["uid"]
        if uid in self._awaited and (gone or is_finished(pod)):
            self.queue.add(self._awaited.pop(uid))

    @override
    def sync(self, workload: JsonObject) -> None:
        owned = self.claimed(workload, REPLICA_SETS)
        owned.sort(key=lambda each: str(meta(each).get("creationTimestamp")))
        template, spec = workload["spec"]["template"], workload["spec"]
        current = next((each for each in owned if rollout.same_template(template, each)), None)
        if spec.get("paused") or self._is_scaled(workload, owned):
            self._scale_all(workload, current, owned)
        elif current is None:
            self._create(workload, owned)
            return
        else:
            old = [each for each in owned if each is not current]
            self._number(workload, current, old)
            if spec["strategy"]["type"] == "Recreate":
                self._recreate(workload, current, old)
            else:
                self._roll(workload, current, old)
            self._clean_up(workload, old)
        self._write_status(workload, current)

    # The ReplicaSet of the template.

    def _create(self, workload: JsonObject, owned: list[JsonObject]) -> None:
        spec, metadata = workload["spec"], workload["metadata"]
        template, status = spec["template"], workload.get("status") or EMPTY
        collisions = status.get("collisionCount", 0)
        salted = {**template, "collisions": collisions} if collisions else template
        digest = template_hash(salted)
        labels = {**(meta(template).get("labels") or {}), HASH_LABEL: digest}
        match_labels = {**(spec["selector"].get("matchLabels") or {}), HASH_LABEL: digest}
        strategy = spec["strategy"]["type"]
        surge = rollout.roll_limits(spec)[0]
        room = max(0, spec["replicas"] + surge - rollout.total_of(owned))
        body = {
            "metadata": {
                "name": f"{metadata['name']}-{digest}",
                "labels": labels,
                "annotations": self._annotations(workload, _next_revision(owned)),
                "ownerReferences": [self.owner_reference(workload)],
            },
            "spec": {
                "replicas": 0 if strategy == "Recreate" else min(room, spec["replicas"]),
                "minReadySeconds": spec.get("minReadySeconds", 0),
                "selector": {**spec["selector"], "matchLabels": match_labels},
                "template": {**template, "metadata": {**meta(template), "labels": labels}},
            },
        }
        try:
            made = self.api.create(self._replica_sets, metadata["namespace"], body).obj
        except StatusError as error:
            if error.reason != _ALREADY_EXISTS:
                raise
            self.write_status(workload, {**status, "collisionCount": collisions + 1})
            self.queue.add(key_of(workload))
            return
        if replicas_of(made):
            self._report_scale(workload, made, 0)
        self._write_revision(workload, _next_revision(owned))
        condition = deployment_status.created(made["metadata"]["name"], self.api.now())
        self.write_status(workload, deployment_status.with_condition(status, condition))

    def _annotations(self, workload: JsonObject, revision: int) -> JsonObject:
        """The annotations of a ReplicaSet: the Deployment's, its revision and sizes."""
        given = meta(workload).get("annotations") or EMPTY
        wanted = workload["spec"]["replicas"]
        return {
            **{key: value for key, value in given.items() if key not in _NOT_COPIED},
            rollout.REVISION: str(revision),
            rollout.DESIRED: str(wanted),
            rollout.MOST: str(wanted + rollout.roll_limits(workload["spec"])[0]),
        }

    def _number(self, workload: JsonObject, current: JsonObject, old: list[JsonObject]) -> None:
        """The current ReplicaSet has the highest revision, also if it is an old one again."""
        revision = max(_next_revision(old), revision_of(current))
        has = meta(current).get("annotations") or EMPTY
        annotations = {**has, **self._annotations(workload, revision)}
        earlier = revision_of(current)
        if 0 < earlier < revision:
            past = [each for each in has.get(rollout.REVISION_HISTORY, "").split(",") if each]
            annotations[rollout.REVISION_HISTORY] = ",".join([*past, str(earlier)])
        if annotations != has:
            self.api.modify(
                self._replica_sets,
                key_of(current),
                partial(with_value, path=("metadata", "annotations"), value=annotations),
                owned_under="",
            )
        self._write_revision(workload, revision)

    def _write_revision(self, workload: JsonObject, revision: int) -> None:
        if revision_of(workload) != revision:
            path = ("metadata", "annotations", rollout.REVISION)
            self.api.modify(
                self.kind,
                key_of(workload),
                partial(with_value, path=path, value=str(revision)),
                owned_under="",
            )

    # The steps of a rollout.

    def _roll(self, workload: JsonObject, current: JsonObject, old: list[JsonObject]) -> None:
        size = rollout.grown(workload["spec"], current, [*old, current])
        if size != replicas_of(current):
            self._scale(workload, current, size)
            return
        sizes = rollout.shrunk(workload["spec"], current, old)
        for each in old:
            self._scale(workload, each, sizes[each["metadata"]["name"]])

    def _recreate(self, workload: JsonObject, current: JsonObject, old: list[JsonObject]) -> None:
        for each in old:
            self._scale(workload, each, 0)
        left = [
            pod
            for each in old
            for pod in self.index.owned(each["metadata"]["uid"], "pods")
            if not is_finished(pod)
        ]
        for pod in left:
            self._awaited[pod["metadata"]["uid"]] = key_of(workload)
        if not left:
            self._scale(workload, current, workload["spec"]["replicas"])

    @staticmethod
    def _is_scaled(workload: JsonObject, owned: list[JsonObject]) -> bool:
        """Whether the Deployment wants another number of pods than when its ReplicaSets grew."""
        wanted = str(workload["spec"]["replicas"])
        noted = [rollout.annotation(each, rollout.DESIRED) for each in owned if replicas_of(each)]
        return any(each and each != wanted for each in noted)

    def _scale_all(
        self, workload: JsonObject, current: JsonObject | None, owned: list[JsonObject]
    ) -> None:
        """Scale amid a rollout, or while paused: no ReplicaSet is given another share."""
        spec, active = workload["spec"], [each for each in owned if replicas_of(each)]
        latest = max(owned, key=revision_of, default=None)
        if len(active) <= 1:
            only = active[0] if active else current or latest
            if only is not None:
                self._scale(workload, only, spec["replicas"], noting=True)
        elif spec["strategy"]["type"] == "RollingUpdate":
            sizes = rollout.proportional(spec, active)
            for each in active:
                self._scale(workload, each, sizes[each["metadata"]["name"]], noting=True)

    def _scale(
        self, workload: JsonObject, replica_set: JsonObject, replicas: int, *, noting: bool = False
    ) -> None:
        """Let a ReplicaSet want that many; `noting` what the Deployment wants, even if equal."""
        before = replicas_of(replica_set)
        notes = {
            key: value
            for key, value in self._annotations(workload, 0).items()
            if key in (rollout.DESIRED, rollout.MOST)
        }
        has = meta(replica_set).get("annotations") or EMPTY
        stale = noting and not notes.items() <= has.items()
        if before == replicas and not stale:
            return
        patch = {"metadata": {"annotations": notes}, "spec": {"replicas": replicas}}
        changed = self.api.patch(self._replica_sets, key_of(replica_set), patch).obj
        if before != replicas:
            self._report_scale(workload, changed, before)

    def _report_scale(self, workload: JsonObject, replica_set: JsonObject, before: int) -> None:
        after, name = replicas_of(replica_set), replica_set["metadata"]["name"]
        direction = "up" if after > before else "down"
        text = f"Scaled {direction} replica set {name} from {before} to {after}"
        self.report(workload, "ScalingReplicaSet", text)

    # Before and after.

    def _clean_up(self, workload: JsonObject, old: list[JsonObject]) -> None:
        """Forget all but the last few empty ReplicaSets."""
        empty = [each for each in old if not replicas_of(each) and not each["status"]["replicas"]]
        empty.sort(key=revision_of)
        keep = workload["spec"]["revisionHistoryLimit"]
        for each in empty[: max(0, len(empty) - keep)]:
            delete(self.api, self._replica_sets, key_of(each), DeleteOptions())

    def _write_status(self, workload: JsonObject, current: JsonObject | None) -> None:
        """Write what the ReplicaSets have come to, as they are now."""
        key, now = key_of(workload), self.api.now()
        workload = self.api.get(self.kind, *key).obj
        owned = self.index.owned(workload["metadata"]["uid"], REPLICA_SETS)
        if current is not None:
            current = self.api.find(REPLICA_SETS, *key_of(current))
        status = deployment_status.status_of(workload, current, owned, now)
        self.write_status(workload, status)
        seconds = deployment_status.seconds_to_deadline(workload, status, now)
        if seconds is not None:
            self.queue.add_after(key, seconds)


def _next_revision(old: list[JsonObject]) -> int:
    return 1 + max(map(revision_of, old), default=0)
