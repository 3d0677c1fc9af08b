"""Queueing hints of DynamicResources: what may end its rejection of a pod.

Invariant: a pod whose claims are not all there is left alone; what may have freed a device wakes
every pod that was rejected.
"""

from collections.abc import Sequence
from functools import partial

from stellwerk.framework.events import (
    QUEUE,
    QUEUE_SKIP,
    Action,
    ClusterChange,
    ClusterEventWithHint,
    HintScope,
    QueueingHint,
    Resource,
    queue_if,
)
from stellwerk.framework.services import ObjectStore, PodGroups
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.claims import claim_names, is_allocated, why_not_ready


def device_events(objects: ObjectStore, groups: PodGroups) -> Sequence[ClusterEventWithHint]:
    """The events that DynamicResources registers for."""
    changed = Action.ADD | Action.UPDATE_OTHER
    return (
        ClusterEventWithHint(
            Resource.NODE,
            Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE,
        ),
        ClusterEventWithHint(
            Resource.POD,
            Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
            partial(_own_claims_known, objects, groups),
            HintScope.POD,
        ),
        ClusterEventWithHint(
            Resource.RESOURCE_CLAIM,
            changed,
            partial(_claim_changed, objects, groups),
            HintScope.POD,
        ),
        ClusterEventWithHint(Resource.RESOURCE_CLAIM, Action.DELETE, _claim_deleted, HintScope.POD),
        ClusterEventWithHint(Resource.ASSIGNED_POD, Action.DELETE, _may_have_given_back),
        ClusterEventWithHint(Resource.DEVICE_CLASS, changed),
        ClusterEventWithHint(Resource.RESOURCE_SLICE, changed),
    )


def _own_claims_known(
    objects: ObjectStore, groups: PodGroups, pod: PodInfo, change: ClusterChange
) -> QueueingHint:
    """Whether the pod's own status has come to name its claims, and all are there."""
    new = change.new
    if not isinstance(new, PodInfo):
        return QUEUE
    return queue_if(new.uid == pod.uid and not why_not_ready(objects, new, groups.claims_with(new)))


def _may_have_given_back(_: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether the pod that goes had devices: those of a binding that failed were never in the API.

    kube-scheduler lets nothing wake here, and pods wait for devices that are free.
    """
    gone = change.old
    if not isinstance(gone, PodInfo):
        return QUEUE
    return queue_if(bool(gone.spec.resource_claims or gone.extended_requests))


def _claim_deleted(pod: PodInfo, change: ClusterChange) -> QueueingHint:
    """Whether devices went free with the claim, or it stood in the way of another for the pod.

    kube-scheduler lets nothing wake here, and a pod whose stale claim it has deleted waits.
    """
    if not isinstance(change.old, dict):
        return QUEUE
    owners = change.old["metadata"].get("ownerReferences") or ()
    return queue_if(
        is_allocated(change.old) or any(owner.get("uid") == pod.uid for owner in owners)
    )


def _claim_changed(
    objects: ObjectStore, groups: PodGroups, pod: PodInfo, change: ClusterChange
) -> QueueingHint:
    """Whether a claim gave devices back, or one of the pod's own was made or has a new status."""
    if not isinstance(change.new, dict):
        return QUEUE
    if why_not_ready(objects, pod, groups.claims_with(pod)):
        return QUEUE_SKIP
    old = change.old if isinstance(change.old, dict) else None
    if old is not None and is_allocated(old) and not is_allocated(change.new):
        return QUEUE
    metadata = change.new["metadata"]
    if metadata.get("namespace") != pod.namespace or metadata["name"] not in claim_names(pod):
        return QUEUE_SKIP
    return queue_if(old is None or old.get("status") != change.new.get("status"))
