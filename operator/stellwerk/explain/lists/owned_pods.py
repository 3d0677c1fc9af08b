"""The pods that one controller made, as a list.

The operator's port serves it to the page. Invariant: the list is made in steps.
"""

from typing import Final

from stellwerk.answers.workload import OwnedPod, OwnedPods
from stellwerk.explain.lists.page import (
    MAX_MATCHES_PER_STEP,
    controller_of,
    natural_order,
    owner_of,
)
from stellwerk.explain.queue_facts import queue_name
from stellwerk.explain.steps import Steps
from stellwerk.models.pod import PodInfo
from stellwerk.world.world import World

_MAX_LISTED_PODS: Final = 500
"""Pods that are listed. The answer counts all of them."""


def owned_pods(world: World, namespace: str, owner: str) -> Steps[OwnedPods]:
    """The pods that a controller, KIND/NAME, made in a namespace, those that wait first.

    Those of a Deployment are the pods of its ReplicaSets.
    """
    waiting, placed = list[OwnedPod](), list[OwnedPod]()
    entries = list(world.queue.entries.items())
    yield
    for number, (uid, entry) in enumerate(entries):
        if number % MAX_MATCHES_PER_STEP == 0:
            yield
        pod = entry.newest
        # A pod that is being bound is on its node already.
        if _is_of(pod, namespace, owner) and world.cache.pod(uid) is None:
            waiting.append(OwnedPod(pod=pod.key, queue=queue_name(entry)))
    for number, pod in enumerate(list(world.cache.pods())):
        if number % MAX_MATCHES_PER_STEP == 0:
            yield
        if _is_of(pod, namespace, owner):
            placed.append(OwnedPod(pod=pod.key, node=pod.node_name))
    shown = waiting[:_MAX_LISTED_PODS]
    shown += sorted(placed, key=lambda each: natural_order(each.pod))[
        : _MAX_LISTED_PODS - len(shown)
    ]
    return OwnedPods(
        owner=owner,
        namespace=namespace,
        total=len(waiting) + len(placed),
        waiting=len(waiting),
        items=shown,
    )


def _is_of(pod: PodInfo, namespace: str, owner: str) -> bool:
    if pod.namespace != namespace or pod.owner is None:
        return False
    return owner in {owner_of(pod), controller_of(pod)}
