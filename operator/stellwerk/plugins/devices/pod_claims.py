"""The claims of a pod, as kube-scheduler walks over them.

PreEnqueue, PreFilter and the hint functions ask. Invariant: the first reference that is not there
as it should be decides, in the order of spec.resourceClaims.
"""

from collections.abc import Iterable, Iterator, Mapping

from stellwerk.framework.services import GroupClaims, ObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import ClaimReference
from stellwerk.models.pod_group_key import WORKLOAD_API

KIND = "ResourceClaim"


class ClaimMissingError(Exception):
    """A claim of the pod is not there, or not usable; the text is for users."""


def claims_of(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> list[JsonObject]:
    """The pod's claims in order; `group`: those of its group.

    Raises:
        ClaimMissingError: one of them is not there.
    """
    return list(_claims(objects, pod, group))


def why_not_ready(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> str:
    """Why the pod has to wait for its claims; empty: they are there."""
    try:
        claims_of(objects, pod, group)
    except ClaimMissingError as missing:
        return str(missing)
    return ""


def claim_names(pod: PodInfo) -> list[str]:
    """The names of the pod's claims, as far as they are known."""
    names = (claim_name(pod, reference) for reference in pod.spec.resource_claims)
    return [name for name in names if name]


def claim_name(pod: PodInfo, reference: ClaimReference) -> str | None:
    """The claim of a reference; None: it is not known yet; empty: none is needed."""
    if reference.claim_name:
        return reference.claim_name
    generated = pod.generated_claims
    return generated.by_reference.get(reference.name) if generated is not None else None


def is_allocated(claim: JsonObject) -> bool:
    """Whether the API shows an allocation."""
    return bool((claim.get("status") or {}).get("allocation"))


def uid_of(claim: JsonObject) -> str:
    """The claim's uid; one without, as in recorded cases, is known by its name."""
    metadata = claim["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace') or ''}/{metadata['name']}")


def key_of(claim: JsonObject) -> str:
    """namespace/name."""
    return f"{claim['metadata'].get('namespace') or ''}/{claim['metadata']['name']}"


def reserved_for(claim: JsonObject) -> list[JsonObject]:
    """status.reservedFor."""
    return list((claim.get("status") or {}).get("reservedFor") or ())


def is_reserved_for(claim: JsonObject, consumer: JsonObject) -> bool:
    """Whether the consumer, by its uid, is among those that the claim is reserved for."""
    return any(each.get("uid") == consumer["uid"] for each in reserved_for(claim))


def consumer_of(pod: PodInfo) -> JsonObject:
    """The entry of a pod in reservedFor."""
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def shared_consumers(
    pod: PodInfo, claims: Iterable[JsonObject], group: GroupClaims | None
) -> dict[str, JsonObject]:
    """The entry of the group in reservedFor, by the name of each of the claims that it shares."""
    if group is None:
        return {}
    entry = {
        "apiGroup": WORKLOAD_API,
        "resource": "podgroups",
        "name": group.group_name,
        "uid": group.group_uid,
    }
    shared = {
        claim_name(pod, each) for each in pod.spec.resource_claims if each in group.references
    }
    names = [claim["metadata"]["name"] for claim in claims if not _is_owner(pod.uid, claim)]
    return {name: entry for name in names if name in shared}


def _claims(objects: ObjectStore, pod: PodInfo, group: GroupClaims | None) -> Iterator[JsonObject]:
    for reference in pod.spec.resource_claims:
        name = claim_name(pod, reference)
        if name is None:
            raise ClaimMissingError(f'pod "{pod.key}": ResourceClaim not created yet')
        if not name:
            continue
        claim = objects.get(KIND, pod.namespace, name)
        if claim is None:
            raise ClaimMissingError(f'could not find ResourceClaim "{pod.namespace}/{name}"')
        metadata: Mapping[str, JsonObject] = claim["metadata"]
        if metadata.get("deletionTimestamp"):
            raise ClaimMissingError(f'resourceclaim "{name}" is being deleted')
        if not (reference.claim_name or _is_owner(pod.uid, claim) or _is_group_s(group, claim)):
            raise ClaimMissingError(
                f"ResourceClaim {pod.namespace}/{name} was not created for Pod {pod.key} "
                "(Pod is not owner)"
            )
        yield claim


def _is_group_s(group: GroupClaims | None, claim: JsonObject) -> bool:
    return group is not None and _is_owner(group.group_uid, claim)


def _is_owner(uid: str, claim: JsonObject) -> bool:
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)
