"""Objects by a part of their name: pods, nodes, groups, claims, profiles and controllers.

The operator's port serves it to the page. Invariant: the search goes on in steps, and keeps no more
objects than the answer has.
"""

from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Final, TypeAlias

from stellwerk.answers.search import FoundObject, SearchPage
from stellwerk.explain.lists.page import MAX_MATCHES_PER_STEP, controller_of, natural_order
from stellwerk.explain.queue_facts import QUEUES
from stellwerk.explain.steps import Steps, nearest_name
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.world.world import World
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.resource_claim import key_of

MAX_FOUND: Final = 200
"""Objects that one answer shows. It counts all of them."""
_MAX_CHARACTERS: Final = 320
"""Characters of a text to search for: a namespace and a name have 317."""
_Named: TypeAlias = tuple[str, str, str | None]
"""(kind, NAMESPACE/NAME, node or queue)."""
_KINDS: Final = ("SchedulerProfile", "Node", "PodGroup", "ResourceClaim")
"""Kinds of which a cluster has few objects stand before controllers, and pods behind them."""


def search_page(
    world: World, without_profile: Iterable[PodInfo], profiles: Iterable[str], text: str, limit: int
) -> Steps[SearchPage]:
    """Objects whose name has every word of the text, whatever the case of its letters.

    Args:
        world: has the objects.
        without_profile: waiting pods that no profile serves.
        profiles: the names of the profiles.
        text: one word or several; none: nothing is found.
        limit: the number of objects that are shown.

    Raises:
        ConfigurationError: the text is longer than any name.
    """
    if len(text) > _MAX_CHARACTERS:
        raise ConfigurationError(f"a text to search for has at most {_MAX_CHARACTERS} characters")
    words = text.casefold().split()
    if not words:
        return SearchPage(total=0, items=[])
    limit, total = min(limit, MAX_FOUND), 0
    best: list[tuple[tuple[int, int, str], _Named]] = []
    named = list[_Named]()
    for number, each in enumerate(_named(world, without_profile, profiles)):
        if number % MAX_MATCHES_PER_STEP == MAX_MATCHES_PER_STEP - 1:
            best = nsmallest(limit, best)
            yield
        lowered = each[1].casefold()
        if all(word in lowered for word in words):
            total += 1
            best.append((_rank(words, lowered, each), each))
        elif not total:
            named.append(each)
    items = [_found(each) for _, each in nsmallest(limit, best)]
    if total:
        return SearchPage(total=total, items=items)
    nearest = yield from nearest_name(
        words[-1].rpartition("/")[2], (each[1].rpartition("/")[2] for each in named)
    )
    near = [each for each in named if each[1].rpartition("/")[2] == nearest]
    return SearchPage(total=0, items=[], near=[_found(each) for each in near[:limit]] or None)


def _named(
    world: World, without_profile: Iterable[PodInfo], profiles: Iterable[str]
) -> Iterator[_Named]:
    """Every object that has a page of its own; lists are copied, for they change between steps."""
    queued = list(world.queue.entries.items())
    placed, unserved = list(world.cache.pods()), list(without_profile)
    for name in list(profiles):
        yield "SchedulerProfile", name, None
    for node in list(world.cache.nodes()):
        yield "Node", node.name, None
    for key in list(world.pod_groups.groups):
        yield "PodGroup", f"{key.namespace}/{key.name}", None
    for claim in list(world.objects.list(RESOURCE_CLAIM)):
        yield RESOURCE_CLAIM, key_of(claim), None
    controllers = set[tuple[str, str]]()
    # A pod that is being bound is on its node already.
    waiting = ((it.newest, it.place) for uid, it in queued if world.cache.pod(uid) is None)
    for pod, where in chain(
        ((pod, pod.node_name) for pod in placed),
        ((pod, QUEUES.get(place, "")) for pod, place in waiting),
        ((pod, "unserved") for pod in unserved),
    ):
        yield "Pod", pod.key, where
        if pod.owner is not None:
            controller = (pod.namespace, controller_of(pod))
            if controller not in controllers:
                controllers.add(controller)
                kind, _, name = controller[1].partition("/")
                yield kind, f"{pod.namespace}/{name}", None


def _rank(words: list[str], lowered: str, each: _Named) -> tuple[int, int, str]:
    """The place of an object: by how much of its name the text is, by kind, by name."""
    text, name = " ".join(words), lowered.rpartition("/")[2]
    likeness = 0 if text in {name, lowered} else 1 if name.startswith(text) else 2
    kind = each[0]
    order = _KINDS.index(kind) if kind in _KINDS else len(_KINDS) + (kind == "Pod")
    return likeness, order, natural_order(each[1])


def _found(named: _Named) -> FoundObject:
    kind, name, where = named
    return FoundObject(kind=kind, name=name, where=where or None)
