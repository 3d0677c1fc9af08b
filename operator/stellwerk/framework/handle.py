"""The services that the scheduler offers to plugins, bound to one profile.

`app` and `decide` make the services. Plugins are made before the framework, which registers itself
by `serve`. Invariant: a handle serves one profile for as long as its framework lives.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Protocol, TypeAlias, runtime_checkable

from typing_extensions import override

from stellwerk.framework.extension_points import ADMITS_VICTIMS, ORDERS_VICTIMS, PluginsByPoint
from stellwerk.framework.interface import APICall
from stellwerk.framework.metrics_recorder import UNMEASURED, MetricsRecorder
from stellwerk.framework.plugin_isolation import UNLIMITED, PluginGuard
from stellwerk.framework.services import (
    ClusterClient,
    DeviceCounts,
    EvictedTogether,
    FilterRunner,
    GroupClaims,
    Handle,
    Nominations,
    NumberSource,
    NumberSources,
    ObjectStore,
    PeriodicTask,
    PluginCounter,
    PluginGauge,
    PluginHistogram,
    PluginMetrics,
    PodGroups,
    Recorder,
    VolumeCounts,
    WaitingPod,
)
from stellwerk.framework.types import CycleState
from stellwerk.framework.victim_order import KUBE_SCHEDULERS_ORDER, VictimOrder
from stellwerk.framework.worker import NoWorker, Worker
from stellwerk.models.pod import PodInfo
from stellwerk.profiles.spec.plugin_description import ExtensionPoint, PluginKind
from stellwerk.snapshot.columns import Mask
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.compatibility import AS_RECORDED, AUTO, Compatibility

STANDING_CLOCK: Final = VirtualClock()
"""The wall clock where none is given: plugins that run alone."""


class RandomNumbers(Protocol):
    """A seeded generator (`random.Random` is one)."""

    def randrange(self, stop: int, /) -> int: ...


@runtime_checkable
class RecordsMoments(Protocol):
    """A generator that also keeps, or repeats, the times that decisions read."""

    def moment(self, now: Callable[[], datetime]) -> int:
        """Return the wall-clock time in milliseconds since the epoch."""
        ...


class WaitingPods(Protocol):
    """The pods that Permit plugins hold."""

    def all(self) -> Iterable[WaitingPod]: ...

    def get_waiting(self, uid: str) -> WaitingPod | None: ...


class WaitUntil(Protocol):
    """Waits for a predicate that watch events make true."""

    async def __call__(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool: ...


class ServedFramework(Protocol):
    """The framework that a handle serves, as far as plugins ask it."""

    @property
    def plugins(self) -> PluginsByPoint: ...

    @property
    def filters(self) -> FilterRunner: ...

    def feasible(self, pod: PodInfo) -> Mask: ...


def milliseconds(now: Callable[[], datetime]) -> int:
    """Return a moment in milliseconds since the epoch, rounded down."""
    return math.floor(now().timestamp() * 1000)


MetricsRecorderOf: TypeAlias = Callable[[str, PluginsByPoint], MetricsRecorder]
"""(schedulerName, its plugins) → what measures them."""


def _left_undone(_: APICall) -> None:
    """There is no cluster to write to."""


def _unmeasured(_: str, __: PluginsByPoint) -> MetricsRecorder:
    return UNMEASURED


class VolumesUncounted(VolumeCounts):
    """Counts nothing: for decisions outside the scheduler."""

    @override
    def assumed(self, operation: str) -> None:
        pass

    @override
    def failed(self, stage: str) -> None:
        pass


class NoPodGroups(PodGroups):
    """No pod is a member of any group: for decisions on pods alone."""

    @override
    def why_gated(self, pod: PodInfo, *, as_upstream: str = "") -> str:
        return ""

    @override
    def lacks_placement(self, pod: PodInfo) -> bool:
        return False

    @override
    def evicted_with(self, pod: PodInfo) -> EvictedTogether | None:
        return None

    @override
    def claims_with(self, pod: PodInfo) -> GroupClaims | None:
        return None


class NothingRead(NumberSources):
    """Reads no source: for decisions outside the scheduler, which see what was read before."""

    @override
    def follow(self, source: NumberSource) -> None:
        pass

    @override
    def repeat(self, task: PeriodicTask) -> None:
        pass

    @override
    def watch(self, kind: PluginKind) -> None:
        pass

    @override
    def is_synced(self, kind: str) -> bool:
        return True


class DevicesUncounted(DeviceCounts):
    """Counts nothing: for decisions outside the scheduler."""

    @override
    def claim_made(self, status: str) -> None:
        pass

    @override
    def awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        pass


class NothingMeasured(PluginMetrics, PluginCounter, PluginGauge, PluginHistogram):
    """Shows nothing: for decisions outside the scheduler."""

    @override
    def counter(self, name: str, text: str, *labels: str) -> PluginCounter:
        return self

    @override
    def gauge(self, name: str, text: str, *labels: str) -> PluginGauge:
        return self

    @override
    def histogram(
        self, name: str, text: str, *labels: str, buckets: Sequence[float]
    ) -> PluginHistogram:
        return self

    @override
    def inc(self, *values: str, amount: float = 1.0) -> None:
        pass

    @override
    def set(self, value: float, *values: str) -> None:
        pass

    @override
    def remove(self, *values: str) -> None:
        pass

    @override
    def observe(self, value: float, *values: str) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Services:
    """The services that all profiles share."""

    snapshot: Snapshot
    objects: ObjectStore
    nominations: Nominations
    client: ClusterClient
    recorder: Recorder
    now_seconds: Callable[[], float]
    random: RandomNumbers
    activate: Callable[[Iterable[PodInfo]], None]
    waiting_pods: WaitingPods
    wait_until: WaitUntil
    pods_on: Callable[[str], Mapping[str, PodInfo]] | None = None
    """The pods on a node by uid, by now; None: nothing comes between two snapshots."""
    one_at_a_time: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    """By key, a context for one task at a time; by default for all at once."""
    preempting: AbstractSet[str] = frozenset()
    """Uids of the pods that still have victims to be deleted."""
    guard: PluginGuard = UNLIMITED
    """Limits the time of plugins that do not come with Stellwerk."""
    now: Callable[[], datetime] = STANDING_CLOCK.now
    """The wall clock, for what is compared with times in objects."""
    write_later: Callable[[APICall], None] = _left_undone
    """Carries out what a plugin does not wait for; without a cluster, nothing does."""
    worker: Worker = field(default_factory=NoWorker)
    """Computes what a plugin does not wait for."""
    metrics_recorder: MetricsRecorderOf = _unmeasured
    """Makes the recorder of a profile's metrics."""
    volume_counts: VolumeCounts = field(default_factory=VolumesUncounted)
    pod_groups: PodGroups = field(default_factory=NoPodGroups)
    device_counts: DeviceCounts = field(default_factory=DevicesUncounted)
    sources: NumberSources = field(default_factory=NothingRead)
    metrics: PluginMetrics = field(default_factory=NothingMeasured)
    compatibility: Compatibility = AS_RECORDED
    """The meaning of a profile's `compatibility: auto`."""


