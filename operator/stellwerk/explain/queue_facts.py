"""A pending pod's place in the scheduling queue, since when, and the events that would wake it.

Explanations and the list of the queue read it. Invariant: it reads the queue and changes nothing;
times leave as RFC 3339, since the monotonic clock means nothing outside the process.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final

from stellwerk.answers.pod import BindingFacts, QueueFacts, WakingEvent
from stellwerk.backend.queued_pod import BACKOFF_Q, BindingStage, Place, QueuedPod
from stellwerk.framework.events import (
    ACTION_NAMES,
    Action,
    ClusterEventWithHint,
    Resource,
    resource_name,
)
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.scheduling_spec import SchedulingSpec
from stellwerk.plugins.shared.pod_resource_claims import claim_names
from stellwerk.plugins.shared.volume_claims import is_fully_bound
from stellwerk.world.world import World
from stellwerk_kube.clock import Clock, rfc3339_milliseconds
from stellwerk_kube.resource_claim import Readiness, drivers_awaited, is_allocated, readiness

QUEUES: Final[Mapping[Place, str]] = {
    Place.ACTIVE: "activeQ",
    Place.BACKOFF: "backoffQ",
    Place.ERROR_BACKOFF: "errorBackoffQ",
    Place.UNSCHEDULABLE: "unschedulablePods",
    Place.GATED: "unschedulablePods (gated)",
    Place.IN_FLIGHT: "being decided",
    Place.BINDING: "being bound",
    Place.OBSERVED: "observed",
}


def queue_name(entry: QueuedPod) -> str:
    """The queue of a pod; one that is observed waits for the other scheduler, wherever it is."""
    return QUEUES[Place.OBSERVED] if entry.is_observed else QUEUES.get(entry.place, "none")


def binding_facts(
    world: World, pod: PodInfo, assumed: PodInfo, stage: BindingStage
) -> BindingFacts:
    """Return how far the binding of an assumed pod has come, and what it waits for."""
    waits_for = list(stage.waits_for)
    if stage.point == "PreBind":
        # Generic, because a plugin's PreBind tells nothing while it runs: what the API does not
        # show as settled yet, of all that a binding has to have settled.
        waits_for += _unsettled(world, pod)
    return BindingFacts(
        node=assumed.node_name,
        point=stage.point,
        waits_for=waits_for,
        since=at(world.clock, stage.since_seconds),
    )


def _unsettled(world: World, pod: PodInfo) -> Iterator[str]:
    """The claims of a pod that are not bound, not allocated, or whose devices are not ready."""
    for volume in pod.volumes:
        claim = world.objects.get("PersistentVolumeClaim", pod.namespace, volume.claim_name)
        if volume.claim_name and (claim is None or not is_fully_bound(claim)):
            yield f"the claim {pod.namespace}/{volume.claim_name} to be bound to a volume"
    generated = pod.generated_claims
    for_extended = [generated.extended] if generated is not None and generated.extended else []
    for name in claim_names(pod) + for_extended:
        claim = world.objects.get(RESOURCE_CLAIM, pod.namespace, name)
        if claim is None or not is_allocated(claim):
            yield f"the resource claim {pod.namespace}/{name} to be allocated"
        elif readiness(claim) is not Readiness.READY:
            drivers = ", ".join(dict.fromkeys(drivers_awaited(claim)))
            yield f"devices of {drivers} in the resource claim {pod.namespace}/{name} to be ready"


def is_skipped(world: World, entry: QueuedPod) -> bool:
    """Whether a pod was popped and left alone because it is being deleted (`skipPodSchedule`).

    It is in no queue, is not being bound, and holds no room; its entry is kept until it is gone.
    """
    is_assumed = entry.newest.uid in world.cache.assumed_pods
    return entry.place is Place.BINDING and entry.newest.terminating and not is_assumed


def queue_facts(world: World, entry: QueuedPod) -> QueueFacts:
    """The facts of one pod."""
    plugins = sorted(entry.rejector_plugins)
    return QueueFacts(
        queue=queue_name(entry),
        since=at(world.clock, entry.queued_at),
        attempts=entry.attempts,
        unschedulable_attempts=entry.unschedulable_count,
        consecutive_errors=entry.consecutive_errors,
        position=None if entry.is_observed else world.queue.position(entry.pod.uid),
        next_retry=_next_retry(world, entry),
        gated_by=entry.gating_plugin or None,
        rejected_by=plugins or None,
        woken_by=list(_waking_events(world, entry)) if plugins else None,
    )


def _next_retry(world: World, entry: QueuedPod) -> str | None:
    """The time at which the pod is tried again at the latest; None: not known."""
    if entry.place in BACKOFF_Q and entry.backoff_expiration:
        return at(world.clock, entry.backoff_expiration)
    if entry.place is Place.UNSCHEDULABLE and not entry.is_observed:
        # Whatever the hints miss, the flush of unschedulable pods finds.
        flushed = entry.queued_at + world.queue.max_unschedulable_seconds
        clock = world.clock
        left = entry.due_at - clock.now().timestamp()
        return at(clock, min(flushed, clock.monotonic() + left) if left > 0 else flushed)
    return None


def _waking_events(world: World, entry: QueuedPod) -> Iterator[WakingEvent]:
    """The kinds of events that a rejecting plugin registered, with the plugins.

    A member of a group is tried again with the others: what wakes any of them wakes it.
    """
    hints = world.profiles.hints(entry.profile_name)
    plugins_of: dict[str, dict[str, None]] = {}
    words_of: dict[str, str | None] = {}
    for plugin, pod in _rejections(world, entry):
        registered = hints.get(plugin)
        found = _ANY if registered is None else _names(registered, pod)
        for name, words in found.items():
            words_of[name] = words_of.get(name) or words
            plugins_of.setdefault(name, {})[plugin] = None
    for name, asking in plugins_of.items():
        yield WakingEvent(event=name, plugins=list(asking), words=words_of[name])


def _rejections(world: World, entry: QueuedPod) -> Iterator[tuple[str, PodInfo]]:
    """(plugin, pod) for what rejected a pod, and the members of its group that differ from it."""
    seen = set[tuple[frozenset[str], SchedulingSpec]]()
    profile = world.profiles.of(entry.newest)
    members = None
    if profile is not None and profile.places_groups:
        members = world.pod_groups.of_member(entry.pod.uid)
    fellows = () if members is None else list(members.pods)
    others = (world.queue.entries.get(uid) for uid in fellows)
    for each in (entry, *others):
        if each is None or each.place is not entry.place:
            continue
        key = (each.rejector_plugins, each.newest.spec)
        if key in seen or len(seen) >= _MAX_KINDS_OF_MEMBERS:
            continue
        seen.add(key)
        for plugin in sorted(each.rejector_plugins):
            yield plugin, each.newest


_MAX_KINDS_OF_MEMBERS: Final = 32
"""Members of a group that differ in their spec or their plugins and are looked at. Each kind costs
as much as a pod of its own; most groups have one or two."""


_ANY: Final[Mapping[str, str | None]] = {"any event": "anything changes"}


def _names(registered: Sequence[ClusterEventWithHint], pod: PodInfo) -> Mapping[str, str | None]:
    """Registrations in kube-scheduler's names of events, and in words where they may help a pod."""
    found: dict[str, str | None] = {}
    for each in registered:
        if each.resource is Resource.WILDCARD:
            found |= _ANY
            continue
        may_help = _concerns(each.resource, pod)
        for action, name in ACTION_NAMES.items():
            if action in each.action:
                words = _words(each.resource, action) if may_help else None
                found[f"{resource_name(each.resource)}{name}"] = words
    return found


