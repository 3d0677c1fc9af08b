"""The resource claims of a pod: names, states, those that it alone holds, and what it gives back.

Explanations, listings, suppositions and DynamicResources ask. Everything follows from the pod and
the objects of the store, whatever plugins a profile has. Invariant: nothing is written but by
`suppose_released`, which takes it back.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack

from stellwerk.answers.pod import ClaimState
from stellwerk.framework.services import ObjectStore
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM, ClaimReference
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import is_allocated, is_reserved_for, key_of, reserved_for


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


def consumer_of(pod: PodInfo) -> JsonObject:
    """The entry of a pod in reservedFor."""
    return {"resource": "pods", "name": pod.name, "uid": pod.uid}


def claim_states(objects: ObjectStore, pod: PodInfo) -> list[ClaimState]:
    """The pod's claims, and the devices that they have been given."""
    found: list[ClaimState] = []
    for reference in pod.spec.resource_claims:
        name = claim_name(pod, reference)
        if name == "":
            continue
        claim = objects.get(RESOURCE_CLAIM, pod.namespace, name) if name else None
        if claim is None:
            shown = f"{pod.namespace}/{name}" if name else f"for {reference.name}"
            found.append(ClaimState(claim=shown, state="missing"))
        elif is_allocated(claim):
            results = (claim["status"]["allocation"].get("devices") or {}).get("results") or ()
            users = [str(each.get("name")) for each in reserved_for(claim)]
            devices = [f"{each['driver']}/{each['pool']}/{each['device']}" for each in results]
            allocated = ClaimState(
                claim=key_of(claim), state="allocated", devices=devices, reserved_for=users
            )
            found.append(allocated)
        else:
            found.append(ClaimState(claim=key_of(claim), state="needed"))
    return found


def held_claims(objects: ObjectStore, pod: PodInfo) -> tuple[JsonObject, ...]:
    """The allocated claims that are reserved for this pod and no other."""
    if not pod.spec.resource_claims and pod.generated_claims is None:
        return ()
    own = consumer_of(pod)
    return tuple(
        claim
        for claim in objects.list(RESOURCE_CLAIM, pod.namespace)
        if is_allocated(claim) and is_reserved_for(claim, own) and len(reserved_for(claim)) == 1
    )


def suppose_released(objects: ObjectStore, pod: PodInfo, undo: ExitStack) -> None:
    """Show the pod's claims as they are without it, until `undo` is closed."""
    for claim in held_claims(objects, pod):
        left = {
            key: value
            for key, value in claim["status"].items()
            if key not in {"allocation", "reservedFor", "devices"}
        }
        without = {**claim, "status": left}
        objects.assume(RESOURCE_CLAIM, without)
        undo.callback(objects.restore, RESOURCE_CLAIM, without)


def given_back(objects: ObjectStore, leaving: Iterable[PodInfo]) -> Iterator[JsonObject]:
    """The claims of pods that leave, as the controller writes them once the pods are gone.

    Each is to be stored before the next is asked for; one that another pod uses stays as it is.
    """
    for pod in leaving:
        for name in claim_names(pod):
            claim = objects.get(RESOURCE_CLAIM, pod.namespace, name)
            if claim is None:
                continue
            left = [each for each in reserved_for(claim) if each.get("uid") != pod.uid]
            status = {**(claim.get("status") or {}), "reservedFor": left}
            yield {**claim, "status": status if left else {}}
