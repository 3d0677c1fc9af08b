"""The World as it was before each binding of another scheduler: it trails the live one.

Event handlers tell a `Trail` every change of nodes and bound pods; the observer takes them, in
order and in its own time, to a copy of the columns (`TrailingWorld`). A binding is compared right
before it is applied there, on the state without the pod, and one second after it was seen, because
the bindings of that second say whether it can be compared at all. Objects that are neither nodes
nor pods are those of the live World. Invariant: what is kept is bounded (`MAX_CHANGES`); beyond it
the copy is made anew, and the bindings that were not compared yet are counted as such.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Any, Final, TypeAlias

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.queued_pod import QueuedPod
from stellwerk.framework.handle import RandomNumbers
from stellwerk.framework.plugin_isolation import PluginGuard
from stellwerk.framework.services import NumberSources
from stellwerk.models.pod import PodInfo
from stellwerk.observing.comparison import BindingComparison, compare
from stellwerk.plugins.shared.pod_resource_claims import claim_names
from stellwerk.plugins.shared.volume_claims import is_fully_bound
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk.world.profiles import RecordedRandom, ServedProfile
from stellwerk.world.world import World, offline_queue, profile_on
from stellwerk_kube.clock import parse_moment
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import NodeInfo
from stellwerk_kube.resource_claim import is_allocated

AROUND_SECONDS: Final = 1.0
"""Bindings of the same scheduler that were seen within this time of another one may have been
decided in another order. kube-scheduler binds beside its scheduling loop, and a binding takes
milliseconds, or with volumes up to seconds."""
HANDLER_SECONDS: Final = 0.1
"""kube-scheduler handles changes of bound pods and of waiting ones beside each other: a pod that
left this time before another one came may still count when that one is decided."""
MAX_CHANGES: Final = 50_000
"""Changes that wait for the trailing copy: a burst of 10,000 bindings brings about 30,000. A change
holds 100 bytes and its object, which the cache usually holds as well. Beyond it the copy is made
anew."""
MAX_AROUND: Final = 200
"""Bindings before another one, and after it, that are looked at. Clusters see 100 a second, and
bindings that are further away were hardly decided in another order."""
MAX_STATES: Final = 6
"""States that are tried at most of each kind: with pods that have left, without bindings before,
with bindings after. Each costs a decision."""
STATES_SHARE: Final = 0.03
"""Share of a core that trying states may take. At 100 bindings a second with 100 others around each
they would take ten times as long as the comparisons themselves. This leaves 0.3 ms for each, so
that observing costs no more than serving."""
MAX_STATES_SECONDS: Final = 1.0
"""CPU time of that share that can be saved up, and spent at once."""
MAX_NODES_WITH_VICTIMS: Final = 1000
"""Nodes whose last eviction by preemption is remembered. Beyond it the oldest are forgotten."""
VICTIM_SECONDS: Final = 600.0
"""Time after an eviction for which a pod nominated to that node counts as its preemptor: victims
may take minutes to end."""

VICTIMS: Final = "victims were evicted for it"
AROUND: Final = "others of the same scheduler were bound within a second around it"
LEFT: Final = "pods were deleted or ended within a second before it"
LATE: Final = "it waited for more than a second, and others were bound within a second around it"
TOO_MANY: Final = "bindings came faster than they can be compared"
RELISTED: Final = "it was bound while the watch was away"
OPEN_CLAIMS: Final = "its volumes or devices were chosen together with the node"
EXTENDERS: Final = "the profile has extenders, which an observer does not ask"
FAILED: Final = "a plugin failed"
UNKNOWN_NODE: Final = "its node is not known here"

_PREEMPTED: Final = "PreemptionByScheduler"
"""The reason of the condition DisruptionTarget of a victim (kube-scheduler v1.36)."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of the other scheduler, as it was seen."""

    pod: PodInfo
    """With its node."""
    before: PodInfo
    """As it was seen last without a node."""
    profile_name: str
    """The schedulerName of the profile that observes it."""
    seen_seconds: float
    """Monotonic."""
    seen_at: datetime
    after_seconds: float | None
    """From when the pod could be scheduled until its binding was seen; None: not known."""
    incomparable: str = ""
    """The reason why it cannot be compared; empty: none is known."""
    late_seconds: float = 0.0
    """Time by which its creation was seen late: the other scheduler may have seen it before."""

    @property
    def since_seconds(self) -> float:
        """The monotonic time from which on it could be decided; minus infinity: not known.

        A watch delivers the changes of pods in their order. What was seen before the pod came, the
        other scheduler has seen before it decided.
        """
        return -math.inf if self.after_seconds is None else self.seen_seconds - self.after_seconds


