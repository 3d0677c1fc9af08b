"""An explanation of one group: its members, what it waits for, what would make it fit.

The operator's port asks for it. What would happen now, and with more nodes, is computed on a fork
by the same code that decides groups. Invariant: the live World is only read.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from stellwerk.answers.group import (
    ROOM_NOT_KEPT,
    GroupCondition,
    GroupExplanation,
    GroupForecast,
    GroupMember,
    MoreNodes,
)
from stellwerk.explain.steps import Steps, on_fork
from stellwerk.framework.changes import amounts_text
from stellwerk.framework.types import PluginFailure
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import PodGroup
from stellwerk.plugins.shared.pod_resource_claims import claim_names
from stellwerk.world.gangs.group_attempt import GroupContext, GroupRequest, answered, undo_attempt
from stellwerk.world.gangs.group_decision import (
    WAITING_FOR_OTHERS,
    GroupDecision,
    decide_group,
    missing_text,
)
from stellwerk.world.gangs.group_request import request_for, scheduled_members
from stellwerk.world.gangs.group_reservation import left_for_part, reservation_limit_seconds
from stellwerk.world.gangs.pod_groups import GroupMembers
from stellwerk.world.gangs.queue_order import gang_args, in_order, is_first, why_inadmissible
from stellwerk.world.profiles import ServedProfile
from stellwerk.world.world import World
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.names import suggestion
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_claim import device_claim_of
from stellwerk_kube.resource_slice import PARSED, Slice

_MAX_ADDED_SHAPES: Final = 3
"""Kinds of nodes that are tried as additions, the largest first."""
_MAX_ADDED_NODES: Final = 1024
"""Nodes that are added to the fork in one try. If as many do not help, no number is suggested."""
_OF_CONDITIONS: Final = "node.kubernetes.io/"
"""Taints of nodes that are not as new ones would be."""


def explain_group(world: World, namespace: str, name: str) -> Steps[GroupExplanation] | None:
    """Explain a group; None: neither it nor a member of it is known."""
    for key, members in world.pod_groups.groups.items():
        if key.namespace == namespace and key.name == name:
            return _explained(world, members)
    return None


def _explained(world: World, members: GroupMembers) -> Steps[GroupExplanation]:
    yield
    closed = world.pod_groups.why_closed(members)
    result = _facts(world, members, closed)
    pending = [pod for pod in members.pods.values() if _is_pending(world, pod)]
    group = members.group
    profile = world.profiles.of(pending[0]) if pending else None
    if closed or group is None or profile is None or not profile.places_groups:
        return result
    result = replace(result, compatibility=str(profile.compatibility.version))
    request = request_for(world, profile, members, in_order(world, pending))
    name = profile.scheduler_name
    return (yield from on_fork(world, lambda fork: _outcome_on(fork, name, request, result)))


def _outcome_on(
    fork: World, profile_name: str, request: GroupRequest, result: GroupExplanation
) -> Steps[GroupExplanation]:
    """The explanation with what the group's next attempt would come to."""
    served = fork.profiles.served[profile_name]
    try:
        decision = yield from answered(decide_group(fork, served, request))
        result = replace(result, would_happen=_outcome(fork, decision))
        if decision.placed:
            undo_attempt(GroupContext(fork, served), decision.attempt)
        else:
            would_fit = yield from _with_more_nodes(fork, served, request)
            result = replace(result, would_fit=would_fit)
    except PluginFailure as failure:
        result = replace(result, error=str(failure))
    return result


def _facts(world: World, members: GroupMembers, closed: str) -> GroupExplanation:
    group, book = members.group, world.pod_groups
    placed = len(scheduled_members(world, members))
    needed = group.min_count if group is not None else 0
    is_placed = placed + members.succeeded >= max(1, needed)
    held = "" if closed or is_placed else why_inadmissible(world, members)
    state = "placed" if is_placed else "waiting for its turn" if held else "waiting for room"
    if closed:
        state = "waiting for pods"
    result = GroupExplanation(
        pod_group=members.key.shown,
        api=members.key.api,
        state=state,
        min_count=needed,
        exist=book.existing(members),
        placed=placed,
        running=sum(pod.phase == "Running" for pod in members.pods.values()),
        succeeded=members.succeeded,
        members=[_member(world, pod) for pod in members.pods.values()],
        waits_for=closed or held or None,
        remarks=sorted(_remarks(world, members)) or None,
    )
    if group is None:
        return result
    return replace(
        result,
        room_is_kept_seconds=_room_is_kept_seconds(world, members, group),
        given_back_after_seconds=group.give_back_seconds,
        queue=group.queue or None,
        topology=list(group.topology),
        problems=list(group.problems),
        conditions=[
            GroupCondition(
                type=each.get("type"),
                status=each.get("status"),
                reason=each.get("reason"),
                message=each.get("message"),
            )
            for each in group.conditions
        ],
    )


