"""The kubelet's eviction manager: node pressure, limits of local storage, out of memory.

One worker plays this side of all kubelets, with the texts of the kubelet of v1.36. Nodes that are
not short cost nothing while what they and their pods use stays the same.
Invariant: one pod is evicted at a time, after what the node itself can give back, and none that is
critical; a condition of a node holds from the look that finds a threshold met until the transition
period has passed since the last one that does. Usage up to a limit of storage exceeds none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

from stellwerk_cluster.apimachinery.objects import EMPTY, key_of, meta, pick, timestamp, with_value
from stellwerk_cluster.apimachinery.pods import is_finished
from stellwerk_cluster.hollow import pod_status
from stellwerk_cluster.hollow.eviction_thresholds import (
    CONDITION_OF,
    CONTAINERFS,
    CONTAINERFS_INODES,
    IMAGEFS,
    IMAGEFS_INODES,
    MEMORY,
    NODEFS,
    NODEFS_INODES,
    PIDS,
    RESOURCE_OF,
    KubeletConfiguration,
    Threshold,
    binary_quantity,
)
from stellwerk_cluster.hollow.lifecycle import (
    END_NOW_ANNOTATION,
    OOM_KILLED,
    USAGE_ANNOTATION,
    VOLUME,
    seconds_to_change,
    usage_at,
)
from stellwerk_cluster.hollow.machine import machine_of
from stellwerk_cluster.hollow.node_usage import (
    CAPACITY_ANNOTATION,
    DEAD,
    LAYERS_ANNOTATION,
    UNUSED_IMAGES,
    NodeUsage,
    usage_of_node,
)
from stellwerk_cluster.hollow.pod_admission import is_static, requests_of
from stellwerk_cluster.registry.entries import ADDED, DELETED, MODIFIED, StoreEvent
from stellwerk_cluster.registry.event_recorder import WARNING, StoreEventRecorder
from stellwerk_cluster.work import Worker, WorkQueue
from stellwerk_kube.quantity import resource_amount

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from stellwerk_cluster.apimachinery.objects import Key
    from stellwerk_cluster.hollow.eviction_thresholds import Threshold
    from stellwerk_cluster.hollow.lifecycle import Lifecycle, Lifecycles
    from stellwerk_cluster.hollow.node_usage import Observation
    from stellwerk_cluster.registry.api import Api
    from stellwerk_kube.json_values import JsonObject


_STORAGE: Final = "ephemeral-storage"
_LIMIT: Final = ("resources", "limits", _STORAGE)
CONDITION_TEXTS: Final = {
    "MemoryPressure": {
        "True": ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        "False": ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    },
    "DiskPressure": {
        "True": ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        "False": ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    },
    "PIDPressure": {
        "True": ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        "False": ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    },
}
"""Condition → status → reason and message."""
_HOUSEKEEPING_SECONDS: Final = 10.0
"""Time between two looks at what a node has left (`housekeeping-interval`)."""
_HARD_GRACE_SECONDS: Final = 1.0
"""Grace period of a pod that a hard threshold evicts: the kubelet's shortest."""
_SAYING: Final = (USAGE_ANNOTATION, CAPACITY_ANNOTATION, LAYERS_ANNOTATION)
"""The annotations of a node that say what it has and uses."""


class _Leaving(NamedTuple):
    """A pod that is being evicted: until when it may run, monotonic, and what is said of it."""

    key: Key
    until: float
    message: str
    for_node: bool
    """Whether the node was short; else the pod was above a limit of its own."""


@dataclass(frozen=True, slots=True)
class _OutOfMemory:
    """A node whose kernel may have to kill a process, before its kubelet looks."""

    node_name: str


@dataclass(frozen=True, slots=True)
class _Load:
    """A pod whose load changes."""

    key: Key


