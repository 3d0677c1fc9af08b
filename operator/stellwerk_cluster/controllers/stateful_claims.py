"""The claims of a StatefulSet: one for each template and pod, and who they go with.

Used by `stateful_set`. Invariant: a claim outlives its pod unless
persistentVolumeClaimRetentionPolicy says otherwise.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, key_of, meta, with_value

if TYPE_CHECKING:
    from stellwerk.models.json_values import JsonObject
    from stellwerk_cluster.registry.api import Api

_CLAIMS: Final = "persistentvolumeclaims"


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