class ProfileHandle(Handle):
    """The Handle of one profile's plugins."""

    def __init__(self, services: Services, profile_name: str, setting: str = AUTO) -> None:
        """`setting`: the profile's `compatibility`."""
        self._services = services
        self.profile_name = profile_name
        self.compatibility = services.compatibility.of(setting)
        self.snapshot = services.snapshot
        self.objects = services.objects
        self.nominations = services.nominations
        self.client = services.client
        self.recorder = services.recorder
        self.volume_counts = services.volume_counts
        self.device_counts = services.device_counts
        self.preempting = services.preempting
        self.pod_groups = services.pod_groups
        self.worker = services.worker
        self.sources = services.sources
        self.metrics = services.metrics
        self.guard = services.guard
        self._framework: ServedFramework | None = None

    def serve(self, framework: ServedFramework) -> None:
        """Name the framework whose plugins hold this handle."""
        self._framework = framework

    def _served(self) -> ServedFramework:
        """The framework of the profile.

        Raises:
            LookupError: a plugin asked while it was being made.
        """
        if self._framework is None:
            message = "the framework is not assembled yet"
            raise LookupError(message)
        return self._framework

    @override
    def now_seconds(self) -> float:
        return self._services.now_seconds()

    @override
    def now(self) -> datetime:
        return self._services.now()

    @override
    def moment(self, state: CycleState) -> float:
        if state.moment_seconds is None:
            random, now = self._services.random, self._services.now
            moment = random.moment(now) if isinstance(random, RecordsMoments) else milliseconds(now)
            state.moment_seconds = moment / 1000
        return state.moment_seconds

    @override
    def victim_order(self, state: CycleState) -> VictimOrder:
        post_filters = self._served().plugins.get(ExtensionPoint.POST_FILTER, ())
        for plugin in ORDERS_VICTIMS.among(post_filters):
            order = plugin.victim_order()
            if order.min_run_seconds:
                return replace(order, now_seconds=self.moment(state))
            return order
        return KUBE_SCHEDULERS_ORDER

    @override
    def admits_victim(self, namespace: str, victim: PodInfo) -> bool:
        post_filters = self._served().plugins.get(ExtensionPoint.POST_FILTER, ())
        judges = ADMITS_VICTIMS.among(post_filters)
        return all(plugin.admits_victim(namespace, victim) for plugin in judges)

    @override
    def pods_on(self, node_name: str) -> Mapping[str, PodInfo]:
        if self._services.pods_on is not None:
            return self._services.pods_on(node_name)
        row = self.snapshot.row_of.get(node_name)
        return {} if row is None else self.snapshot.pods[row]

    @override
    def random(self, below: int) -> int:
        return self._services.random.randrange(below)

    @override
    def activate(self, pods: Iterable[PodInfo]) -> None:
        self._services.activate(pods)

    @override
    def waiting_pods(self) -> Iterable[WaitingPod]:
        return self._services.waiting_pods.all()

    @override
    def waiting_pod(self, uid: str) -> WaitingPod | None:
        return self._services.waiting_pods.get_waiting(uid)

    @property
    @override
    def filters(self) -> FilterRunner:
        return self._served().filters

    @override
    def feasible(self, pod: PodInfo) -> Mask:
        return self._served().feasible(pod)

    @override
    def write_later(self, api_call: APICall) -> None:
        self._services.write_later(api_call)

    @override
    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        return await self._services.wait_until(predicate, timeout_seconds)

    @override
    def one_at_a_time(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._services.one_at_a_time(key)
