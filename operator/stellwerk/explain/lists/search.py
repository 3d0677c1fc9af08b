"""Objects by a part of their name: pods, nodes, groups, claims, profiles and controllers.

The operator's port serves it to the page. Invariant: the search goes on in steps, and keeps no more
objects than the answer has.
"""

from collections.abc import Callable, Iterable, Iterator
from heapq import nsmallest
from itertools import chain
from typing import Final, TypeAlias

from stellwerk.answers.search import FoundObject, SearchPage
from stellwerk.explain.lists.page import controller_of, natural_order
from stellwerk.explain.queue_facts import queue_name
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
_MAX_NAMES_PER_STEP: Final = 1000
"""Names that are compared before yielding: a few milliseconds, for a pod names its controller."""
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
    without_profile, profiles = list(without_profile), list(profiles)

    def named() -> Iterator[_Named]:
        # Made anew for each pass: to keep the names of 100,000 pods would set the collector off.
        return _named(world, without_profile, profiles)

    for number, each in enumerate(named()):
        if number % _MAX_NAMES_PER_STEP == _MAX_NAMES_PER_STEP - 1:
            best = nsmallest(limit, best)
            yield
        lowered = each[1].casefold()
        if all(word in lowered for word in words):
            total += 1
            best.append((_rank(words, lowered, each), each))
    items = [_found(each) for _, each in nsmallest(limit, best)]
    if total:
        return SearchPage(total=total, items=items)
    near = yield from _near(words[-1], named, limit)
    return SearchPage(total=0, items=[], near=near or None)


def _near(word: str, named: Callable[[], Iterator[_Named]], limit: int) -> Steps[list[FoundObject]]:
    """The objects whose name a misspelt one nearly is."""
    name = word.rpartition("/")[2]
    nearest = yield from nearest_name(name, (each[1].rpartition("/")[2] for each in named()))
    near = list[FoundObject]()
    for number, each in enumerate(named() if nearest is not None else ()):
        if number % _MAX_NAMES_PER_STEP == 0:
            yield
        if len(near) < limit and each[1].rpartition("/")[2] == nearest:
            near.append(_found(each))
    return near


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
    waiting = ((it.newest, queue_name(it)) for uid, it in queued if world.cache.pod(uid) is None)
    for pod, where in chain(
        ((pod, pod.node_name) for pod in placed),
        waiting,
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
