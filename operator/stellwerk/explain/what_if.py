"""Decisions on a fork with what is supposed: other nodes, another pod or profile, a drained node.

The operator's port and `stellwerk what-if` ask. Invariant: pods are decided one after the other as
the scheduler would, each placed on the fork before the next; nothing reaches the World itself.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random  # noqa: TID251 breaks ties of a fork, on which nothing hangs
from typing import TYPE_CHECKING, Final

from stellwerk.backend.queued_pod import IN_FLIGHT
from stellwerk.errors import ConfigurationError, ProfileError
from stellwerk.explain.report import explain_on
from stellwerk.explain.steps import OutOfTime, Steps
from stellwerk.framework.types import PluginFailure
from stellwerk.models.answers.what_if import (
    MOST_PODS,
    PlacedPod,
    Supposition,
    UnplacedPod,
    WhatIf,
    WouldPreempt,
)
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY, too_many_defaults
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import HOSTNAME_LABEL, NodeInfo, parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.profile import load_profile
from stellwerk.plugins.dynamic_resources.explain import given_back
from stellwerk.plugins.registry import known_plugins
from stellwerk.world.decide import decide
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World, offline_profile

if TYPE_CHECKING:
    from stellwerk.models.answers.pod import RecomputedExplanation

_NODES_OF_A_STEP: Final = 16
_SUPPOSED: Final = "(supposed)"
_STAYING: Final = frozenset({"DaemonSet", "Node"})
"""Owners of pods that a drain leaves: DaemonSets, and the kubelet of static pods."""


def what_if(
    live: World, supposed: Supposition, max_complexity: int = DEFAULT_MAX_POD_COMPLEXITY
) -> Steps[WhatIf]:
    """Decide on a fork of the World with what is supposed.

    A pod and a profile are held to the limits of those that come from the API: `max_complexity`.

    Raises:
        ConfigurationError: an object cannot be read, or a node is not there.
        OutOfTime: it was thrown in before anything was decided.
    """
    yield
    waiting = _waiting(live)
    world = live.fork(Random(0))
    yield
    yield from _add_nodes(world, supposed)
    drained = supposed.drained_nodes
    pods = _drain(world, drained)
    pods += [_pod(world, manifest, max_complexity) for manifest in supposed.pods]
    explained = None if supposed.pod is None else _pod(world, supposed.pod, max_complexity)
    if explained is not None:
        pods.append(explained)
    _check_names(pods)
    if explained is None and not (drained or supposed.pods):
        pods = waiting
    explanation: RecomputedExplanation | None = None
    placed: list[PlacedPod] = []
    unplaced: list[UnplacedPod] = []
    followed: set[str] = set()
    stopped: str | None = None
    for pod in pods[:MOST_PODS]:
        try:
            profile = _profile(world, supposed, pod, max_complexity)
            if profile is None:
                unplaced.append(UnplacedPod(pod=pod.key, message=world.profiles.why_none(pod)))
                continue
            followed.add(str(profile.compatibility.release))
            if pod.spec.too_complex:
                unplaced.append(UnplacedPod(pod=pod.key, message=pod.spec.too_complex))
                continue
            yield
            if pod is explained:
                found = yield from explain_on(world, pod, profile)
                explanation = _without_uncordoning(found, drained)
                yield
        except OutOfTime as reason:
            stopped = str(reason)
            break
        decided = _decide(world, pod, profile)
        if isinstance(decided, PlacedPod):
            placed.append(decided)
        else:
            unplaced.append(decided)
    left_out = len(pods) - len(placed) - len(unplaced)
    return WhatIf(
        drained=drained[0] if len(drained) == 1 else drained or None,
        compatibility=sorted(followed),
        left_out=left_out or None,
        stopped=stopped,
        explanation=explanation,
        placed=placed,
        unplaced=unplaced,
    )


def _decide(world: World, pod: PodInfo, profile: ServedProfile) -> PlacedPod | UnplacedPod:
    """Decide for one pod, and place it so that the next decision counts it."""
    world.cache.update_snapshot()
    try:
        decision = decide(world, pod, profile)
    except PluginFailure as failure:
        return UnplacedPod(pod=pod.key, message=str(failure))
    if decision.node_name:
        world.nominator.remove(pod.uid)
        # Devices and volumes that it takes are gone for the next one, too.
        state = decision.search.found.state
        profile.framework.binding.reserve(state, pod, decision.node_name)
        world.cache.assume_pod(pod.with_node(decision.node_name))
        return PlacedPod(pod=pod.key, node=decision.node_name)
    would_preempt = None
    if decision.candidate is not None:
        victims = [victim.key for victim in decision.candidate.victims]
        would_preempt = WouldPreempt(node=decision.candidate.node_name, victims=victims)
    message = decision.failure.message if decision.failure else ""
    return UnplacedPod(pod=pod.key, message=message, would_preempt=would_preempt)


def _waiting(live: World) -> list[PodInfo]:
    """The pods that wait, in the order of priority and time."""
    entries = [entry for entry in live.queue.entries.values() if entry.place not in IN_FLIGHT]
    entries.sort(key=lambda entry: (-entry.newest.priority, entry.queued_at))
    return [entry.newest for entry in entries]


def _add_nodes(world: World, supposed: Supposition) -> Iterator[None]:
    numbers = itertools.count(1)
    for index, manifest in enumerate(supposed.add_nodes):
        try:
            node = _parsed(manifest)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigurationError(f"addNodes[{index}] is no node: {error}") from error
        for number in range(supposed.count):
            name = node.name if supposed.count == 1 else f"{node.name}-{number + 1}"
            world.cache.set_node(_renamed(node, name, world))
            if next(numbers) % _NODES_OF_A_STEP == 0:
                world.cache.update_snapshot()
                yield


def _parsed(manifest: JsonObject) -> NodeInfo:
    """The node as it is made of a manifest, which may leave out the name and what is allocatable.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is malformed.
    """
    metadata, status = manifest.get("metadata") or {}, manifest.get("status") or {}
    name = str(metadata.get("name") or metadata.get("generateName") or "new")
    allocatable = status.get("allocatable") or status.get("capacity") or {}
    return parse_node(
        {
            **manifest,
            "metadata": {**metadata, "name": name, "uid": ""},
            "status": {**status, "allocatable": allocatable},
        }
    )


def _renamed(node: NodeInfo, name: str, world: World) -> NodeInfo:
    """The node under this name, or one that is free."""
    number = 0
    free = name
    while world.cache.node(free) is not None:
        number += 1
        free = f"{name}-new" if number == 1 else f"{name}-new-{number}"
    labels = node.labels
    if HOSTNAME_LABEL in labels:
        labels = {**labels, HOSTNAME_LABEL: free}
    return replace(node, name=free, uid=free, labels=labels)


def _drain(world: World, names: Sequence[str]) -> list[PodInfo]:
    """Cordon nodes and take their pods off them, as `kubectl drain --ignore-daemonsets` does."""
    leaving: list[PodInfo] = []
    for name in names:
        node = world.cache.node(name)
        if node is None:
            raise ConfigurationError(f'there is no node "{name}"')
        leaving += (
            pod
            for pod in world.cache.pods_on(name).values()
            if pod.owner is None or pod.owner[0].rpartition(" ")[2] not in _STAYING
        )
        world.cache.set_node(replace(node, unschedulable=True))
    for pod in leaving:
        world.cache.remove_pod(pod.uid)
    for claim in given_back(world.objects, leaving):
        world.objects.set("ResourceClaim", claim)
    ordered = sorted(leaving, key=lambda pod: (-pod.priority, pod.key))
    return [pod.with_node("") for pod in ordered]


def _check_names(pods: Sequence[PodInfo]) -> None:
    """Refuse two pods of one name, of which the second would replace the first."""
    names = Counter(pod.key for pod in pods)
    twice = next((name for name, number in names.items() if number > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two of the pods are {twice}")


def _without_uncordoning(
    found: "RecomputedExplanation", drained: Sequence[str]
) -> "RecomputedExplanation":
    """The explanation without suggestions that undo the drains which are supposed."""
    kept = [
        suggestion
        for suggestion in found.would_fit or ()
        if not any(
            change.kind == "uncordon" and change.node in drained for change in suggestion.changes
        )
    ]
    return found if found.would_fit is None else replace(found, would_fit=kept)


def _pod(world: World, manifest: JsonObject, max_complexity: int) -> PodInfo:
    try:
        spec = {key: value for key, value in manifest["spec"].items() if key != "nodeName"}
        unbound = {**manifest, "spec": spec}
        resolve, compatibility = world.priority_classes.resolve, world.profiles.compatibility
        pod = parse_pod(unbound, resolve, max_complexity, compatibility)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"this is no pod: {error!r}") from error
    world.nominator.remove(pod.uid)
    world.cache.remove_pod(pod.uid)
    return pod


def _profile(
    world: World, supposed: Supposition, pod: PodInfo, max_complexity: int
) -> ServedProfile | None:
    if supposed.profile is None:
        return world.profiles.of(pod)
    # Made once: plugins keep columns between decisions.
    served = world.profiles.served.get(_SUPPOSED)
    if served is None:
        served = _supposed_profile(world, supposed.profile, max_complexity)
        everything = {**world.profiles.served, _SUPPOSED: served}
        world.profiles.served = everything
    return served


def _supposed_profile(world: World, manifest: JsonObject, max_complexity: int) -> ServedProfile:
    too_many = too_many_defaults(manifest.get("spec"), max_complexity)
    if too_many:
        raise ConfigurationError(f"this profile cannot be used: spec.pluginConfig: {too_many}")
    try:
        auto = world.profiles.compatibility
        loaded = load_profile(manifest, known_plugins(), auto)
        return offline_profile(
            loaded,
            world.cache,
            world.objects,
            world.nominator,
            world.random,
            world.clock,
            compatibility=auto,
        )
    except ProfileError as error:
        raise ConfigurationError(f"this profile cannot be used: {error}") from error
