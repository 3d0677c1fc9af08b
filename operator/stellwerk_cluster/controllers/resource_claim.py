"""Claims for devices: made from templates for pods, given up when no pod uses them any more.

Invariant: a pod's reference to a template has one claim, which the pod's status names and the pod
owns; an allocation that no pod has reserved any more is taken away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from typing_extensions import override

from stellwerk_cluster.apimachinery.feature_gates import CLAIMS
from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, key_of, with_value
from stellwerk_cluster.apimachinery.releases import CLAIMS_OF_GROUPS, holds
from stellwerk_cluster.controllers.pod_group_claims import PodGroupClaims, is_group, is_of_group
from stellwerk_cluster.registry.deletion import DeleteOptions, delete
from stellwerk_cluster.registry.entries import ADDED, StoreEvent
from stellwerk_cluster.work import Worker, WorkQueue

if TYPE_CHECKING:
    from collections.abc import Hashable

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject

GROUP: Final = "resource.k8s.io"
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
POD_CLAIM: Final = "resource.kubernetes.io/pod-claim-name"
_CLAIMS: Final = f"resourceclaims.{GROUP}"
_TEMPLATES: Final = f"resourceclaimtemplates.{GROUP}"
_RETRY_SECONDS: Final = 2.0
"""Pause before a claim is tried again that could not be made."""
_MAX_PREFIX_CHARACTERS: Final = 200
"""Characters of a made claim's name before its suffix, so that the name keeps within 253."""