@dataclass(frozen=True, slots=True)
class Compared:
    """The outcome of one binding."""

    binding: Binding
    comparison: BindingComparison | None
    """None: nothing was decided."""
    incomparable: str = ""
    """The reason why it is not comparable; empty: the comparison holds."""


Reading: TypeAlias = tuple[PluginGuard, NumberSources]
"""(the limits on foreign plugins' time, the reader of numbers for plugins)."""
_Change: TypeAlias = tuple[Callable[..., object], tuple[Any, ...]]
"""A method of TrailingWorld, and its arguments."""


class Trail:
    """The changes that the trailing copy has not taken yet. Event handlers write it.

    They call it after the live cache has the change, and before the pod leaves the queue.
    """

    def __init__(self, live: World, numbers: Callable[[], RandomNumbers], reading: Reading) -> None:
        """Begin on the live World as it is; `numbers` makes a generator that breaks ties."""
        self._live = live
        self._numbers = numbers
        self._reading = reading
        self.is_relisting: Callable[[], bool] = lambda: False
        """Whether a later list of pods or nodes is being applied: bindings were missed."""
        self.on_dropped: Callable[[Binding], None] = lambda _: None
        """Called with each binding that will never be compared, because too much waits."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when there was no change, and is one."""
        self.changes: deque[Binding | _Change] = deque()
        self.pending: Counter[str] = Counter()
        """Bindings among the changes, by the schedulerName of the profile."""
        self.arrived: dict[str, float] = {}
        """Seconds by which their creation was seen late, by uid of pods that wait. Pods whose
        creation was not seen are left out."""
        self.open_claims: set[str] = set()
        """Uids of pods that wait, whose volumes or devices were not chosen when they came."""
        self.copy = TrailingWorld(live, numbers(), reading)

    # --- what event handlers call ---------------------------------------------------------------

    def is_observed(self, uid: str) -> bool:
        """Whether a pod is in the queue, and waits for another scheduler."""
        entry = self._live.queue.entries.get(uid)
        return entry is not None and entry.is_observed

    def pod_waits(self, pod: PodInfo, *, is_new: bool) -> bool:
        """A pod without a node has come, or has changed; returns whether it is observed."""
        if not self.is_observed(pod.uid):
            return False
        if is_new and not self.is_relisting():
            self.arrived[pod.uid] = _late_seconds(pod, self._live.clock.now())
        if (pod.volumes or pod.spec.resource_claims) and has_open_claims(self._live, pod):
            self.open_claims.add(pod.uid)
        if pod.nominated_node_name or self.copy.nominator.by_node:
            self._keep((TrailingWorld.nominate, (pod,)))
        return True

    def pod_bound(self, pod: PodInfo, entry: QueuedPod | None) -> None:
        """A pod is on its node, or counts otherwise there; `entry`: it is in the queue.

        A binding of the other scheduler is the end of an entry that is observed.
        """
        if entry is None or not entry.is_observed:
            self._keep((TrailingWorld.set_pod, (pod,)))
            return
        clock, uid = self._live.clock, pod.uid
        now_seconds, since = clock.monotonic(), entry.initial_attempt_at
        late_seconds = self.arrived.get(uid)
        is_measured = late_seconds is not None and since is not None
        why = RELISTED if self.is_relisting() else ""
        if uid in self.open_claims:
            why = why or OPEN_CLAIMS
        self._forget(uid)
        binding = Binding(
            pod,
            entry.newest,
            entry.profile_name,
            now_seconds,
            clock.now(),
            now_seconds - since if is_measured and since is not None else None,
            why,
            late_seconds or 0.0,
        )
        self._keep(binding)

    def pod_gone(self, uid: str, obj: JsonObject) -> None:
        """A pod was deleted, or has finished."""
        self._forget(uid)
        spec, status = obj.get("spec"), obj.get("status")
        node_name = spec.get("nodeName") if isinstance(spec, dict) else None
        conditions = status.get("conditions") if isinstance(status, dict) else None
        if isinstance(node_name, str) and node_name and _is_victim(conditions):
            seconds = self._live.clock.monotonic()
            self._keep((TrailingWorld.victim_left, (node_name, seconds)))
        self._keep((TrailingWorld.remove_pod, (uid, self._live.clock.monotonic())))

    def node(self, node: NodeInfo) -> None:
        """A node has come, or has changed."""
        self._keep((TrailingWorld.set_node, (node,)))

    def node_gone(self, name: str, uid: str) -> None:
        """A node was deleted."""
        self._keep((TrailingWorld.remove_node, (name, uid)))

    def namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """A namespace has these labels now; None: it is gone."""
        self._keep((TrailingWorld.set_namespace, (name, labels)))

    def _forget(self, uid: str) -> None:
        self.arrived.pop(uid, None)
        self.open_claims.discard(uid)

    def _keep(self, change: Binding | _Change) -> None:
        """Keep a change for the copy, or make the copy anew if it is too far behind to follow."""
        if not self.changes:
            self.on_change()
        if len(self.changes) < MAX_CHANGES:
            self.changes.append(change)
            if isinstance(change, Binding):
                self.pending[change.profile_name] += 1
            return
        # The live World has the change already.
        dropped = [each for each in (*self.changes, change) if isinstance(each, Binding)]
        self.changes.clear()
        self.pending.clear()
        self.copy = TrailingWorld(self._live, self._numbers(), self._reading)
        for each in dropped:
            self.on_dropped(each)

    # --- what the observer calls ----------------------------------------------------------------

    @property
    def due_seconds(self) -> float | None:
        """The monotonic time at which the next change can be taken; None: there is none."""
        if not self.changes:
            return None
        head = self.changes[0]
        return head.seen_seconds + AROUND_SECONDS if isinstance(head, Binding) else 0.0

    def has_binding(self, uid: str) -> bool:
        """Whether the binding of a pod is among the changes that wait."""
        return any(isinstance(each, Binding) and each.pod.uid == uid for each in self.changes)

    def take(
        self,
        profile: Callable[[str], ServedProfile | None],
        beside: "Callable[[TrailingWorld, Binding, BindingComparison], None]" = lambda *_: None,
    ) -> Generator[None, None, Compared | None]:
        """Take the first change to the copy, in steps; returns what came of a binding.

        `profile` gives the profile that observes a schedulerName; None: none does any more, and
        the binding is not compared. `beside` is called with a comparison, while the copy is as it
        was before the binding.

        Raises:
            PluginFailure: a plugin raised; the change was taken all the same.
            ProfileError: a plugin that was made once refuses to be made again.
        """
        change, copy = self.changes.popleft(), self.copy
        if not isinstance(change, Binding):
            act, given = change
            act(copy, *given)
            return None
        self.pending[change.profile_name] -= 1
        served = profile(change.profile_name)
        if served is None:
            copy.bound(change)
            return None
        try:
            found = yield from copy.compared(change, served.loaded, self._later(change))
            if found.comparison is not None:
                beside(copy, change, found.comparison)
            return found
        finally:
            copy.bound(change)

    def _later(self, binding: Binding) -> Iterator[PodInfo]:
        """The pods that the same scheduler bound within AROUND_SECONDS after a binding.

        Those that came after it are left out: they were decided after it.
        """
        for each in self.changes:
            if isinstance(each, Binding):
                if each.seen_seconds > binding.seen_seconds + AROUND_SECONDS:
                    return
                is_earlier = each.since_seconds <= binding.seen_seconds
                if each.profile_name == binding.profile_name and is_earlier:
                    yield each.pod


