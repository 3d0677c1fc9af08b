"""Claims for devices that the pods of a group share: made from templates for the group.

The ResourceClaim controller asks it where the gate DRAWorkloadResourceClaims is on. Invariant: a
group's reference to a template has one claim, which the group's status names and the group owns;
pods that have the same reference use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from stellwerk_cluster.apimachinery.objects import EMPTY, is_terminating, key_of, with_value
from stellwerk_cluster.apimachinery.pods import group_of
from stellwerk_cluster.registry.entries import ADDED, DELETED, StoreEvent
from stellwerk_cluster.validation.scheduling import POD_GROUPS

if TYPE_CHECKING:
    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.registry.api import Api
    from stellwerk_cluster.work import WorkQueue
    from stellwerk_kube.json_values import JsonObject

_GROUP: Final = "scheduling.k8s.io"
_CLAIMS: Final = "resourceclaims.resource.k8s.io"
_TEMPLATES: Final = "resourceclaimtemplates.resource.k8s.io"
GROUP_CLAIM: Final = "resource.kubernetes.io/pod-group-claim-name"
_SOURCES: Final = ("resourceClaimName", "resourceClaimTemplateName")
_RETRY_SECONDS: Final = 2.0
"""Pause before a claim is tried again that could not be made."""
_MAX_PREFIX_CHARACTERS: Final = 200
"""Characters of a made claim's name before its suffix, so that the name keeps within 253."""


class PodGroupClaims:
    """Follows groups; keys of the queue are ("group", namespace, name)."""

    def __init__(self, api: Api, queue: WorkQueue) -> None:
        """Follow the groups in the store of `api`."""
        self._api = api
        self._groups = api.kinds.resource("podgroups", _GROUP)
        self._claims = api.kinds.resource("resourceclaims", "resource.k8s.io")
        self._queue = queue
        groups = api.store.collection(POD_GROUPS)
        groups.listeners.append(self._on_group)
        for entry in groups.entries():
            self._on_group(StoreEvent(ADDED, entry, None))

    def _on_group(self, event: StoreEvent) -> None:
        namespace, name = event.entry.key
        group = event.entry.obj
        if not group["spec"].get("resourceClaims"):
            return
        self._queue.add(("group", namespace, name))
        if event.type == DELETED:
            for claim in _names_of(group):
                self._queue.add(("claim", namespace, claim))
            return
        for pod in self._api.all("pods", namespace):
            if group_of(pod) == name:
                self._queue.add(("pod", *key_of(pod)))

    # --- what pods share ------------------------------------------------------------------------

    def is_shared(self, pod: JsonObject, reference: JsonObject) -> bool:
        """Whether the pod's group has the same reference, name and source."""
        return is_of_group(self._api, pod, reference)

    def claim_of(self, pod: JsonObject, reference: JsonObject) -> str:
        """The group's claim for a reference; empty: it is not made yet."""
        statuses = (_group(self._api, pod).get("status") or EMPTY).get(
            "resourceClaimStatuses"
        ) or ()
        names = [each.get("resourceClaimName") for each in statuses if _is_for(each, reference)]
        return str(names[0] or "") if names else ""

    def exists(self, namespace: str, consumer: JsonObject) -> bool:
        """Whether a group that has a claim reserved is still there."""
        group = self._api.find(POD_GROUPS, namespace, consumer["name"])
        return group is not None and group["metadata"]["uid"] == consumer["uid"]

    # --- claims from templates ------------------------------------------------------------------

    def sync(self, key: Key) -> None:
        """Make the claims that a group lacks.

        Raises:
            StatusError: a claim is refused.
        """
        group = self._api.find(POD_GROUPS, *key)
        if group is None or is_terminating(group):
            return
        statuses = list((group.get("status") or EMPTY).get("resourceClaimStatuses") or ())
        known = {each["name"] for each in statuses}
        made = [
            {"name": reference["name"], "resourceClaimName": name}
            for reference in group["spec"].get("resourceClaims") or ()
            if reference.get("resourceClaimTemplateName") and reference["name"] not in known
            if (name := self._claim_for(group, reference))
        ]
        if made:
            self._api.modify(
                self._groups,
                key,
                lambda obj: with_value(obj, ("status", "resourceClaimStatuses"), statuses + made),
                owned_under="status",
            )

    def _claim_for(self, group: JsonObject, reference: JsonObject) -> str:
        """The name of the claim for a reference, which may be there already; empty: not yet."""
        namespace, name = key_of(group)
        for claim in self._api.all(_CLAIMS, namespace):
            annotations = claim["metadata"].get("annotations") or EMPTY
            owners = claim["metadata"].get("ownerReferences") or ()
            is_own = any(each["uid"] == group["metadata"]["uid"] for each in owners)
            if is_own and annotations.get(GROUP_CLAIM) == reference["name"]:
                return str(claim["metadata"]["name"])
        template = self._api.find(_TEMPLATES, namespace, reference["resourceClaimTemplateName"])
        if template is None:
            self._queue.add_after(("group", namespace, name), _RETRY_SECONDS)
            return ""
        wanted = template["spec"].get("metadata") or EMPTY
        annotations = {**(wanted.get("annotations") or EMPTY), GROUP_CLAIM: reference["name"]}
        metadata = {
            "generateName": f"{name}-{reference['name']}"[:_MAX_PREFIX_CHARACTERS] + "-",
            "namespace": namespace,
            "labels": dict(wanted.get("labels") or EMPTY),
            "annotations": annotations,
            "ownerReferences": [_owner(group)],
        }
        claim = {"metadata": metadata, "spec": template["spec"]["spec"]}
        return str(self._api.create(self._claims, namespace, claim).obj["metadata"]["name"])


def is_of_group(api: Api, pod: JsonObject, reference: JsonObject) -> bool:
    """Whether the pod's group has the same reference, name and source."""
    return _same(_group(api, pod), reference)


def _group(api: Api, pod: JsonObject) -> JsonObject:
    name = group_of(pod)
    found = api.find(POD_GROUPS, pod["metadata"]["namespace"], name) if name else None
    return found or {"spec": EMPTY}


def is_group(consumer: JsonObject) -> bool:
    """Whether what has a claim reserved is a group."""
    return (consumer.get("apiGroup"), consumer.get("resource")) == (_GROUP, "podgroups")


def _names_of(group: JsonObject) -> set[str]:
    statuses = (group.get("status") or EMPTY).get("resourceClaimStatuses") or ()
    named = (*statuses, *(group["spec"].get("resourceClaims") or ()))
    return {each["resourceClaimName"] for each in named if each.get("resourceClaimName")}


def _same(group: JsonObject, reference: JsonObject) -> bool:
    return any(
        _is_for(each, reference) and all(each.get(key) == reference.get(key) for key in _SOURCES)
        for each in group["spec"].get("resourceClaims") or ()
    )


def _is_for(named: JsonObject, reference: JsonObject) -> bool:
    return bool(named["name"] == reference["name"])


def _owner(group: JsonObject) -> JsonObject:
    return {
        "apiVersion": group["apiVersion"],
        "kind": group["kind"],
        "name": group["metadata"]["name"],
        "uid": group["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }
