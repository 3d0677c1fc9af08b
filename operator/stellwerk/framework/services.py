"""Protocols of the state that plugins read and of the services that they use.

`backend`, `client` and `scheduler` implement them, `handle` bundles them for one profile.
Invariant: nothing here needs an event loop to be imported, and nothing gives a plugin the cache,
the queue or another plugin.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from stellwerk.framework.interface import APICall, PlacedPods
from stellwerk.framework.types import CycleState, Verdicts
from stellwerk.framework.victim_order import VictimOrder
from stellwerk.framework.worker import Worker
from stellwerk.models.object_reference import ObjectReference
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_claims import ClaimReference
from stellwerk.profiles.spec.plugin_description import PluginKind
from stellwerk.snapshot.columns import Changes, Mask
from stellwerk.snapshot.snapshot import NodeView, Snapshot
from stellwerk_kube.compatibility import Compatibility
from stellwerk_kube.json_values import JsonObject


class Recorder(Protocol):
    """Writes events; never blocks, never raises."""

    def event(
        self,
        regarding: ObjectReference,
        type_: str,
        reason: str,
        action: str,
        note: str,
        *,
        reporting_controller: str,
        related: ObjectReference | None = None,
    ) -> None: ...


class ClusterClient(Protocol):
    """The API server, for reading and writing; raises the errors of `stellwerk_kube.errors`."""

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> None: ...

    async def patch_pod_status(
        self, namespace: str, name: str, patch: Mapping[str, Any], *, urgent: bool = True
    ) -> None:
        """Apply a strategic merge patch; if not urgent, behind bindings and evictions."""
        ...

    async def delete_pod(self, namespace: str, name: str, uid: str) -> bool:
        """Delete exactly this pod; returns whether it is gone at once."""
        ...

    async def get(self, path: str) -> JsonObject: ...

    async def list(self, path: str, *, limit: int = 500) -> tuple[list[JsonObject], str]: ...

    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject: ...

    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject: ...

    async def delete(self, path: str, uid: str) -> None:
        """Delete exactly this object, which may have to wait for finalizers."""
        ...

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject: ...


class ObjectStore(Protocol):
    """Every other watched kind, as in the API, by kind, namespace and name.

    What VolumeBinding assumes stands in for the stored object until the API confirms or denies it.
    """

    def get(self, kind: str, namespace: str, name: str) -> JsonObject | None: ...

    def stored(self, kind: str, namespace: str, name: str) -> JsonObject | None:
        """Return the object as the API last showed it, whatever is assumed."""
        ...

    def list(self, kind: str, namespace: str | None = None) -> Iterable[JsonObject]: ...

    def list_by(self, kind: str, index: str, value: str) -> Iterable[JsonObject]:
        """Return the objects that one of the kind's indexes finds by a value."""
        ...

    def why_unseen(self, kind: str) -> str:
        """Return why further objects of a kind cannot be seen; empty: they can."""
        ...

    def changes(self, kind: str) -> Changes[tuple[str, str]]:
        """Return the log of changes of that kind, by namespace and name."""
        ...

    def assume(self, kind: str, obj: JsonObject) -> None:
        """Show an object that is about to be written.

        ValueError if it is not based on the stored one.
        """
        ...

    def restore(self, kind: str, obj: JsonObject) -> None:
        """Take an assumption back, unless the API has overtaken it; idempotent."""
        ...

    def hold(self, kind: str, obj: JsonObject) -> None:
        """Show an object of a kind that plugins alone write, in place of any of its name."""
        ...

    def let_go(self, kind: str, obj: JsonObject) -> None:
        """Take such an object away; idempotent."""
        ...