class ResourceClaimController(Worker):
    """Follows pods and claims."""

    def __init__(self, api: Api) -> None:
        """Follow the store of `api`."""
        self._api = api
        self._pods = api.kinds.resource("pods")
        self._kind = api.kinds.resource("resourceclaims", GROUP)
        self.queue = WorkQueue(api.clock)
        self._group_claims = PodGroupClaims(api, self.queue) if api.feature(CLAIMS) else None
        self._leaves_to_groups = self._group_claims is None and holds(CLAIMS_OF_GROUPS, api.release)
        """The gate is off, and groups may still say what they said while it was on."""
        for storage_name, listener in (("pods", self._on_pod), (_CLAIMS, self._on_claim)):
            collection = api.store.collection(storage_name)
            collection.listeners.append(listener)
            for entry in collection.entries():
                listener(StoreEvent(ADDED, entry, None))

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.entry.obj
        if not pod["spec"].get("resourceClaims") and not _extended(pod):
            return
        self.queue.add(("pod", *event.entry.key))
        statuses = (pod.get("status") or EMPTY).get("resourceClaimStatuses") or ()
        names = {each.get("resourceClaimName") for each in statuses} | {_extended(pod)}
        names |= {each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims") or ()}
        for name in names - {None, ""}:
            self.queue.add(("claim", event.entry.key[0], name))

    def _on_claim(self, event: StoreEvent) -> None:
        self.queue.add(("claim", *event.entry.key))
        for owner in event.entry.obj["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod":
                self.queue.add(("pod", event.entry.key[0], owner["name"]))
            elif owner["kind"] == "PodGroup" and self._group_claims is not None:
                self.queue.add(("group", event.entry.key[0], owner["name"]))

    @override
    def reconcile(self, key: Hashable) -> None:
        """Bring a pod's claims, or one claim, into order."""
        assert isinstance(key, tuple)  # noqa: S101  (this queue holds such keys only)
        what, namespace, name = key
        if what == "pod":
            self._sync_pod((namespace, name))
        elif what == "group":
            assert self._group_claims is not None  # noqa: S101  (it alone adds such keys)
            self._group_claims.sync((namespace, name))
        else:
            self._sync_claim((namespace, name))

    # --- claims from templates ------------------------------------------------------------------

    def _sync_pod(self, key: Key) -> None:
        pod = self._api.find("pods", *key)
        if pod is None or is_terminating(pod) or _is_over(pod):
            return
        # A claim that another client has deleted is made again, under another name.
        statuses = [
            each
            for each in (pod.get("status") or EMPTY).get("resourceClaimStatuses") or ()
            if not each.get("resourceClaimName")
            or self._api.find(_CLAIMS, key[0], each["resourceClaimName"]) is not None
        ]
        known = {each["name"] for each in statuses}
        made = [
            {"name": reference["name"], "resourceClaimName": name}
            for reference in pod["spec"].get("resourceClaims") or ()
            if reference.get("resourceClaimTemplateName") and reference["name"] not in known
            if (name := self._claim_for(pod, reference))
        ]
        if made:
            self._api.modify(
                self._pods,
                key,
                lambda obj: with_value(obj, ("status", "resourceClaimStatuses"), statuses + made),
                owned_under="status",
            )

    def _claim_for(self, pod: JsonObject, reference: JsonObject) -> str:
        """The name of the claim for a reference, which may be there already; empty: not yet."""
        namespace, pod_name = key_of(pod)
        if self._group_claims is not None and self._group_claims.is_shared(pod, reference):
            return self._group_claims.claim_of(pod, reference)
        if self._leaves_to_groups and is_of_group(self._api, pod, reference):
            return ""
        for entry in self._api.store.collection(_CLAIMS).entries(namespace):
            metadata = entry.obj["metadata"]
            if (
                _is_owned(entry.obj, pod)
                and (metadata.get("annotations") or EMPTY).get(POD_CLAIM) == reference["name"]
            ):
                return str(metadata["name"])
        template = self._api.find(_TEMPLATES, namespace, reference["resourceClaimTemplateName"])
        if template is None:
            self.queue.add_after(("pod", namespace, pod_name), _RETRY_SECONDS)
            return ""
        wanted = template["spec"].get("metadata") or EMPTY
        metadata = {
            "generateName": f"{pod_name}-{reference['name']}"[:_MAX_PREFIX_CHARACTERS] + "-",
            "namespace": namespace,
            "labels": dict(wanted.get("labels") or EMPTY),
            "annotations": {**(wanted.get("annotations") or EMPTY), POD_CLAIM: reference["name"]},
            "ownerReferences": [_owner(pod)],
        }
        claim = {"metadata": metadata, "spec": template["spec"]["spec"]}
        return str(self._api.create(self._kind, namespace, claim).obj["metadata"]["name"])

    # --- claims in use --------------------------------------------------------------------------

    def _sync_claim(self, key: Key) -> None:
        claim = self._api.find(_CLAIMS, *key)
        if claim is None:
            return
        status = claim.get("status") or EMPTY
        reserved = list(status.get("reservedFor") or ())
        left = [each for each in reserved if self._uses(key[0], each)]
        if left != reserved:
            claim = self._api.modify(
                self._kind, key, lambda obj: _with_consumers(obj, left), owned_under="status"
            ).obj
        unused = not left and (bool(reserved) or is_terminating(claim))
        if unused and (claim.get("status") or EMPTY).get("allocation"):
            claim = self._api.modify(self._kind, key, _without_allocation, owned_under="status").obj
        if not (claim.get("status") or EMPTY).get("allocation") and (
            unused or is_terminating(claim)
        ):
            claim = self._api.modify(self._kind, key, _without_finalizer).obj
        if self._is_done(key[0], claim) and not is_terminating(claim):
            delete(self._api, self._kind, key, DeleteOptions(uid=claim["metadata"]["uid"]))

    def _uses(self, namespace: str, consumer: JsonObject) -> bool:
        """Whether a consumer still is, or may still be, using the claim."""
        if self._group_claims is not None and is_group(consumer):
            return self._group_claims.exists(namespace, consumer)
        if consumer.get("resource") != "pods" or consumer.get("apiGroup"):
            return True
        pod = self._api.find("pods", namespace, consumer["name"])
        return pod is not None and pod["metadata"]["uid"] == consumer["uid"] and not _is_over(pod)

    def _is_done(self, namespace: str, claim: JsonObject) -> bool:
        """Whether the claim was made for a pod that has run to its end."""
        for owner in claim["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "Pod" and owner.get("controller"):
                pod = self._api.find("pods", namespace, owner["name"])
                return pod is not None and pod["metadata"]["uid"] == owner["uid"] and _is_over(pod)
        return False


def _is_over(pod: JsonObject) -> bool:
    return (pod.get("status") or EMPTY).get("phase") in ("Succeeded", "Failed")


def _extended(pod: JsonObject) -> str:
    """The claim for the pod's extended resources."""
    extended = (pod.get("status") or EMPTY).get("extendedResourceClaimStatus") or EMPTY
    return str(extended.get("resourceClaimName") or "")


def _owner(pod: JsonObject) -> JsonObject:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _is_owned(claim: JsonObject, pod: JsonObject) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == pod["metadata"]["uid"] for each in owners)


def _with_consumers(claim: JsonObject, consumers: list[JsonObject]) -> JsonObject:
    return with_value(claim, ("status", "reservedFor"), consumers or None)


def _without_allocation(claim: JsonObject) -> JsonObject:
    without_devices = with_value(claim, ("status", "devices"), None)
    return with_value(without_devices, ("status", "allocation"), None)


def _without_finalizer(claim: JsonObject) -> JsonObject:
    left = [each for each in claim["metadata"].get("finalizers") or () if each != FINALIZER]
    return with_value(claim, ("metadata", "finalizers"), left or None)