class NodePressure(Worker):
    """Evicts pods from nodes that run short, and reports the conditions of the nodes."""

    def __init__(
        self, api: Api, lifecycles: Lifecycles, configuration: KubeletConfiguration
    ) -> None:
        """Follow the pods and nodes in the store of `api`."""
        self._api = api
        self._lifecycles = lifecycles
        self._configuration = configuration
        self._pods = api.kinds.resource("pods")
        self._nodes = api.kinds.resource("nodes")
        self._events = StoreEventRecorder(api, "kubelet")
        self.queue = WorkQueue(api.clock)
        self._states: dict[str, EvictionState] = {}
        self._usage: dict[str, dict[str, Mapping[str, int]]] = {}
        """Node → pod uid → what its containers use, of pods that run."""
        self._leaving: dict[str, _Leaving] = {}
        self._loads: set[Key] = set()
        """Pods whose load is looked at when it changes next."""
        for plural, listener in (("pods", self._on_pod), ("nodes", self._on_node)):
            collection = api.store.collection(plural)
            for entry in collection.entries():
                listener(StoreEvent(ADDED, entry, None))
            collection.listeners.append(listener)

    def _on_pod(self, event: StoreEvent) -> None:
        node_name, pod = event.entry.node_name, event.entry.obj
        if not node_name:
            return
        uid, used = meta(pod)["uid"], self._usage.setdefault(node_name, {})
        before = used.pop(uid, None)
        lifecycle = self._lifecycles.of(pod)
        if lifecycle.usage and event.type != DELETED and pod_status.is_running(pod):
            used[uid] = usage_at(lifecycle, self._api.now())
            self._wait_for_load(event.entry.key, lifecycle)
        if used.get(uid) != before:
            self._usage_changed(node_name)
        if not used:
            del self._usage[node_name]

    def _wait_for_load(self, key: Key, lifecycle: Lifecycle) -> None:
        """Look at a pod again when its load changes."""
        seconds = seconds_to_change(lifecycle, self._api.now())
        if seconds is not None and key not in self._loads:
            self._loads.add(key)
            self.queue.add_after(_Load(key), seconds)

    def _on_node(self, event: StoreEvent) -> None:
        name = event.entry.key[1]
        if event.type == DELETED:
            for each in (self._states, self._leaving):
                each.pop(name, None)
            return
        was = (meta(event.previous.obj).get("annotations") or EMPTY) if event.previous else EMPTY
        now = meta(event.entry.obj).get("annotations") or EMPTY
        if any(was.get(key) != now.get(key) for key in _SAYING):
            self._usage_changed(name)

    def _usage_changed(self, node_name: str) -> None:
        """Let the kernel look at once, and the kubelet at its next round."""
        self.queue.add(_OutOfMemory(node_name))
        if self._configuration.memory_notification:
            self.queue.add(node_name)
        if node_name not in self._states:
            self._states[node_name] = EvictionState(self._configuration)
            self.queue.add_after(node_name, _HOUSEKEEPING_SECONDS)

    @override
    def reconcile(self, key: Hashable) -> None:
        """Look at one node, or at a pod whose load has changed."""
        if isinstance(key, _Load):
            self._loads.discard(key.key)
            entry = self._api.store.collection("pods").get(key.key)
            if entry is not None:
                self._on_pod(StoreEvent(MODIFIED, entry, entry))
            return
        name = key.node_name if isinstance(key, _OutOfMemory) else str(key)
        node, state = self._api.find("nodes", "", name), self._states.get(name)
        if node is None or state is None:
            self._states.pop(name, None)
        elif isinstance(key, _OutOfMemory):
            self._kill_if_out_of_memory(node)
        elif machine_of(node):
            self.queue.add_after(name, _HOUSEKEEPING_SECONDS)
        elif self._finish_leaving(name):
            self._look(node, state)

    def _look(self, node: JsonObject, state: EvictionState) -> None:
        name, now = meta(node)["name"], self._api.clock.monotonic()
        usage = usage_of_node(node)
        signals = usage.signals(self._usage.get(name, EMPTY).values())
        conditions, threshold = state.look(signals, now)
        self._report(node, conditions)
        if self._evict_above_limit(name):
            return
        if threshold is not None and self._relieve(node, usage, threshold):
            return
        if state.at_rest:
            # The next look would see the same, until something is used that was not.
            del self._states[name]
        else:
            self.queue.add_after(name, _HOUSEKEEPING_SECONDS)

    def _evict_above_limit(self, node_name: str) -> bool:
        """Let a pod end that has written more than it may; whether there is one."""
        for pod in self._active(node_name):
            used = self._usage.get(node_name, EMPTY).get(meta(pod)["uid"], EMPTY)
            message = exceeded_limit(pod, used)
            if message is not None:
                self._evict(node_name, pod, _HARD_GRACE_SECONDS, message, for_node=False)
                return True
        return False

    def _relieve(self, node: JsonObject, usage: NodeUsage, threshold: Threshold) -> bool:
        """Get some of what is short; whether a pod is evicted for it."""
        resource, name = RESOURCE_OF[threshold.signal], meta(node)["name"]
        text = f"Attempting to reclaim {resource}"
        self._events.record(node, "EvictionThresholdMet", text, WARNING)
        for part in _reclaimable(threshold.signal, usage):
            if not usage.system.get(part):
                continue
            node = self._reclaim(name, part)
            usage = usage_of_node(node)
            signals = usage.signals(self._usage.get(name, EMPTY).values())
            if not threshold.is_met(*signals[threshold.signal], until_reclaimed=True):
                return False
        parts = usage.pod_parts(threshold.signal) if resource not in {"memory", "pids"} else ()
        candidates = {meta(pod)["uid"]: pod for pod in self._active(name)}
        order = ranked(
            [self._candidate(name, pod) for pod in candidates.values()],
            threshold.signal,
            parts or ((resource,) if resource in {"memory", "pids"} else ()),
        )
        if not order:
            return False
        signals = usage.signals(self._usage.get(name, EMPTY).values())
        pod = candidates[order[0].name]
        message = eviction_message(pod, order[0], threshold, signals[threshold.signal])
        grace = self._grace_seconds(pod, threshold)
        self._evict(name, pod, grace, message, for_node=True)
        return True

    def _active(self, node_name: str) -> list[JsonObject]:
        entries = self._api.store.collection("pods").on_node(node_name)
        pods = [entry.obj for entry in entries]
        return [pod for pod in pods if pod["status"].get("startTime") and not is_finished(pod)]

    def _candidate(self, node_name: str, pod: JsonObject) -> EvictionCandidate:
        uid = meta(pod)["uid"]
        return EvictionCandidate(
            uid,
            pod["spec"].get("priority") or 0,
            self._usage.get(node_name, EMPTY).get(uid, EMPTY),
            requests_of(pod),
            is_static(pod),
            pod["status"].get("qosClass", "BestEffort"),
        )

    def _grace_seconds(self, pod: JsonObject, threshold: Threshold) -> float:
        """The grace period of a pod when a threshold is met."""
        if threshold.hard:
            return _HARD_GRACE_SECONDS
        own = pod["spec"].get("terminationGracePeriodSeconds", 30)
        return float(min(own, self._configuration.max_pod_grace_seconds))

    def _evict(
        self, node_name: str, pod: JsonObject, grace: float, message: str, *, for_node: bool
    ) -> None:
        """Let a pod end within some seconds."""
        self._events.record(pod, "Evicted", message, WARNING)
        seconds = min(grace, self._lifecycles.of(pod).stop_seconds)
        until = self._api.clock.monotonic() + seconds
        self._leaving[node_name] = _Leaving(key_of(pod), until, message, for_node)
        self.queue.add_after(node_name, seconds)

    def _finish_leaving(self, node_name: str) -> bool:
        """End the pod that is being evicted; whether none is, any more."""
        leaving = self._leaving.get(node_name)
        if leaving is None:
            return True
        if self._api.clock.monotonic() < leaving.until:
            return False
        del self._leaving[node_name]
        pod = self._api.find("pods", *leaving.key)
        if pod is not None and not is_finished(pod):
            self._api.modify(
                self._pods,
                leaving.key,
                lambda obj: self._evicted(obj, leaving),
                owned_under="status",
            )
        return True

    def _evicted(self, pod: JsonObject, leaving: _Leaving) -> JsonObject:
        now, message = timestamp(self._api.now()), leaving.message
        failed = pod_status.failed(pod, now, "Evicted", message)
        return pod_status.disrupted(failed, now, message) if leaving.for_node else failed

    def _reclaim(self, node_name: str, part: str) -> JsonObject:
        """The node without its dead containers, or without unused images."""
        path = ("metadata", "annotations", USAGE_ANNOTATION)

        def without(node: JsonObject) -> JsonObject:
            text = meta(node)["annotations"][USAGE_ANNOTATION]
            kept = [each for each in text.split(",") if each.partition("=")[0].strip() != part]
            return with_value(node, path, ",".join(kept))

        return self._api.modify(self._nodes, ("", node_name), without).obj

    def _report(self, node: JsonObject, true: frozenset[str]) -> None:
        """Write the conditions of a node that have changed."""
        now, name = timestamp(self._api.now()), meta(node)["name"]
        conditions = []
        for each in node["status"].get("conditions") or ():
            condition, texts = each, CONDITION_TEXTS.get(each["type"])
            status = "True" if each["type"] in true else "False"
            if texts is not None and each["status"] not in {status, "Unknown"}:
                reason, message = texts[status]
                condition = {
                    **each,
                    "status": status,
                    "reason": reason,
                    "message": message,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                event = reason.replace("Kubelet", "Node", 1)
                self._events.record(node, event, f"Node {name} status is now: {event}")
            conditions.append(condition)
        if conditions != (node["status"].get("conditions") or []):
            self._api.modify(
                self._nodes,
                ("", name),
                lambda obj: with_value(obj, ("status", "conditions"), conditions),
                owned_under="status",
            )

    def _kill_if_out_of_memory(self, node: JsonObject) -> None:
        """Kill a process, as the kernel does when more memory is used than there is."""
        name, usage = meta(node)["name"], usage_of_node(node)
        running = self._usage.get(name, {})
        used = usage.system.get("memory", 0) + sum(p.get("memory", 0) for p in running.values())
        if used <= usage.memory:
            return
        pods = {meta(pod)["uid"]: pod for pod in self._active(name)}
        candidates = [self._candidate(name, pod) for uid, pod in pods.items() if uid in running]
        victim = oom_victim(candidates, usage.memory)
        if victim is None:
            return
        pod = pods[victim.name]
        container = pod["spec"]["containers"][0]["name"]
        text = f"System OOM encountered, victim process: {container}, pod: {meta(pod)['name']}"
        self._events.record(node, "SystemOOM", text, WARNING)
        path = ("metadata", "annotations", END_NOW_ANNOTATION)
        self._api.modify(self._pods, key_of(pod), lambda obj: with_value(obj, path, OOM_KILLED))


def _reclaimable(signal: str, usage: NodeUsage) -> tuple[str, ...]:
    """The parts of the node itself that may go before pods do, in order."""
    if signal == MEMORY or RESOURCE_OF[signal] == "pids":
        return ()
    if not usage.has_imagefs or (usage.split and not signal.startswith("imagefs")):
        return (DEAD, UNUSED_IMAGES) if not usage.has_imagefs else (DEAD,)
    return (UNUSED_IMAGES,) if signal.startswith(IMAGEFS.partition(".")[0]) else (DEAD,)


def eviction_message(
    pod: JsonObject, candidate: EvictionCandidate, threshold: Threshold, observed: Observation
) -> str:
    """The message of an evicted pod: what was low, how low, which containers were above requests.

    What a pod uses counts as used by its containers in equal parts.
    """
    resource = RESOURCE_OF[threshold.signal]
    wanted, available = threshold.amount.of(observed.capacity), observed.available
    message = (
        f"The node was low on resource: {resource}. Threshold quantity: "
        f"{binary_quantity(wanted)}, available: {binary_quantity(available)}. "
    )
    parts = {"memory": ("memory",), "ephemeral-storage": ("logs", "writable")}.get(resource, ())
    containers = pod["spec"]["containers"]
    used = candidate.used(parts) // len(containers)
    for container in containers:
        request = pick(container, ("resources", "requests", resource)) or "0"
        if used > resource_amount(resource, request):
            message += (
                f"Container {container['name']} was using {binary_quantity(used)}, "
                f"request is {request}, has larger consumption of {resource}. "
            )
    return message


def exceeded_limit(pod: JsonObject, used: Mapping[str, int]) -> str | None:
    """The limit that a pod with this usage exceeds, in the kubelet's words, or None."""
    return next(_exceeded(pod, used), None)


def _exceeded(pod: JsonObject, used: Mapping[str, int]) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or ():
        limit = pick(volume, ("emptyDir", "sizeLimit"))
        on_disk = (volume.get("emptyDir") or {}).get("medium") != "Memory"
        if limit is not None and on_disk and used.get(VOLUME + volume["name"], 0) > _bytes(limit):
            yield (f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}". ')
    containers = pod["spec"]["containers"]
    limits = [pick(each, _LIMIT) for each in containers]
    total = sum(_bytes(limit) for limit in limits if limit is not None)
    written = sum(used.get(part, 0) for part in ("logs", "writable", "volumes"))
    if None not in limits and written > total:
        yield (
            "Pod ephemeral local storage usage exceeds the total limit of containers "
            f"{binary_quantity(total)}. "
        )
    # What a pod writes counts as written by its containers in equal parts.
    share = sum(used.get(part, 0) for part in ("logs", "writable")) // len(containers)
    for container, limit in zip(containers, limits, strict=True):
        if limit is not None and share > _bytes(limit):
            name = container["name"]
            yield f'Container {name} exceeded its local ephemeral storage limit "{limit}". '


def _bytes(quantity: object) -> int:
    return resource_amount(_STORAGE, str(quantity))


_ORDER: Final = (
    MEMORY,
    IMAGEFS,
    IMAGEFS_INODES,
    CONTAINERFS,
    CONTAINERFS_INODES,
    NODEFS,
    NODEFS_INODES,
    PIDS,
)
"""The order in which signals are dealt with: memory before disk."""


@dataclass(slots=True)
class EvictionState:
    """The state of one node."""

    configuration: KubeletConfiguration
    first_met: dict[Threshold, float] = field(default_factory=dict)
    last_seen: dict[str, float] = field(default_factory=dict)
    """Condition → when a threshold of it was last met, monotonic."""
    acting: tuple[Threshold, ...] = ()
    """Thresholds that were dealt with at the last look: to be reclaimed beyond."""

    def look(
        self, signals: Mapping[str, Observation], now: float
    ) -> tuple[frozenset[str], Threshold | None]:
        """(conditions that hold, the threshold to deal with) at a look."""
        met = [
            each
            for each in self.configuration.thresholds
            if _is_met(each, signals, until_reclaimed=each in self.acting)
        ]
        self.first_met = {each: self.first_met.get(each, now) for each in met}
        for each in met:
            self.last_seen[CONDITION_OF[each.signal]] = now
        period = self.configuration.transition_seconds
        # What is met now holds, even with a transition period of nothing.
        self.last_seen = {
            condition: since
            for condition, since in self.last_seen.items()
            if since == now or now - since < period
        }
        due = [each for each in met if now - self.first_met[each] >= (each.grace_seconds or 0.0)]
        self.acting = tuple(due)
        # The sort is stable: of one signal, the hard threshold comes first.
        due.sort(key=lambda each: (_ORDER.index(each.signal), not each.hard))
        return frozenset(self.last_seen), due[0] if due else None

    @property
    def at_rest(self) -> bool:
        """Whether nothing is met and no condition holds."""
        return not self.first_met and not self.last_seen


def _is_met(
    threshold: Threshold, signals: Mapping[str, Observation], *, until_reclaimed: bool
) -> bool:
    observed = signals.get(threshold.signal)
    return observed is not None and threshold.is_met(*observed, until_reclaimed=until_reclaimed)


_MIN_CRITICAL_PRIORITY: Final = 2_000_000_000
"""Priority from which a pod is critical: that of system-cluster-critical."""
_GUARANTEED_SCORE: Final = -997
"""The oom_score_adj of a Guaranteed pod's containers, which the kernel kills last."""
_BEST_EFFORT_SCORE: Final = 1000
"""The oom_score_adj of a BestEffort pod's containers, which the kernel kills first."""
_MIN_BURSTABLE_SCORE: Final = 3
"""The lowest oom_score_adj of a Burstable pod's containers: one above what a Guaranteed pod could
get with its own sandbox, since v1.30."""
_MAX_BURSTABLE_SCORE: Final = 999
"""The highest oom_score_adj of a Burstable pod's containers."""
MIN_NODE_CRITICAL_PRIORITY: Final = 2_000_001_000
"""Priority of system-node-critical, whose pods the kernel kills last."""


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A running pod: what it uses, what it asks for, and how much it matters."""

    name: str
    priority: int = 0
    usage: Mapping[str, int] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    """With overhead."""
    static: bool = False
    qos: str = "BestEffort"

    @property
    def critical(self) -> bool:
        """Whether the kubelet evicts it in no case (`IsCriticalPod`)."""
        return self.static or self.priority >= _MIN_CRITICAL_PRIORITY

    def used(self, parts: Iterable[str]) -> int:
        """The sum of these parts of its usage."""
        return sum(self.usage.get(part, 0) for part in parts)


def ranked(
    candidates: Iterable[EvictionCandidate], signal: str, parts: tuple[str, ...]
) -> list[EvictionCandidate]:
    """The pods that may be evicted, first to go first; `parts` of their usage count.

    Of memory and storage: those above their request first, then by priority, then by how much
    they are above. Processes and inodes have no requests: by priority, then by usage.
    """
    resource = RESOURCE_OF[signal]

    def order(pod: EvictionCandidate) -> tuple[bool, int, int]:
        used = pod.used(parts)
        if resource in {"pids", "inodes"}:
            return False, pod.priority, -used
        above = used - pod.requests.get(resource, 0)
        return above <= 0, pod.priority, -above

    return sorted((pod for pod in candidates if not pod.critical), key=order)


def oom_score_adjust(pod: EvictionCandidate, memory_request: int, capacity: int) -> int:
    """`oom_score_adj` of a container of the pod that asks for so much memory."""
    if pod.static or pod.priority >= MIN_NODE_CRITICAL_PRIORITY or pod.qos == "Guaranteed":
        return _GUARANTEED_SCORE
    if pod.qos == "BestEffort":
        return _BEST_EFFORT_SCORE
    score = 1000 - (1000 * memory_request) // capacity
    return min(max(_MIN_BURSTABLE_SCORE, score), _MAX_BURSTABLE_SCORE)


def oom_victim(candidates: Iterable[EvictionCandidate], capacity: int) -> EvictionCandidate | None:
    """The pod whose process the kernel kills: the largest share of memory, adjusted."""

    def score(pod: EvictionCandidate) -> int:
        request = pod.requests.get("memory", 0)
        share = 1000 * pod.usage.get("memory", 0) // max(1, capacity)
        return share + oom_score_adjust(pod, request, capacity)

    return max((pod for pod in candidates if pod.usage.get("memory", 0)), key=score, default=None)
