"""An explanation of one group as JSON: its members, what it waits for, what would make it fit.

The operator's port asks for it. What would happen now, and with more nodes, is computed on a fork
by the same code that decides groups. Invariant: the live World is only read.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from random import Random  # noqa: TID251 breaks ties of a fork, on which nothing hangs
from typing import Final

from stellwerk.backend.pod_groups import GroupMembers
from stellwerk.explain.steps import Steps
from stellwerk.framework.plugin_failure import PluginFailure
from stellwerk.models.json_values import JsonObject
from stellwerk.models.name_syntax import suggestion
from stellwerk.models.node import NodeInfo
from stellwerk.models.pod import PodInfo
from stellwerk.world.gangs.group_attempt import GroupContext, answered, undo_attempt
from stellwerk.world.gangs.group_decision import GroupDecision, decide_group
from stellwerk.world.gangs.group_request import GroupRequest, request_for, scheduled_members
from stellwerk.world.gangs.queue_order import gang_args, is_first, why_inadmissible
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World

_SHAPES: Final = 3
"""So many kinds of nodes are tried as additions, the largest first."""
_MOST_NODES: Final = 1024
_OF_CONDITIONS: Final = "node.kubernetes.io/"
"""Taints of nodes that are not as new ones would be."""


def explain_group(world: World, namespace: str, name: str) -> Steps | None:
    """Explain a group; None: neither it nor a member of it is known."""
    for key, members in world.pod_groups.groups.items():
        if key.namespace == namespace and key.name == name:
            return _explained(world, members)
    return None


def _explained(world: World, members: GroupMembers) -> Steps:
    yield
    closed = world.pod_groups.why_closed(members)
    result = _facts(world, members, closed)
    pending = [pod for pod in members.pods.values() if _is_pending(world, pod)]
    group = members.group
    profile = world.profiles.of(pending[0]) if pending else None
    if closed or group is None or profile is None or not profile.places_groups:
        return result
    fork = world.fork(Random(0))
    yield
    served = fork.profiles.served[profile.scheduler_name]
    request = request_for(world, profile, members, sorted(pending, key=_order))
    try:
        decision = yield from answered(decide_group(fork, served, request))
        result["wouldHappen"] = _outcome(decision)
        if decision.placed:
            undo_attempt(GroupContext(fork, served), decision.attempt)
        else:
            result["wouldFit"] = yield from _with_more_nodes(fork, served, request)
    except PluginFailure as failure:
        result["error"] = str(failure)
    return result


def _facts(world: World, members: GroupMembers, closed: str) -> JsonObject:
    group, book = members.group, world.pod_groups
    placed = len(scheduled_members(world, members))
    needed = group.min_count if group is not None else 0
    is_placed = placed + members.succeeded >= max(1, needed)
    held = "" if closed or is_placed else why_inadmissible(world, members)
    state = "placed" if is_placed else "waiting for its turn" if held else "waiting for room"
    if closed:
        state = "waiting for pods"
    result: JsonObject = {
        "podGroup": members.key.shown,
        "api": members.key.api,
        "state": state,
        "minCount": needed,
        "exist": book.existing(members),
        "placed": placed,
        "running": sum(pod.phase == "Running" for pod in members.pods.values()),
        "succeeded": members.succeeded,
        "members": [_member(world, pod) for pod in members.pods.values()],
    }
    if closed or held:
        result["waitsFor"] = closed or held
    remarks = sorted(_remarks(world, members))
    if remarks:
        result["remarks"] = remarks
    if group is not None:
        result |= _limits(world, members)
        if group.queue:
            result["queue"] = group.queue
        result["topology"] = list(group.topology)
        result["problems"] = list(group.problems)
        result["conditions"] = [
            {name: each.get(name) for name in ("type", "status", "reason", "message")}
            for each in group.conditions
        ]
    return result


def _remarks(world: World, members: GroupMembers) -> Iterator[str]:
    """What may be a mistake."""
    for name in {pod.spec.scheduler_name for pod in members.pods.values()}:
        profile = world.profiles.served.get(name)
        if profile is not None and not profile.places_groups:
            yield f'profile "{name}" places pods one by one: gangScheduling is off'
    group, key = members.group, members.key
    if group is None:
        names = [
            each.key.name
            for each in world.pod_groups.groups.values()
            if each.group is not None and each.key.namespace == key.namespace
        ]
        yield f'there is no pod group "{key.name}"{suggestion(key.name, names)}'
        return
    known = {label for node in world.cache.nodes() for label in node.labels}
    for label in dict.fromkeys((*group.topology, *group.preferred_topology)):
        if label not in known:
            yield f'no node has the label "{label}"{suggestion(label, known)}'


def _limits(world: World, members: GroupMembers) -> JsonObject:
    """How long room is kept for the group, and when what it has is given back."""
    found: JsonObject = {}
    group, since = members.group, members.reserved_since
    profile = next(filter(None, map(world.profiles.of, members.pods.values())), None)
    if group is not None and profile is not None and since is not None:
        limit = group.schedule_timeout_seconds or gang_args(profile).reservation_seconds
        left = max(0.0, since + limit - world.clock.monotonic())
        found["roomIsKeptSeconds"] = None if is_first(world, members) else round(left)
    if group is not None and group.give_back_seconds is not None:
        found["givenBackAfterSeconds"] = group.give_back_seconds
    return found


def _member(world: World, pod: PodInfo) -> JsonObject:
    place = world.queue.place(pod.uid)
    placed = world.cache.pod(pod.uid)
    result: JsonObject = {"pod": pod.key, "node": placed.node_name if placed else pod.node_name}
    if place is not None and not result["node"]:
        result["queue"] = place.name.lower()
    for condition in pod.conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            result["message"] = str(condition.get("message") or "")
    return result


def _is_pending(world: World, pod: PodInfo) -> bool:
    in_cache = world.cache.pod(pod.uid) is not None
    return not (in_cache or pod.terminating or pod.spec.scheduling_gates)


def _order(pod: PodInfo) -> tuple[int, str]:
    return (-pod.priority, pod.name)


def _outcome(decision: GroupDecision) -> JsonObject:
    attempt = decision.attempt
    result: JsonObject = {
        "placed": decision.placed,
        "placements": decision.placements,
        "attempts": decision.attempts,
        "placement": attempt.placement.shown,
        "nodes": {
            each.pod.key: each.assumed.node_name
            for each in attempt.results
            if each.assumed is not None
        },
    }
    if not decision.placed:
        result["message"] = decision.message
        result["reasons"] = {
            each.pod.key: each.failure.message
            for each in attempt.results
            if each.failure is not None
        }
    if decision.preemption is not None:
        result["victims"] = [pod.key for pod in decision.preemption.victims]
        result["roomIsKeptOn"] = sorted(set(decision.preemption.nodes.values()))
    return result


# --- what would make it fit ---------------------------------------------------------------------


def _with_more_nodes(
    world: World, profile: ServedProfile, request: GroupRequest
) -> Generator[None, None, list[JsonObject]]:
    """The smallest number of further nodes of each shape that would do."""
    found: list[JsonObject] = []
    for shape in _shapes(world.cache.nodes(), request.members):
        number = yield from _fewest(world, profile, request, shape)
        if number:
            found.append({"nodes": number, "like": shape.name, "allocatable": _amounts(shape)})
    return found


def _shapes(nodes: Iterable[NodeInfo], members: Sequence[PodInfo]) -> Sequence[NodeInfo]:
    """One node of each of the largest kinds that members could be placed on if they were empty."""
    wanted = {id(pod.amounts): pod.amounts.requests for pod in members}.values()
    kinds: dict[object, NodeInfo] = {}
    for node in nodes:
        in_trouble = any(taint.key.startswith(_OF_CONDITIONS) for taint in node.taints)
        if node.unschedulable or in_trouble:
            continue
        if any(_holds(node, requests) for requests in wanted):
            kinds.setdefault((tuple(sorted(node.allocatable.items())), node.taints), node)
    asked = {resource for requests in wanted for resource in requests}

    def rank(node: NodeInfo) -> tuple[int, int]:
        return len(asked - node.allocatable.keys()), -node.allocatable.get("cpu", 0)

    return sorted(kinds.values(), key=rank)[:_SHAPES]


def _holds(node: NodeInfo, requests: Mapping[str, int]) -> bool:
    """Whether a pod fits on the empty node; what it does not offer may come from devices."""
    offered = node.allocatable
    return all(offered.get(each, amount) >= amount for each, amount in requests.items())


def _amounts(node: NodeInfo) -> JsonObject:
    return {name: amount for name, amount in node.allocatable.items() if amount}


def _fewest(
    world: World, profile: ServedProfile, request: GroupRequest, shape: NodeInfo
) -> Generator[None, None, int]:
    """How many further nodes like this make the group fit; 0: as many as members do not."""
    most = min(len(request.members), _MOST_NODES)
    if not (yield from _fits_with(world, profile, request, shape, most)):
        return 0
    least = 1
    while least < most:
        middle = (least + most) // 2
        if (yield from _fits_with(world, profile, request, shape, middle)):
            most = middle
        else:
            least = middle + 1
    return most


def _fits_with(
    world: World, profile: ServedProfile, request: GroupRequest, shape: NodeInfo, number: int
) -> Generator[None, None, bool]:
    added = [f"{shape.name}-added-{count}" for count in range(number)]
    for name in added:
        labels = {**shape.labels, "kubernetes.io/hostname": name}
        world.cache.set_node(replace(shape, name=name, uid=name, labels=labels))
    try:
        decision = yield from answered(
            decide_group(world, profile, replace(request, budget_seconds=0.0))
        )
        if decision.placed:
            undo_attempt(GroupContext(world, profile), decision.attempt)
        return decision.placed
    finally:
        for name in added:
            world.cache.remove_node(name)
