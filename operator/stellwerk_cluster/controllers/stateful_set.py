"""StatefulSets: pods with numbers, started and stopped in order, or at once if the set says so.

Invariant: a pod with a number is created only when no pod of that number exists; its claims outlive
it unless persistentVolumeClaimRetentionPolicy says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import (
    EMPTY,
    is_terminating,
    key_of,
    labels_of,
    meta,
    with_value,
)
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.controllers.revisions import REVISIONS, RevisionHistory, template_of
from stellwerk_cluster.controllers.workload import (
    REVISION_LABEL,
    WorkloadController,
    ready_count,
    seconds_until_available,
)

if TYPE_CHECKING:
    from stellwerk_cluster.controllers.index import Index
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

_CLAIMS: Final = "persistentvolumeclaims"
_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
_INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"
_HASH_LABEL: Final = "controller.kubernetes.io/hash"


@dataclass(frozen=True, slots=True)
class _View:
    """A set at one moment: its pods by ordinal, and the two revisions it is between."""

    workload: JsonObject
    pods: dict[int, JsonObject]
    current: str
    update: str

    @property
    def ordinals(self) -> range:
        """The ordinals that should have a pod."""
        spec = self.workload["spec"]
        start = (spec.get("ordinals") or EMPTY).get("start", 0)
        return range(start, start + spec["replicas"])

    @property
    def ordered(self) -> bool:
        """Whether one pod waits for the one before."""
        return bool(self.workload["spec"]["podManagementPolicy"] == "OrderedReady")

    @property
    def first_updated(self) -> int:
        """The lowest ordinal that a rolling update reaches."""
        strategy = self.workload["spec"]["updateStrategy"]
        partition = (strategy.get("rollingUpdate") or EMPTY).get("partition", 0)
        return self.ordinals.start + int(partition)


class StatefulSetController(WorkloadController):
    """Keeps the pods `name-0` to `name-N`, one after the other or all at once."""

    plural = "statefulsets"

    def __init__(self, api: Api, index: Index) -> None:
        """Follow StatefulSets and their pods."""
        super().__init__(api, index)
        self._history = RevisionHistory(api, index, _HASH_LABEL)
        self._claims = StatefulClaims(api)

    @override
    def sync(self, workload: JsonObject) -> None:
        reference = self.owner_reference(workload)
        update: str = self._history.current(workload, reference)["metadata"]["name"]
        current = (workload.get("status") or EMPTY).get("currentRevision") or update
        pods = {_ordinal(workload, pod): pod for pod in self.owned_pods(workload)}
        view = _View(workload, pods, current, update)
        for ordinal, pod in view.pods.items():
            condemned = ordinal not in view.ordinals
            self._claims.keep_owners(workload, pod, reference, condemned=condemned)
        if self._fill(view) and self._shrink(view):
            self._roll(view)
        live = {labels_of(pod).get(REVISION_LABEL, "") for pod in pods.values()}
        self._history.truncate(workload, live | {current, update})
        self._write_counts(view)

    def _fill(self, view: _View) -> bool:
        """Create missing pods; whether all wanted ones are there and, in order, available."""
        complete = True
        for ordinal in view.ordinals:
            pod = view.pods.get(ordinal)
            if pod is None:
                self._create(view, ordinal)
                complete = False
            elif is_finished(pod) and not is_terminating(pod):
                self.delete_pod(view.workload, pod)
                complete = False
            elif not view.ordered or self._is_healthy(view.workload, pod):
                continue
            if view.ordered:
                return False
        return complete

    def _shrink(self, view: _View) -> bool:
        """End pods beyond the wanted ones, the highest first; whether there are none."""
        surplus = sorted(view.pods.keys() - set(view.ordinals), reverse=True)
        for ordinal in surplus:
            if not is_terminating(view.pods[ordinal]):
                self.delete_pod(view.workload, view.pods[ordinal])
            if view.ordered:
                break
        return not surplus

    def _roll(self, view: _View) -> None:
        """Replace the last pod of an older template; the next one follows when it is back."""
        if view.workload["spec"]["updateStrategy"]["type"] != "RollingUpdate":
            return
        for ordinal in range(view.ordinals.stop - 1, view.first_updated - 1, -1):
            pod = view.pods.get(ordinal)
            if pod is None or is_terminating(pod):
                return
            if labels_of(pod).get(REVISION_LABEL) != view.update:
                self.delete_pod(view.workload, pod)
                return
            if not self._is_healthy(view.workload, pod):
                return

    def _is_healthy(self, workload: JsonObject, pod: JsonObject) -> bool:
        """Whether the pod is available, and is to stay."""
        seconds = workload["spec"].get("minReadySeconds", 0)
        wait = seconds_until_available(pod, seconds, self.api.now())
        if wait:
            self.queue.add_after(key_of(workload), wait)
        return wait == 0 and not is_terminating(pod)

    def _create(self, view: _View, ordinal: int) -> None:
        workload = view.workload
        name = f"{workload['metadata']['name']}-{ordinal}"
        revision, template = view.update, workload["spec"]["template"]
        if ordinal < view.first_updated and view.current != view.update:
            older = self.api.find(REVISIONS, workload["metadata"]["namespace"], view.current)
            if older is not None:
                revision, template = view.current, template_of(older)
        labels = {_NAME_LABEL: name, _INDEX_LABEL: str(ordinal), REVISION_LABEL: revision}
        made_from = {**workload, "spec": {**workload["spec"], "template": template}}
        pod = self.pod_from_template(made_from, name=name, labels=labels)
        pod["spec"]["hostname"] = name
        pod["spec"]["subdomain"] = workload["spec"].get("serviceName", "")
        self._claims.ensure(workload, name)
        self.create_pod(workload, with_claims(workload, pod))

    def _write_counts(self, view: _View) -> None:
        pods = [
            pod
            for pod in self.index.owned(view.workload["metadata"]["uid"], "pods")
            if not is_terminating(pod)
        ]
        revisions = [labels_of(pod).get(REVISION_LABEL) for pod in pods]
        ready = ready_count(pods)
        updated, current = revisions.count(view.update), view.current
        if updated == len(pods) == len(view.ordinals) == ready:
            current = view.update
        counts = {
            "readyReplicas": ready,
            "currentReplicas": revisions.count(current),
            "updatedReplicas": updated,
        }
        self.write_status(
            view.workload,
            {
                "replicas": len(pods),
                "availableReplicas": sum(self._is_healthy(view.workload, pod) for pod in pods),
                **{name: count for name, count in counts.items() if count},
                "observedGeneration": view.workload["metadata"]["generation"],
                "currentRevision": current,
                "updateRevision": view.update,
                "collisionCount": 0,
            },
        )


def _ordinal(workload: JsonObject, pod: JsonObject) -> int:
    tail = str(pod["metadata"]["name"]).removeprefix(f"{workload['metadata']['name']}-")
    return int(tail) if tail.isascii() and tail.isdigit() else -1


class StatefulClaims:
    """Makes the claims of pods, and sets their owners as the retention policy asks."""

    def __init__(self, api: Api) -> None:
        """Write claims through `api`."""
        self._api = api
        self._kind = api.kinds.resource(_CLAIMS)

    def ensure(self, workload: JsonObject, pod_name: str) -> None:
        """Create the claims of a pod that do not exist yet."""
        namespace = workload["metadata"]["namespace"]
        for template in workload["spec"].get("volumeClaimTemplates") or ():
            labels = workload["spec"]["selector"].get("matchLabels") or {}
            metadata = {
                "name": claim_name(template, pod_name),
                "labels": {**(meta(template).get("labels") or {}), **labels},
                "annotations": dict(meta(template).get("annotations") or {}),
            }
            body = {"metadata": metadata, "spec": dict(template["spec"])}
            self._api.ensure(self._kind, namespace, body)

    def keep_owners(
        self, workload: JsonObject, pod: JsonObject, reference: JsonObject, *, condemned: bool
    ) -> None:
        """Let the claims of a pod go with the set, with the condemned pod, or with neither."""
        policy = workload["spec"].get("persistentVolumeClaimRetentionPolicy") or EMPTY
        wanted = []
        if condemned and policy.get("whenScaled") == "Delete":
            wanted.append(_owner(pod))
        elif policy.get("whenDeleted") == "Delete":
            wanted.append({**reference, "blockOwnerDeletion": False})
        uids = {workload["metadata"]["uid"], pod["metadata"]["uid"]}
        namespace = workload["metadata"]["namespace"]
        for template in workload["spec"].get("volumeClaimTemplates") or ():
            name = claim_name(template, pod["metadata"]["name"])
            claim = self._api.find(_CLAIMS, namespace, name)
            if claim is None:
                continue
            has = meta(claim).get("ownerReferences") or []
            owners = [*(each for each in has if each["uid"] not in uids), *wanted]
            if owners != has:
                path = ("metadata", "ownerReferences")
                change = partial(with_value, path=path, value=owners or None)
                self._api.modify(self._kind, key_of(claim), change, owned_under="")


def claim_name(template: JsonObject, pod_name: str) -> str:
    """The claim of a pod for a template."""
    return f"{template['metadata']['name']}-{pod_name}"


def with_claims(workload: JsonObject, pod: JsonObject) -> JsonObject:
    """The pod with a volume for each of its claims, in place of volumes of the same name."""
    templates = workload["spec"].get("volumeClaimTemplates") or ()
    if not templates:
        return pod
    own = [
        {
            "name": each["metadata"]["name"],
            "persistentVolumeClaim": {"claimName": claim_name(each, pod["metadata"]["name"])},
        }
        for each in templates
    ]
    names = {volume["name"] for volume in own}
    others = [each for each in pod["spec"].get("volumes") or () if each["name"] not in names]
    return with_value(pod, ("spec", "volumes"), [*own, *others])


def _owner(pod: JsonObject) -> JsonObject:
    metadata = pod["metadata"]
    return {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
