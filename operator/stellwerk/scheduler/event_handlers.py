"""Watch events of pods, nodes and other objects, taken to the cache and the queue.

Implements WatchHandlers for kopf's handlers; synchronous, no I/O, timed as kube-scheduler times its
own. Invariant: after an event, the cache and the queue show the object as the event does, and every
pod that the change may help has been moved (`SchedulingQueue.move_all_to_active_or_backoff`).

Repeated events do not come here, `handlers.delivery` drops them. What a pod's event means depends
on what is known of its uid. A pod of the same name and another uid is another pod.

- On a node in the cache, without one in the event: either an old event, or the API has lost the
  binding. The pod stays counted until it was read (`binding_outcomes`).
- In the queue, with a node in the event: it is bound, by this process or by another scheduler. It
  leaves the queue. If another scheduler was faster than a binding of ours, the API server answers
  ours with a Conflict.
- Assumed, and terminating: its room is free at once, and its binding is refused in the end. If it
  waits on Permit it is rejected there, and its room is free when its binding is undone.
- Deleted: it leaves queue and cache, and a preemption for it ends. `schedule_one` and
  `binding_cycle` say what becomes of an attempt that is under way.
- Unknown, without a node: it waits in the queue, or in `without_profile` if none serves it.

Pods on a deleted node stay counted there until their own deletion (`Cache.remove_node`), also if a
node of the same name comes meanwhile.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from typing_extensions import override

from stellwerk.backend.cache import counts_alike
from stellwerk.framework.events import (
    Action,
    ClusterChange,
    Resource,
    node_update_actions,
    pod_update_actions,
)
from stellwerk.framework.watch_handlers import Lack, WatchHandlers
from stellwerk.metrics import Metrics
from stellwerk.models.complexity import DEFAULT_MAX_POD_COMPLEXITY
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.pod_claims import RESOURCE_CLAIM
from stellwerk.models.pod_group import GROUP_KINDS
from stellwerk.observing.trailing import Trail
from stellwerk.profiles.loader import ProfileLoader
from stellwerk.scheduler.binding_tasks import BindingTasks
from stellwerk.scheduler.extenders.raw_objects import RawObjects
from stellwerk.scheduler.gangs.group_events import GroupEvents
from stellwerk.scheduler.preemption import PreemptionExecutor
from stellwerk.scheduler.status_reports import StatusReports
from stellwerk.scheduler.waiting_pods_map import WaitingPodsMap
from stellwerk.series import Histogram
from stellwerk.world.world import World, is_of_plugins
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.json_values import JsonObject, text_map
from stellwerk_kube.node import parse_node
from stellwerk_kube.untrusted_text import cut, printable

logger = logging.getLogger(__name__)
Parsed = TypeVar("Parsed")
DELETED: Final = "DELETED"
MAX_STATE_CHARACTERS: Final = 300
"""Characters of a state of a list that `/readyz` shows: a server's refusal may be long."""

_UNOBSERVED: Final = nullcontext()


class PreparedObject(Generic[Parsed]):
    """A large object and what it was parsed to in a thread, until its event is handled.

    The object is held for as long as this is, so that its id means this object and no other.
    """

    __slots__ = ("__weakref__", "_failure", "_obj", "_parsed")

    def __init__(self, obj: JsonObject, parse: Callable[[JsonObject], Parsed]) -> None:
        """Parse the object; a ValueError is kept for `parsed`."""
        self._obj = obj
        self._parsed: Parsed | None = None
        self._failure: ValueError | None = None
        try:
            self._parsed = parse(obj)
        except ValueError as failure:
            # Its traceback would hold everything that parsing has seen.
            self._failure = failure.with_traceback(None)

    def parsed(self) -> Parsed:
        """The object, parsed.

        Raises:
            ValueError: it is malformed.
        """
        if self._parsed is None:
            raise self._failure or ValueError("nothing was parsed")
        return self._parsed