class TrailingWorld:
    """A copy of the live World's nodes and pods, with plugin instances of its own."""

    def __init__(self, live: World, numbers: RandomNumbers, reading: Reading) -> None:
        """Copy the World as it is, without what is assumed in it: that is not bound yet."""
        self._live = live
        self._guard, self._sources = reading
        cache = live.cache.fork()
        for uid in list(cache.assumed_pods):
            cache.forget_pod(uid)
        self.nominator = Nominator()
        self.world = replace(
            live,
            cache=cache,
            nominator=self.nominator,
            queue=offline_queue(live.profiles, self.nominator),
            random=RecordedRandom(numbers),
            preempting=set(),
        )
        for entry in live.queue.entries.values():
            if entry.is_observed and entry.newest.nominated_node_name:
                self.nominator.add(entry.newest)
        self._profiles: dict[str, ServedProfile] = {}
        """By name of the object: that of an observed schedulerName, and shadows of it."""
        self._recent: deque[Binding] = deque()
        """Bindings of the last AROUND_SECONDS, as they were applied."""
        self._left: deque[tuple[PodInfo, float]] = deque(maxlen=MAX_AROUND)
        """Pods that have left their nodes, with the monotonic time at which it was seen; those of
        more than AROUND_SECONDS ago are dropped with the next binding."""
        self._credit_seconds = MAX_STATES_SECONDS
        """CPU time that is left for trying states; below 0: none."""
        self._credited_at_seconds = live.clock.monotonic()
        self._victims_left: dict[str, float] = {}
        """The monotonic time of the last eviction by preemption, by name of the node."""

    # --- changes --------------------------------------------------------------------------------

    def nominate(self, pod: PodInfo) -> None:
        """Follow the status of an observed pod that waits."""
        self.nominator.nominate(pod, pod.nominated_node_name)

    def set_pod(self, pod: PodInfo) -> None:
        """Count a pod on its node."""
        self.nominator.remove(pod.uid)
        if pod.terminating and _is_victim(pod.conditions):
            self.victim_left(pod.node_name, self._live.clock.monotonic())
        self.world.cache.set_pod(pod)

    def remove_pod(self, uid: str, seconds: float) -> None:
        """Count a pod no longer; `seconds`: the monotonic time at which that was seen."""
        self.nominator.remove(uid)
        counted = self.world.cache.pod(uid)
        if counted is not None:
            self._left.append((counted, seconds))
        self.world.cache.remove_pod(uid)

    def set_node(self, node: NodeInfo) -> None:
        """Add a node, or change it."""
        self.world.cache.set_node(node)

    def remove_node(self, name: str, uid: str) -> None:
        """Remove a node."""
        self.world.cache.remove_node(name, uid)

    def set_namespace(self, name: str, labels: Mapping[str, str] | None) -> None:
        """Set a namespace's labels; None: it is gone."""
        self.world.cache.set_namespace(name, labels)

    def victim_left(self, node_name: str, seconds: float) -> None:
        """Note that a scheduler evicted a pod from a node for another one."""
        self._victims_left.pop(node_name, None)
        self._victims_left[node_name] = seconds
        if len(self._victims_left) > MAX_NODES_WITH_VICTIMS:
            del self._victims_left[next(iter(self._victims_left))]

    def bound(self, binding: Binding) -> None:
        """Count a pod on the node to which the other scheduler bound it."""
        self.set_pod(binding.pod)
        self._forget_before(binding.seen_seconds)
        self._recent.append(binding)

    def _forget_before(self, seconds: float) -> None:
        while self._recent and self._recent[0].seen_seconds < seconds - AROUND_SECONDS:
            self._recent.popleft()
        while self._left and self._left[0][1] < seconds - AROUND_SECONDS:
            self._left.popleft()

    # --- a binding ------------------------------------------------------------------------------

    def compared(  # noqa: PLR0911 one answer after the other
        self, binding: Binding, loaded: LoadedProfile, later: Iterator[PodInfo]
    ) -> Generator[None, None, Compared]:
        """Compare a binding on the state before it, in steps.

        `later`: the pods that the same scheduler bound in the second after it.

        Raises:
            PluginFailure: a plugin raised.
        """
        unknown = binding.incomparable or (VICTIMS if self._is_preemptor(binding) else "")
        if not unknown and self.world.cache.node(binding.pod.node_name) is None:
            unknown = UNKNOWN_NODE
        if unknown:
            return Compared(binding, None, unknown)
        node_name = binding.pod.node_name
        # Its nomination is the other scheduler's own choice, made before.
        pod = binding.before.with_nomination("") if binding.before.nominated_node_name else None
        pod = binding.before if pod is None else pod
        self.nominator.remove(pod.uid)
        self.world.cache.update_snapshot()
        profile = self.profile(loaded)
        found = compare(self.world, pod, profile, node_name)
        if found.result in {"equal", "sampled"}:
            return Compared(binding, found)
        if loaded.spec.extenders:
            return Compared(binding, found, EXTENDERS)
        before, after = self._before(binding), list(islice(later, MAX_AROUND))
        left_since_seconds = binding.since_seconds - HANDLER_SECONDS
        left = [each for each, seconds in reversed(self._left) if seconds >= left_since_seconds]
        if not (left or before or after):
            return Compared(binding, found)
        waited_seconds = (binding.after_seconds or 0.0) + binding.late_seconds
        if (before or after) and waited_seconds > AROUND_SECONDS:
            # Its decision lies anywhere in that time. At a slow API server, requests to bind
            # overtake one another by seconds, and no state within AROUND_SECONDS is the right one.
            return Compared(binding, found, LATE)
        if not self._has_credit():
            # This is no evidence of a difference, either.
            return Compared(binding, found, TOO_MANY)
        for reason, is_equal, around in (
            # kube-scheduler decides on a snapshot: a pod that leaves meanwhile is still in it.
            (LEFT, self._is_equal_with, left),
            (AROUND, self._is_equal_without, before),
            (AROUND, self._is_equal_with, after),
        ):
            yield
            began_seconds = time.thread_time()
            is_explained = is_equal(pod, node_name, profile, around)
            self._credit_seconds -= time.thread_time() - began_seconds
            if is_explained:
                return Compared(binding, found, reason)
        return Compared(binding, found)

    def _has_credit(self) -> bool:
        """Whether there is time left for trying states."""
        now_seconds = self._live.clock.monotonic()
        gained_seconds = STATES_SHARE * (now_seconds - self._credited_at_seconds)
        self._credit_seconds = min(MAX_STATES_SECONDS, self._credit_seconds + gained_seconds)
        self._credited_at_seconds = now_seconds
        return self._credit_seconds > 0

    def _is_preemptor(self, binding: Binding) -> bool:
        """Whether the other scheduler evicted pods from the node that it nominated the pod to."""
        nominated = binding.before.nominated_node_name
        left_at = self._victims_left.get(nominated) if nominated else None
        return left_at is not None and binding.seen_seconds - left_at < VICTIM_SECONDS

    def _before(self, binding: Binding) -> list[PodInfo]:
        """The pods that the same scheduler bound within AROUND_SECONDS before, the last one last.

        Those that were bound before the pod came are left out: they were decided before it. So are
        those that are gone by then, and all but the last MAX_AROUND.
        """
        cache = self.world.cache
        self._forget_before(binding.seen_seconds)
        same = (
            each.pod
            for each in islice(reversed(self._recent), MAX_AROUND)
            if each.profile_name == binding.profile_name
            and each.seen_seconds >= binding.since_seconds
            and cache.pod(each.pod.uid) is not None
        )
        return [*same][::-1]

    def _is_equal_without(
        self, pod: PodInfo, node_name: str, profile: ServedProfile, before: list[PodInfo]
    ) -> bool:
        """Whether the node is among the best without the last bindings, of some numbers of them.

        kube-scheduler counts a pod from its decision on, and bindings are seen in another order.
        """
        with self.world.trial() as trial:
            removed = 0
            for count in _some(len(before), MAX_STATES):
                trial.remove_pods(before[len(before) - count : len(before) - removed])
                removed = count
                if compare(self.world, pod, profile, node_name).result == "equal":
                    return True
        return False

    def _is_equal_with(
        self, pod: PodInfo, node_name: str, profile: ServedProfile, others: list[PodInfo]
    ) -> bool:
        """Whether the node is among the best with the first of some other pods, of some numbers."""
        cache, rows = self.world.cache, self.world.cache.snapshot.row_of
        others = [each for each in others if each.node_name in rows and cache.pod(each.uid) is None]
        with self.world.trial() as trial:
            added = 0
            for count in _some(len(others), MAX_STATES):
                for each in others[added:count]:
                    trial.add_pod(each, each.node_name)
                added = count
                if compare(self.world, pod, profile, node_name).result == "equal":
                    return True
        return False

    def profile(self, loaded: LoadedProfile) -> ServedProfile:
        """The profile with plugin instances on this copy.

        Raises:
            ProfileError: a plugin that was made once refuses to be made again.
        """
        known = self._profiles.get(loaded.name)
        if known is None or known.loaded is not loaded:
            known = profile_on(self.world, loaded, guard=self._guard, sources=self._sources)
            self._profiles[loaded.name] = known
        return known


