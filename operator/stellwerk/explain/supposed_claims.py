"""What becomes of resource claims where pods are supposed to leave.

`what_if` asks, on a fork. Invariant: a claim that another pod uses stays as it is.
"""

from collections.abc import Iterable

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.dynamic_resources.claims import RESOURCE_CLAIM, claim_names, reserved_for
from stellwerk.world.world import World


def give_back(world: World, leaving: Iterable[PodInfo]) -> None:
    """Take the devices of pods back that leave, as the controller does once they are gone."""
    for pod in leaving:
        for name in claim_names(pod):
            claim = world.objects.get(RESOURCE_CLAIM, pod.namespace, name)
            if claim is None:
                continue
            left = [each for each in reserved_for(claim) if each.get("uid") != pod.uid]
            status = {**(claim.get("status") or {}), "reservedFor": left}
            world.objects.set(RESOURCE_CLAIM, {**claim, "status": status if left else {}})