class SyncBarrier:
    """Opens when the first list of every watched kind is complete.

    Once open, it holds decisions back for the moments in which a later list is being applied.
    """

    def __init__(self, kinds: frozenset[str]) -> None:
        self._missing = set(kinds)
        self._states: dict[str, str] = {}
        """By kind, how far its first list is, or what has ended it."""
        self._complete = asyncio.Event()
        self._applying: set[str] = set()
        self.is_applying = False
        """True while the cache is between two states that the API server has shown."""
        self._applied = asyncio.Event()
        self._applied.set()

    def on_synced(self, kind: str) -> None:
        """Note that a kind's first list is complete."""
        self._missing.discard(kind)
        self._states.pop(kind, None)
        if not self._missing:
            self._complete.set()

    def on_unlisted(self, kind: str, state: str) -> None:
        """Note why a kind's first list is not complete."""
        if kind in self._missing:
            self._states[kind] = cut(printable(state), MAX_STATE_CHARACTERS)

    def unready(self) -> str | None:
        """Return why nothing can be decided yet; None: it can."""
        if not self._missing:
            return None
        missing = (
            f"{kind} ({self._states[kind]})" if kind in self._states else kind
            for kind in sorted(self._missing)
        )
        return f"waiting for the first list of {', '.join(missing)}"

    async def wait(self) -> None:
        """Wait until nothing is missing."""
        await self._complete.wait()

    def on_relist(self, kind: str, *, applying: bool) -> None:
        """Note that a later list of a kind begins to be applied, or has been applied."""
        (self._applying.add if applying else self._applying.discard)(kind)
        self.is_applying = bool(self._applying)
        (self._applied.clear if self.is_applying else self._applied.set)()

    async def applied(self) -> None:
        """Wait until no list is being applied."""
        await self._applied.wait()


class Predicates:
    """Waits for something that watch events make true, without polling: `Handle.wait_until`.

    EventHandlers calls `look` after every event. Invariant: no wait is longer than its timeout.
    """

    def __init__(self) -> None:
        self.pending: dict[asyncio.Future[None], Callable[[], bool]] = {}
        """The predicates that do not hold yet, by the future that is to be woken."""

    def look(self) -> None:
        """Wake the futures whose predicates hold now; called after every event."""
        for future, predicate in list(self.pending.items()):
            if not future.done() and predicate():
                future.set_result(None)

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        """Wait until the predicate holds; False if it does not in time."""
        if predicate():
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.pending[future] = predicate
        try:
            async with asyncio.timeout(timeout_seconds):
                await future
        except TimeoutError:
            return predicate()
        finally:
            del self.pending[future]
        return True


