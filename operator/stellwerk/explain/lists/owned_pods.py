"""The pods that one controller made, as a list.

The operator's port serves it to the page. Invariant: the list is made in steps.
"""

from typing import Final

from stellwerk.answers.workload import OwnedPod, OwnedPods
from stellwerk.explain.lists.page import MAX_MATCHES_PER_STEP, natural_order
from stellwerk.explain.queue_facts import QUEUES
from stellwerk.explain.steps import Steps
from stellwerk.models.pod import PodInfo
from stellwerk.world.world import World

_MAX_PODS: Final = 500
"""Pods that are listed. The answer counts all of them."""
_TEMPLATE_HASH: Final = "pod-template-hash"


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
            waiting.append(OwnedPod(pod=pod.key, queue=QUEUES.get(entry.place, "none")))
    for number, pod in enumerate(list(world.cache.pods())):
        if number % MAX_MATCHES_PER_STEP == 0:
            yield
        if _is_of(pod, namespace, owner):
            placed.append(OwnedPod(pod=pod.key, node=pod.node_name))
    shown = waiting[:_MAX_PODS]
    shown += sorted(placed, key=lambda each: natural_order(each.pod))[: _MAX_PODS - len(shown)]
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


def owner_of(pod: PodInfo) -> str:
    """KIND/NAME of the controller that made a pod; empty: none did."""
    if pod.owner is None:
        return ""
    kind, name, _ = pod.owner
    return f"{kind.rpartition(' ')[2]}/{name}"


def controller_of(pod: PodInfo) -> str:
    """KIND/NAME of the controller that a user made: a Deployment, not its ReplicaSet.

    Empty: no controller made the pod. A Deployment names its ReplicaSets after itself and the hash
    of the template, which it also gives the pods as a label.
    """
    owner, template = owner_of(pod), pod.labels.get(_TEMPLATE_HASH)
    if template and owner.startswith("ReplicaSet/") and owner.endswith(f"-{template}"):
        return f"Deployment/{owner.removeprefix('ReplicaSet/').removesuffix(f'-{template}')}"
    return owner
