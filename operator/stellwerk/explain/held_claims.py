"""The resource claims that go, or are given free, with the pod that alone holds them.

The search for what would help asks it where it lets pods go. Invariant: what is given free is held
again when the block that it was done in ends.
"""

from contextlib import ExitStack

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.claims import (
    consumer_of,
    is_allocated,
    is_reserved_for,
    reserved_for,
)

_CLAIM = "ResourceClaim"


def held_claims(objects: IndexedObjectStore, pod: PodInfo) -> tuple[JsonObject, ...]:
    """The allocated claims that are reserved for this pod and no other."""
    if not pod.spec.resource_claims and pod.generated_claims is None:
        return ()
    own = consumer_of(pod)
    return tuple(
        claim
        for claim in objects.list(_CLAIM, pod.namespace)
        if is_allocated(claim) and is_reserved_for(claim, own) and len(reserved_for(claim)) == 1
    )


def release(objects: IndexedObjectStore, pod: PodInfo, undo: ExitStack) -> None:
    """Show the pod's claims as they are without it, until `undo` is closed."""
    for claim in held_claims(objects, pod):
        left = {
            key: value
            for key, value in claim["status"].items()
            if key not in {"allocation", "reservedFor", "devices"}
        }
        without = {**claim, "status": left}
        objects.assume(_CLAIM, without)
        undo.callback(objects.restore, _CLAIM, without)
