"""A resource claim explained, and what claims have been given.

The operator's port serves it (`stellwerk explain resourceclaim/NAME`); `devices` asks which
devices claims hold. Invariant: it says what the API has shown.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from stellwerk.answers.devices import (
    ClaimExplanation,
    ClaimRequest,
)
from stellwerk.explain.lists.page import MAX_ENTRIES_PER_STEP
from stellwerk.explain.steps import Steps
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.plugins.shared.pod_resource_claims import claim_names
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import ALL, device_claim_of, is_allocated, key_of, reserved_for

_MAX_WAITING_PODS: Final = 100
"""Waiting pods that are named of those that use a claim."""
_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)


def explain_claim(world: World, namespace: str, name: str) -> Steps[ClaimExplanation] | None:
    """Explain a claim; None: there is none of that name."""
    claim = world.objects.get(RESOURCE_CLAIM, namespace, name)
    return None if claim is None else _explained_claim(world, namespace, claim)


def _explained_claim(world: World, namespace: str, claim: JsonObject) -> Steps[ClaimExplanation]:
    waiting, name = list[str](), claim["metadata"]["name"]
    for number, entry in enumerate(list(world.queue.entries.values())):
        if number % MAX_ENTRIES_PER_STEP == 0:
            yield
        pod = entry.newest
        uses = pod.namespace == namespace and pod.spec.resource_claims
        if uses and len(waiting) < _MAX_WAITING_PODS and name in set(claim_names(pod)):
            waiting.append(pod.key)
    requests, problem = [], None
    try:
        requests = [
            ClaimRequest(
                request=choice.full_name,
                device_class=choice.class_name,
                count=ALL if choice.everything else choice.count,
                selectors=list(choice.selectors),
            )
            for choice in device_claim_of(claim).choices
        ]
    except _MALFORMED as error:
        problem = f"{type(error).__name__}: {error}"
    return ClaimExplanation(
        claim=key_of(claim),
        state="allocated" if is_allocated(claim) else "needed",
        requests=requests,
        problem=problem,
        devices=list(devices_of(claim)),
        reserved_for=pods_of(claim),
        waiting=waiting,
    )


def devices_of(claim: JsonObject) -> Iterable[str]:
    """The devices that a claim has been given."""
    return [device_of(result) for result in allocation_results(claim)]


def allocation_results(claim: JsonObject) -> Sequence[JsonObject]:
    """The results of a claim's allocation, each of which names a device."""
    if not is_allocated(claim):
        return ()
    return (claim["status"]["allocation"].get("devices") or {}).get("results") or ()


def device_of(result: JsonObject) -> str:
    """DRIVER/POOL/DEVICE of a result."""
    return f"{result['driver']}/{result['pool']}/{result['device']}"


def pods_of(claim: JsonObject) -> list[str]:
    """NAMESPACE/NAME of the pods that a claim is reserved for."""
    pods = [each for each in reserved_for(claim) if each.get("resource", "pods") == "pods"]
    return [f"{claim['metadata']['namespace']}/{each.get('name')}" for each in pods]