class Nominations(Protocol):
    """The pods that are nominated to nodes."""

    by_node: Mapping[str, Mapping[str, PodInfo]]
    """The nominated pods by node and uid; only nodes that have any."""

    def pods_for_node(self, node_name: str) -> Sequence[PodInfo]: ...

    def against(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node whose room a pod may not take."""
        return self.equal_or_higher(pod, node_name)

    def equal_or_higher(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node of equal or higher priority, itself excepted."""
        return [
            other
            for other in self.pods_for_node(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def depends_on_deadline(self, pod: PodInfo) -> bool:
        """Return whether `against` differs between pods like this one by when they end."""
        ...

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to; empty: none."""
        ...

    @property
    def changes(self) -> Changes[str]:
        """The nodes whose nominated pods changed, by name."""
        ...


@dataclass(frozen=True, slots=True)
class EvictedTogether:
    """A group whose members are evicted as a whole."""

    priority: int
    others: Sequence[PodInfo]
    """The other members on nodes."""


@dataclass(frozen=True, slots=True)
class GroupClaims:
    """Resource claims that are reserved for a group in place of its members."""

    group_name: str
    group_uid: str
    references: Sequence[ClaimReference]
    """A member's reference that is equal to one of these uses the group's claim."""
    in_use: bool
    """True if a member has a node."""


class PodGroups(Protocol):
    """The pods that belong together."""

    def why_gated(self, pod: PodInfo, *, as_upstream: str = "") -> str:
        """Return why a member's group is not worth an attempt; empty if it is.

        `as_upstream`: in the words of kube-scheduler, where it has any for it; the word with which
        it names a missing group's owner: `pods's` in 1.37, `pod's` since 1.38. Empty: in our own.
        """
        ...

    def lacks_placement(self, pod: PodInfo) -> bool:
        """Return whether a member's group waits for nodes before any member is tried.

        No nodes have the labels that it asks for, or the cluster lacks its minResources.
        """
        ...

    def evicted_with(self, pod: PodInfo) -> EvictedTogether | None:
        """Return what goes when a member is evicted; None: it goes alone."""
        ...

    def claims_with(self, pod: PodInfo) -> GroupClaims | None:
        """Return the claims of a member's group; None: it has none."""
        ...


class WaitingPod(Protocol):
    """A pod held by Permit plugins."""

    @property
    def pod(self) -> PodInfo: ...

    @property
    def pending_plugins(self) -> Sequence[str]: ...

    def allow(self, plugin: str) -> None: ...

    def reject(self, plugin: str, message: str) -> None: ...


class FilterRunner(Protocol):
    """A profile's Filter plugins, as preemption runs them (kube-scheduler's `PluginsRunner`)."""

    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether each row's verdicts depend on the pod's spec and that row alone."""
        ...

    def run_with_nominated_pods(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Verdicts:
        """Return each row's first rejection; rows with nominations must pass with and without."""
        ...

    def add_pods(self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods) -> None:
        """Put pods on positions of a view with overlay, and run PreFilterExtensions."""
        ...

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods
    ) -> None:
        """Take pods off positions of a view with overlay, and run PreFilterExtensions."""
        ...


class VolumeCounts(Protocol):
    """Takes what VolumeBinding does, for kube-scheduler's two counters of it."""

    def assumed(self, operation: str) -> None:
        """Objects were put over the stored ones ("add") or taken back ("delete")."""
        ...

    def failed(self, stage: str) -> None:
        """Something broke while volumes were searched for ("predicate"), assumed or bound."""
        ...


class DeviceCounts(Protocol):
    """Takes what DynamicResources does, for kube-scheduler's three families of it."""

    def claim_made(self, status: str) -> None:
        """A claim for extended resources was made ("success"), or refused ("failure")."""
        ...

    def awaited(self, profile: str, driver: str, status: str, seconds: float) -> None:
        """A pod waited for a driver's devices: "success", "failure", "timeout" or "error"."""
        ...


class Web(Protocol):
    """HTTP for sources of numbers: bounded in time and size, to allowed addresses only."""

    async def get(
        self,
        url: str,
        *,
        query: Mapping[str, str] | None = None,
        token: str = "",
        verify: bool = True,
        take: Callable[[object], object] | None = None,
    ) -> object:
        """Return the parsed JSON that a GET request answers, or what `take` makes of it.

        Args:
            url: with http or https.
            query: added to it.
            token: sent as a bearer token; empty: none.
            verify: whether the server's certificate is checked.
            take: what is kept of the answer, and small; a function of a module or a partial of one,
                since a long answer is read in a process of its own.

        Raises:
            SchedulerError: it cannot be had; says why.
            ValueError: `take` refuses it.
        """
        ...

    async def pause(self) -> None:
        """Let the event loop do other work, as decide for pods; after each few numbers."""
        ...


class NumberSource(Protocol):
    """Numbers from outside of what is watched, read again and again beside the cycle.

    What is read is shown as an object of `kind` with that `name`, as `Handle.objects` has it, in
    journals and in forks; a reading that fails leaves the last one in place. A source that reads a
    Secret may have a `profile_name`, that of its Handle: the profile's condition SecretsUsable then
    says which address the Secret does not allow.
    """

    kind: str
    name: str
    period_seconds: float

    async def read(self, client: ClusterClient, web: Web) -> object:
        """Return an answer.

        Credentials come from `read_secret`, which gives them for one address.

        Raises:
            Exception: it cannot be had; the text is logged and counted.
        """
        ...

    def checked(self, answer: object) -> JsonObject:
        """Return the object's fields beside its metadata; small, since journals keep it.

        Raises:
            ValueError: the answer makes no sense.
        """
        ...


class PeriodicTask(Protocol):
    """Something that a plugin does again and again beside the cycle, in the replica that leads."""

    name: str
    """Only one task of each name runs."""
    period_seconds: float

    async def run(self, client: ClusterClient) -> None:
        """Do it once; what it raises is logged and counted, and it is run again."""
        ...


class PluginCounter(Protocol):
    """A number of a plugin that only grows, for each combination of label values."""

    def inc(self, *values: str, amount: float = 1.0) -> None:
        """Add an amount, which must not be negative."""
        ...


class PluginGauge(Protocol):
    """A number of a plugin that goes up and down; it is shown for as long as a plugin keeps it."""

    def set(self, value: float, *values: str) -> None:
        """Replace the value at these label values."""
        ...

    def remove(self, *values: str) -> None:
        """Show nothing at these label values from now on."""
        ...


class PluginHistogram(Protocol):
    """A distribution that a plugin observes, for each combination of label values."""

    def observe(self, value: float, *values: str) -> None:
        """Count one observation."""
        ...


class PluginMetrics(Protocol):
    """The metrics of plugins' own on /metrics; a family of several plugins is one.

    Of a family 10,000 series are kept; what comes beyond them is not shown.
    """

    def counter(self, name: str, text: str, *labels: str) -> PluginCounter:
        """Return a counter family.

        Raises:
            ValueError: it is no name of a metric, or taken by another family.
        """
        ...

    def gauge(self, name: str, text: str, *labels: str) -> PluginGauge:
        """Return a gauge family; raises as `counter`."""
        ...

    def histogram(
        self, name: str, text: str, *labels: str, buckets: Sequence[float]
    ) -> PluginHistogram:
        """Return a histogram family with these upper bounds; raises as `counter`."""
        ...


class NumberSources(Protocol):
    """The inputs of a plugin beside nodes, pods and the kinds that are always watched."""

    def follow(self, source: NumberSource) -> None:
        """Read a source every period, from now on and for as long as the plugin keeps it."""
        ...

    def repeat(self, task: PeriodicTask) -> None:
        """Run a task every period, from now on and for as long as the plugin keeps it."""
        ...

    def watch(self, kind: PluginKind) -> None:
        """Have a kind watched; `watched_kinds` of a plugin's class are without its asking."""
        ...

    def is_synced(self, kind: str) -> bool:
        """Return whether every object of such a kind has been seen, or none can be."""
        ...


class Handle(Protocol):
    """The framework as plugins see it. Nothing here needs an event loop to be imported."""

    profile_name: str
    """The schedulerName that this framework serves."""
    compatibility: Compatibility
    """The release that this framework decides as; the same for as long as the plugin lives."""
    snapshot: Snapshot
    objects: ObjectStore
    nominations: Nominations
    client: ClusterClient
    recorder: Recorder
    volume_counts: VolumeCounts
    device_counts: DeviceCounts
    preempting: AbstractSet[str]
    """Uids of the pods that still have victims to be deleted."""
    pod_groups: PodGroups
    worker: Worker
    """Computes what a plugin does not wait for."""
    sources: NumberSources
    metrics: PluginMetrics
    """Metrics of the plugin's own; named in the constructor, counted at any point."""

    @property
    def filters(self) -> FilterRunner:
        """The profile's filters, for plugins that look for room."""
        ...

    def now_seconds(self) -> float:
        """Return the monotonic time."""
        ...

    def now(self) -> datetime:
        """Return the wall-clock time, with its zone."""
        ...

    def moment(self, state: CycleState) -> float:
        """Return the wall-clock time of an attempt, in seconds since the epoch.

        It is the same at every call for one attempt. A recording holds it, so that a replay decides
        as of it: what a decision reads of the time, it reads here.
        """
        ...

    def victim_order(self, state: CycleState) -> VictimOrder:
        """Return the order in which the profile spares pods of equal priority in an attempt."""
        ...

    def admits_victim(self, namespace: str, victim: PodInfo) -> bool:
        """Return whether the profile lets a pod be evicted for one of this namespace."""
        ...

    def pods_on(self, node_name: str) -> Mapping[str, PodInfo]:
        """Return the pods on a node by uid, by now: hints are asked before the snapshot is new."""
        ...

    def random(self, below: int) -> int:
        """Return a number from 0 to below − 1 from the profile's seeded generator."""
        ...

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to activeQ."""
        ...

    def waiting_pods(self) -> Iterable[WaitingPod]: ...

    def waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def feasible(self, pod: PodInfo) -> Mask:
        """Return (N,) bool: the rows that would take the pod, in an attempt of its own."""
        ...

    def write_later(self, api_call: APICall) -> None:
        """Carry a write out without waiting for it; retried while the API is unavailable."""
        ...

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        """Return whether the predicate became true in time; it is checked after watch events."""
        ...

    def one_at_a_time(self, key: str) -> AbstractAsyncContextManager[None]:
        """Return a context that one task at a time is in, of those with the same key."""
        ...