def _remarks(world: World, members: GroupMembers) -> Iterator[str]:
    """Remarks on what may be a mistake."""
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


def _room_is_kept_seconds(world: World, members: GroupMembers, group: PodGroup) -> int | None:
    """The time for which room is kept; None: for as long as the group is the first of its queue."""
    since = members.reserved_since
    profile = next(filter(None, map(world.profiles.of, members.pods.values())), None)
    if profile is None:
        return ROOM_NOT_KEPT
    if since is None:
        is_kept = members.is_partly_bound and any(map(world.nominator.node_of, members.pods))
        left = left_for_part(world, profile, members)
        return round(max(0.0, left)) if is_kept else ROOM_NOT_KEPT
    now, kept = world.clock.monotonic(), world.pod_groups.kept_room.get(members.key.namespace)
    granted = gang_args(profile).reservation
    if members.ending is None or kept is None or granted is None:
        left = since + reservation_limit_seconds(profile, group) - now
        return None if is_first(world, members) else round(max(0.0, left))
    left = kept.since + granted.max_seconds - now
    if group.schedule_timeout_seconds:
        left = min(left, since + group.schedule_timeout_seconds - now)
    return round(max(0.0, left))


def _member(world: World, pod: PodInfo) -> GroupMember:
    place = world.queue.place(pod.uid)
    placed = world.cache.pod(pod.uid)
    node_name = placed.node_name if placed else pod.node_name
    message = None
    for condition in pod.conditions:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            message = str(condition.get("message") or "")
    queue = place.name.lower() if place is not None and not node_name else None
    return GroupMember(pod=pod.key, node=node_name, queue=queue, message=message)


def _is_pending(world: World, pod: PodInfo) -> bool:
    in_cache = world.cache.pod(pod.uid) is not None
    return not (in_cache or pod.terminating or pod.spec.scheduling_gates)


def _outcome(world: World, decision: GroupDecision) -> GroupForecast:
    attempt, preemption = decision.attempt, decision.preemption
    missing = "" if decision.placed else missing_text(decision)
    assumed = {each.pod.uid for each in attempt.results if each.assumed is not None}
    unplaced = [each for each in decision.request.members if each.uid not in assumed]
    reasons = {each.key: missing for each in unplaced if missing}
    reasons |= {
        each.pod.key: each.failure.message
        for each in attempt.results
        if each.failure is not None and each.failure.message != WAITING_FOR_OTHERS
    }
    return GroupForecast(
        placed=decision.placed,
        placements=decision.placements,
        attempts=decision.attempts,
        placement=attempt.placement.shown,
        nodes={
            each.pod.key: each.assumed.node_name
            for each in attempt.results
            if each.assumed is not None
        },
        message=None if decision.placed else decision.message,
        missing=missing or None,
        lacking=next((_wanted(world, each) for each in unplaced), None) if missing else None,
        reasons=None if decision.placed else reasons,
        victims=None if preemption is None else [pod.key for pod in preemption.victims],
        decided_by=(preemption.decided_by or None) if preemption is not None else None,
        room_is_kept_on=None if preemption is None else sorted(set(preemption.nodes.values())),
    )


def _wanted(world: World, pod: PodInfo) -> str:
    """The devices that a pod asks for, in words, or else the amounts that it requests."""
    phrases = []
    for name in claim_names(pod):
        claim = world.objects.get(RESOURCE_CLAIM, pod.namespace, name)
        try:
            wanted = device_claim_of(claim) if claim is not None else None
        except _MALFORMED:
            wanted = None  # the pod's own explanation says why the claim cannot be read
        if wanted is None:
            continue
        linked = "linked " if wanted.constraints else ""
        for each in wanted.choices:
            many = "all" if each.everything else f"{each.count}"
            devices = "device" if many == "1" else "devices"
            phrases.append(f"{many} {linked}{devices} of class {each.class_name}")
    return " and ".join(phrases) or amounts_text(pod.amounts.requests) or "a place"