_DEVICES: Final = frozenset(
    {Resource.RESOURCE_CLAIM, Resource.RESOURCE_SLICE, Resource.DEVICE_CLASS}
)
_VOLUMES: Final = frozenset(
    {
        Resource.PERSISTENT_VOLUME,
        Resource.PERSISTENT_VOLUME_CLAIM,
        Resource.STORAGE_CLASS,
        Resource.CSI_NODE,
        Resource.CSI_DRIVER,
        Resource.CSI_STORAGE_CAPACITY,
        Resource.VOLUME_ATTACHMENT,
    }
)
_PODS: Final = frozenset({Resource.POD, Resource.ASSIGNED_POD, Resource.UNSCHEDULED_POD})
_WORDS: Final[Mapping[Action, str]] = {
    Action.UPDATE_NODE_ALLOCATABLE: "a node offers more",
    Action.UPDATE_NODE_LABEL: "a node's labels change",
    Action.UPDATE_NODE_TAINT: "a node loses a taint",
    Action.UPDATE_NODE_CONDITION: "a node's condition changes",
    Action.UPDATE_NODE_ANNOTATION: "a node's annotations change",
    Action.UPDATE_NODE_DECLARED_FEATURE: "a node declares a feature",
    Action.UPDATE_POD_LABEL: "a pod's labels change",
    Action.UPDATE_POD_SCALE_DOWN: "a pod requests less",
    Action.UPDATE_POD_TOLERATION: "the pod gets a toleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "the pod loses its scheduling gates",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "the pod's claims are created",
    Action.UPDATE_POD_TERMINATING: "a pod starts to be deleted",
}


def _concerns(resource: Resource | str, pod: PodInfo) -> bool:
    """Whether objects of a kind can matter to a pod at all."""
    if resource in _DEVICES:
        return bool(pod.spec.resource_claims or pod.extended_requests)
    return resource not in _VOLUMES or bool(pod.volumes)


def _words(resource: Resource | str, action: Action) -> str:
    """An event in words."""
    known = _WORDS.get(action)
    if known is not None:
        return known
    if resource in _PODS:
        done = {Action.ADD: "comes", Action.DELETE: "leaves"}
        return f"a pod {done.get(action, 'changes')}"
    name = "node" if resource is Resource.NODE else resource_name(resource)
    done = {Action.ADD: "is added", Action.DELETE: "is deleted"}
    return f"a {name} {done.get(action, 'changes')}"


def at(clock: Clock, monotonic_seconds: float) -> str:
    """A moment of the monotonic clock as RFC 3339."""
    moment = clock.now() + timedelta(seconds=monotonic_seconds - clock.monotonic())
    return rfc3339_milliseconds(moment)