def has_open_claims(world: World, pod: PodInfo) -> bool:
    """Whether volumes or devices of a pod are still to be chosen: a scheduler does it for a node.

    When its binding is seen, they are chosen, and nothing but their node is left to decide for.
    """
    objects = world.objects
    for volume in pod.volumes:
        if volume.claim_name:
            claim = objects.get("PersistentVolumeClaim", pod.namespace, volume.claim_name)
            if claim is None or not is_fully_bound(claim):
                return True
    if not pod.spec.resource_claims:
        return False
    names = claim_names(pod)
    claims = [objects.get("ResourceClaim", pod.namespace, name) for name in names]
    return not claims or any(claim is None or not is_allocated(claim) for claim in claims)


def _late_seconds(pod: PodInfo, now: datetime) -> float:
    """The time by which a pod's creation is seen late, at least; 0: it is not late, or not known.

    The API server's timestamp is in whole seconds. A clock that is ahead of the API server's by
    more than AROUND_SECONDS makes every pod late.
    """
    try:
        return max(0.0, (now - parse_moment(pod.created)).total_seconds() - 1.0)
    except ValueError:
        return 0.0


def _is_victim(conditions: object) -> bool:
    """Whether a pod's conditions say that a scheduler preempts it."""
    return isinstance(conditions, (list, tuple)) and any(
        isinstance(each, dict)
        and each.get("type") == "DisruptionTarget"
        and each.get("reason") == _PREEMPTED
        for each in conditions
    )


def _some(count: int, most: int) -> Iterator[int]:
    """Numbers from 1 to `count`, at most `most` of them, `count` among them.

    They are the closer to one another the smaller they are: at 40 bindings a second kube-scheduler
    v1.36 changes the order of neighbours, and hardly ever of more than four.
    """
    if count <= most:
        yield from range(1, count + 1)
        return
    for place in range(most):
        yield max(place + 1, round(count ** (place / (most - 1))))