_MALFORMED: Final = (KeyError, TypeError, ValueError, AttributeError)

# --- what would make it fit ---------------------------------------------------------------------


def _with_more_nodes(
    world: World, profile: ServedProfile, request: GroupRequest
) -> Generator[None, None, list[MoreNodes]]:
    """The smallest number of further nodes of each shape that would do."""
    found: list[MoreNodes] = []
    slices: dict[str, list[Slice]] = {}
    if any(pod.spec.resource_claims or pod.extended_requests for pod in request.members):
        for each in world.objects.list("ResourceSlice"):
            parsed: Slice | None = each.get(PARSED)
            if parsed is not None and parsed.local:
                slices.setdefault(parsed.reach.node_name, []).append(parsed)
    for shape in _shapes(world.cache.nodes(), request.members, slices):
        further = _Shape(shape, slices.get(shape.name, ()))
        number = yield from _fewest(world, profile, request, further)
        if number:
            offered = {name: amount for name, amount in shape.allocatable.items() if amount}
            found.append(MoreNodes(nodes=number, like=shape.name, allocatable=offered))
    return found


@dataclass(frozen=True, slots=True)
class _Shape:
    """A node, of which others are supposed, with the slices of its devices."""

    node: NodeInfo
    slices: Sequence[Slice]

    def slices_for(self, name: str) -> Iterator[JsonObject]:
        """The slices of a node of that name: all its devices are free, as those of a new node."""
        for number, each in enumerate(self.slices):
            driver, pool = each.pool
            metadata = {"name": f"{name}-{number}", "uid": f"{name}-{number}"}
            further = replace(
                each,
                name=metadata["name"],
                pool=(driver, f"{pool}-{name}"),
                reach=replace(each.reach, node_name=name),
            )
            yield {"metadata": metadata, PARSED: further}


def _shapes(
    nodes: Iterable[NodeInfo],
    members: Sequence[PodInfo],
    slices: Mapping[str, Sequence[Slice]],
) -> Sequence[NodeInfo]:
    """One node of each of the largest kinds that members could be placed on if they were empty.

    `slices`: of devices by node, if members ask for devices.
    """

    def devices(node: NodeInfo) -> tuple[tuple[str, int], ...]:
        count = Counter[str]()
        for each in slices.get(node.name, ()):
            count[each.pool[0]] += len(each.names.values)
        return tuple(sorted(count.items()))

    wanted = {id(pod.amounts): pod.amounts.requests for pod in members}.values()
    kinds: dict[object, NodeInfo] = {}
    for node in nodes:
        in_trouble = any(taint.key.startswith(_OF_CONDITIONS) for taint in node.taints)
        if node.unschedulable or in_trouble:
            continue
        if any(_holds(node, requests) for requests in wanted):
            amounts = tuple(sorted(node.allocatable.items()))
            kinds.setdefault((amounts, node.taints, devices(node)), node)
    asked = {resource for requests in wanted for resource in requests}

    def rank(node: NodeInfo) -> tuple[int, int, int]:
        lacking = len(asked - node.allocatable.keys())
        held = sum(number for _, number in devices(node))
        return lacking, -held, -node.allocatable.get("cpu", 0)

    return sorted(kinds.values(), key=rank)[:_MAX_ADDED_SHAPES]


def _holds(node: NodeInfo, requests: Mapping[str, int]) -> bool:
    """Whether a pod fits on the empty node; what it does not offer may come from devices."""
    offered = node.allocatable
    return all(offered.get(each, amount) >= amount for each, amount in requests.items())


def _fewest(
    world: World, profile: ServedProfile, request: GroupRequest, shape: _Shape
) -> Generator[None, None, int]:
    """The number of further nodes that make the group fit; 0: as many as members do not."""
    most = min(len(request.members), _MAX_ADDED_NODES)
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
    world: World, profile: ServedProfile, request: GroupRequest, shape: _Shape, number: int
) -> Generator[None, None, bool]:
    node, objects = shape.node, world.objects
    added = [f"{node.name}-added-{count}" for count in range(number)]
    slices = [each for name in added for each in shape.slices_for(name)]
    for name in added:
        labels = {**node.labels, "kubernetes.io/hostname": name}
        world.cache.set_node(replace(node, name=name, uid=name, labels=labels))
    for each in slices:
        objects.set("ResourceSlice", each)
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
        for each in slices:
            objects.remove("ResourceSlice", each)