@dataclass(slots=True, eq=False)
class EventHandlers(WatchHandlers):
    """Takes each event to the World, and to whatever is under way for the object."""

    world: World
    loader: ProfileLoader
    reports: StatusReports
    raw: RawObjects
    bindings: BindingTasks
    waiting_pods: WaitingPodsMap
    preemption: PreemptionExecutor
    predicates: Predicates
    barrier: SyncBarrier
    metrics: Metrics
    groups: GroupEvents
    max_pod_complexity: int = DEFAULT_MAX_POD_COMPLEXITY
    on_own_kind: Callable[[str], None] = lambda _: None
    """Called with a plugin's kind of which every object has been seen."""
    on_event: Callable[[str, str | None, JsonObject], AbstractContextManager[None]] = lambda *_: (
        _UNOBSERVED
    )
    """Entered with kind, type and object of each event while it has its effects."""
    trail: Trail | None = None
    """Takes changes of nodes and bound pods while a profile observes; None: none does."""
    _warned_of_claims: str = ""
    """The reason for which claims cannot be seen, as it was last said in the log."""
    _unresolved: dict[str, JsonObject] = field(default_factory=dict)
    """Pods without a priority whose class has not been seen yet, by uid."""
    _durations: dict[str, Histogram] = field(default_factory=dict)
    """By label."""
    _prepared: WeakValueDictionary[int, PreparedObject[Any]] = field(
        default_factory=WeakValueDictionary
    )
    """Large objects that were parsed beside the loop, by their id, until they are handled."""

    # --- pods -----------------------------------------------------------------------------------

    @override
    def on_pod(self, event_type: str | None, obj: JsonObject) -> PodInfo | None:
        started = self.world.clock.monotonic()
        with self.on_event("Pod", event_type, obj):
            change = self._pod(event_type, obj, started)
        if change:
            self._handled(change, started)
        elif self.predicates.pending:
            self.predicates.look()
        return self.world.cache.pod(obj["metadata"].get("uid"))

    def _pod(self, event_type: str | None, obj: JsonObject, now: float) -> str:
        """Take a pod event; returns what happened to the pod, as the metric calls it.

        Empty: no metric of ours counts it, because the pod waits for another scheduler.
        """
        if event_type == DELETED:
            return self._pod_gone(obj, now, deleted=True)
        pod = self._parsed(self._parse, obj)
        if pod.finished:
            return self._pod_gone(obj, now, deleted=False)
        if pod.group is not None or pod.uid in self.world.pod_groups.key_of:
            # Before the queue: its members count when PreEnqueue is asked.
            self.groups.on_pod(pod)
        if self.raw.wants_any:
            profile = self.world.profiles.of(pod)
            self.raw.on_pod(pod, obj, profile.scheduler_name if profile else "")
        if pod.node_name:
            return self._pod_bound(pod, now)
        change = self._pod_unbound(pod, now)
        if self.trail is not None:
            is_observed = self.trail.pod_waits(pod, is_new=change == "UnschedulablePodAdd")
            return "" if is_observed else change
        return change

    def _parse(self, obj: JsonObject) -> PodInfo:
        """The pod; if admission left its priority open, with the one its class has."""
        if obj["spec"].get("priority") is not None:
            return parse_pod(obj, None, self.max_pod_complexity, self._compatibility)
        classes = self.world.priority_classes
        uid = _uid(obj["metadata"])
        resolve = partial(classes.resolve_for, uid)
        pod = parse_pod(obj, resolve, self.max_pod_complexity, self._compatibility)
        if uid in classes.waiting:
            # Its class may only be listed later: then the pod is parsed again.
            self._unresolved[uid] = obj
        return pod

    @property
    def _compatibility(self) -> Compatibility:
        """The release by which pods are read."""
        return self.world.profiles.compatibility

    @override
    def prepare(self, kind: str, obj: JsonObject) -> object:
        parse: Callable[[JsonObject], object]
        if kind == "Pod":
            parse = partial(
                parse_pod,
                max_complexity=self.max_pod_complexity,
                compatibility=self._compatibility,
            )
        elif kind == "Node":
            parse = parse_node
        elif kind == "SchedulerProfile":
            parse = self.loader.parse
        else:
            return None
        prepared = PreparedObject(obj, partial(_well_formed, parse))
        spec = obj.get("spec")
        if kind != "Pod" or (isinstance(spec, dict) and spec.get("priority") is not None):
            self._prepared[id(obj)] = prepared
        # A pod without a priority is parsed again, with that of its class. Its compiled spec is
        # interned, and found then.
        return prepared

    def _parsed(self, parse: Callable[[JsonObject], Parsed], obj: JsonObject) -> Parsed:
        """The object, parsed now unless it has been."""
        prepared = self._prepared.get(id(obj))
        return _well_formed(parse, obj) if prepared is None else prepared.parsed()

    def _priorities_known(self, uids: Iterable[str], now: float) -> None:
        for uid in uids:
            obj = self._unresolved.pop(uid, None)
            if obj is not None:
                self._pod("MODIFIED", obj, now)

    def _pod_bound(self, pod: PodInfo, now: float) -> str:
        world, uid = self.world, pod.uid
        self.bindings.confirmed(uid)
        self.loader.without_profile.pods.pop(uid, None)
        if uid in self.reports.pending:
            self.reports.drop(uid)
        confirmed = uid in world.cache.assumed_pods
        before = world.cache.set_pod(pod)
        if self.trail is not None and (before is None or not counts_alike(before, pod)):
            self.trail.pod_bound(pod, world.queue.entries.get(uid))
        self._leave_queue(uid, pod.node_name, now)
        if pod.terminating:
            self.preemption.on_victim(uid)
        if before is None or confirmed:
            if not world.queue.entries:
                return "AssignedPodAdd"  # no pod waits that it could help
            change = ClusterChange(Resource.ASSIGNED_POD, Action.ADD, None, pod)
            world.queue.move_all_to_active_or_backoff(change, now)
            return "AssignedPodAdd"
        for action in pod_update_actions(before, pod):
            change = ClusterChange(Resource.ASSIGNED_POD, action, before, pod)
            world.queue.move_all_to_active_or_backoff(change, now)
        return "AssignedPodUpdate"

    def _pod_unbound(self, pod: PodInfo, now: float) -> str:
        world = self.world
        if pod.uid not in world.queue.entries:
            if world.cache.pod(pod.uid) is not None:
                # Either an old event, or the API has lost the binding: it is read before its room
                # is given away.
                self.bindings.doubted.add(pod.uid)
                return "AssignedPodUpdate"
            profile = world.profiles.of(pod)
            if profile is None:
                self.loader.without_profile.put(pod)
                return "UnschedulablePodAdd"
            if pod.uid in self.loader.without_profile.pods:
                # Its labels have changed.
                self.loader.without_profile.let_go(pod.uid)
            world.queue.add(pod, now, profile.scheduler_name)
            if pod.spec.resource_claims:
                self._warn_of_claims(pod)
            if pod.spec.scheduler_name in world.profiles.selectors.by_scheduler_name:
                world.profiles.count_overlap(pod)
            return "UnschedulablePodAdd"
        if pod.terminating and pod.uid in world.cache.assumed_pods:
            self._assumed_pod_terminating(pod.uid)
        before = world.queue.update(pod, now)
        if before is not None and before.label_set is not pod.label_set:
            self.loader.moves.pod_changed(pod.uid, now)
        if before is not None and before.nominated_node_name != pod.nominated_node_name:
            # Pods that a lower or equal nomination stood in the way of may fit now.
            self._nomination_changed(before, now)
        return "UnschedulablePodUpdate"

    def _assumed_pod_terminating(self, uid: str) -> None:
        """The deletion of a pod that is being bound has begun: its capacity is free at once.

        Whatever its binding is at goes on, and is refused by the API in the end.
        """
        waiting = self.waiting_pods.get_waiting(uid)
        if waiting is not None:
            waiting.reject("", "pod is deleted")
            return
        assumed = self.world.cache.forget_pod(uid)
        if assumed is not None:
            self.preemption.on_victim(uid)
            self.world.wake_after_forgetting(assumed)

    def _leave_queue(self, uid: str, node_name: str, now: float) -> PodInfo | None:
        """Take a pod out of the queue that is bound, to whatever node, or is gone.

        The room that was kept for it on any other node is free, also where the API has not been
        told of the nomination yet. Returns the pod; None: it was not in the queue.
        """
        nominator = self.world.nominator
        kept_on = nominator.node_of(uid) if nominator.by_node else ""
        pending = self.world.queue.delete(uid)
        if pending is not None:
            kept_on = kept_on or pending.details.nominated_node_name
            if kept_on and kept_on != node_name:
                self._nomination_changed(pending.with_nomination(kept_on), now)
        return pending

    def _nomination_changed(self, pod: PodInfo, now: float) -> None:
        if pod.nominated_node_name:
            self.world.queue.move_all_to_active_or_backoff(
                ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, pod, None),
                now,
                max_priority=pod.priority,
            )

    def _pod_gone(self, obj: JsonObject, now: float, *, deleted: bool) -> str:
        """A pod was deleted, or has finished."""
        world, uid = self.world, _uid(obj["metadata"])
        self.loader.without_profile.pods.pop(uid, None)
        self.reports.drop(uid)
        self.raw.on_pod_gone(uid)
        self._unresolved.pop(uid, None)
        world.priority_classes.forget(uid)
        self.bindings.confirmed(uid)
        if uid in world.pod_groups.key_of:
            self.groups.on_pod_gone(uid, obj)
        waiting = self.waiting_pods.get_waiting(uid)
        if waiting is not None:
            waiting.reject("", "pod is deleted")
        is_observed = self.trail is not None and self.trail.is_observed(uid)
        pending = self._leave_queue(uid, "", now)
        if pending is not None:
            self.preemption.abandon(uid)
        assumed = uid in world.cache.assumed_pods
        removed = world.cache.remove_pod(uid)
        if self.trail is not None:
            self.trail.pod_gone(uid, obj)
        self.preemption.on_victim(uid)
        if removed is not None:
            change = ClusterChange(Resource.ASSIGNED_POD, Action.DELETE, removed, None)
            world.queue.move_all_to_active_or_backoff(change, now)
        counted = removed is not None and not assumed
        spec = obj.get("spec")
        if counted or (isinstance(spec, dict) and spec.get("nodeName")):
            return f"AssignedPod{_change(deleted=deleted, known=counted)}"
        if is_observed:
            return ""
        return f"UnschedulablePod{_change(deleted=deleted, known=pending is not None)}"

    # --- nodes ----------------------------------------------------------------------------------

    @override
    def on_node(self, event_type: str | None, obj: JsonObject) -> None:
        started = self.world.clock.monotonic()
        with self.on_event("Node", event_type, obj):
            change = self._node(event_type, obj, started)
        self._observe(change, started)

    def _node(self, event_type: str | None, obj: JsonObject, started: float) -> str:
        """Take a node event; returns what happened to the node, as the metric calls it."""
        world = self.world
        if event_type == DELETED:
            metadata = obj["metadata"]
            removed = world.cache.remove_node(metadata["name"], metadata.get("uid") or "")
            if removed is not None:
                if self.trail is not None:
                    self.trail.node_gone(metadata["name"], metadata.get("uid") or "")
                self.raw.on_node(metadata["name"], None)
                change = ClusterChange(Resource.NODE, Action.DELETE, removed, None)
                world.queue.move_all_to_active_or_backoff(change, started)
            return "NodeDelete"
        node = self._parsed(parse_node, obj)
        if self.raw.wants_any:
            self.raw.on_node(node.name, obj)
        before = world.cache.set_node(node)
        if self.trail is not None and (before is None or not before.same_for_scheduling(node)):
            self.trail.node(node)
        if before is None:
            change = ClusterChange(Resource.NODE, Action.ADD, None, node)
            world.queue.move_all_to_active_or_backoff(change, started)
        else:
            for action in node_update_actions(before, node):
                change = ClusterChange(Resource.NODE, action, before, node)
                world.queue.move_all_to_active_or_backoff(change, started)
        return "NodeAdd" if before is None else "NodeUpdate"

    # --- everything else ------------------------------------------------------------------------

    @override
    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None:
        started, gone = self.world.clock.monotonic(), event_type == DELETED
        with self.on_event(kind, event_type, obj):
            self._object(kind, obj, started, gone=gone)
        change = _change(deleted=gone, known=event_type == "MODIFIED")
        self._handled(f"{kind}{change}", started)

    def _object(self, kind: str, obj: JsonObject, started: float, *, gone: bool) -> None:
        if kind == "PriorityClass":
            if gone:
                self.world.priority_classes.remove(obj["metadata"]["name"])
            else:
                known = _well_formed(self.world.priority_classes.set, obj)
                self._priorities_known(known, started)
        elif kind in GROUP_KINDS:
            _well_formed(partial(self.groups.on_group, kind, gone=gone), obj)
        elif kind == "SchedulerProfile":
            self.loader.on_object(obj, gone=gone, parse=partial(self._parsed, self.loader.parse))
        else:
            self._keep(kind, obj, started, gone=gone)

    def _keep(self, kind: str, obj: JsonObject, now: float, *, gone: bool) -> None:
        world, metadata = self.world, obj["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        before = world.objects.get(kind, namespace, name)
        labels = None if gone else _well_formed(_labels, obj)
        if gone:
            world.objects.remove(kind, obj)
        else:
            _well_formed(partial(world.objects.set, kind), obj)
        if kind == "Namespace":
            world.cache.set_namespace(name, labels)
            if self.trail is not None:
                self.trail.namespace(name, labels)
            if labels is None or before is None or labels != _labels(before):
                self.loader.moves.namespace_changed(name)
        world.wake_after_object(kind, before, None if gone else obj, now)

    @override
    def on_synced(self, kind: str) -> None:
        """Every object of a kind has been seen; pods that waited for it are tried."""
        if kind == "PriorityClass":
            uids = self.world.priority_classes.synced()
            self._priorities_known(uids, self.world.clock.monotonic())
        if is_of_plugins(kind):
            self.on_own_kind(kind)
            change = ClusterChange(kind, Action.ADD)
            self.world.queue.move_all_to_active_or_backoff(change, self.world.clock.monotonic())
        self.barrier.on_synced(kind)

    @override
    def on_version(self, kind: str, version: str) -> None:
        self.world.versions[kind] = version

    @override
    def on_unlisted(self, kind: str, state: str) -> None:
        self.barrier.on_unlisted(kind, state)

    @override
    def on_lack(self, kind: str, lack: Lack | None) -> None:
        world = self.world
        if lack is None:
            world.lacks.pop(kind, None)
            world.objects.unseen.pop(kind, None)
        else:
            world.versions.pop(kind, None)
            world.lacks[kind] = lack
            world.objects.unseen[kind] = lack.reason
        if kind in GROUP_KINDS:
            self.groups.on_lack(kind, lack)
        elif kind == RESOURCE_CLAIM:
            waiting = [
                each.pod for each in world.queue.entries.values() if each.pod.spec.resource_claims
            ]
            if waiting:
                # Their plugins are asked again what they wait for.
                self._warn_of_claims(waiting[0])
                world.activate(waiting)

    def _warn_of_claims(self, pod: PodInfo) -> None:
        """Say in the log, once for a reason, that pods name claims that cannot be seen."""
        reason = self.world.objects.why_unseen(RESOURCE_CLAIM)
        if reason and reason != self._warned_of_claims:
            self._warned_of_claims = reason
            logger.warning("pods name resource claims, such as %s: %s", pod.key, reason)

    @override
    def on_relist(self, kind: str, *, applying: bool) -> None:
        self.barrier.on_relist(kind, applying=applying)

    # --- after each -----------------------------------------------------------------------------

    def _handled(self, label: str, started: float) -> None:
        """Check what plugins wait for, because it may have come, and measure the event."""
        if self.predicates.pending:
            self.predicates.look()
        self._observe(label, started)

    def _observe(self, label: str, started: float) -> None:
        series = self._durations.get(label)
        if series is None:
            series = self._durations[label] = self.metrics.event_handling_duration.labels(label)
        series.observe(self.world.clock.monotonic() - started)


def _change(*, deleted: bool, known: bool) -> str:
    return "Delete" if deleted else "Update" if known else "Add"


def _well_formed(parse: Callable[[JsonObject], Parsed], obj: JsonObject) -> Parsed:
    """The parsed object.

    Raises:
        ValueError: it is malformed; the delivery logs, counts and skips it.
    """
    try:
        return parse(obj)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def _labels(obj: JsonObject) -> Mapping[str, str]:
    return text_map(obj["metadata"].get("labels"))


def _uid(metadata: JsonObject) -> str:
    return metadata.get("uid") or f"{metadata.get('namespace', 'default')}/{metadata['name']}"
