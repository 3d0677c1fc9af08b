"""The extension points, and what the world looks like from a plugin: one Protocol each.

Plugins inherit the points they implement; the runtime calls them in a profile's order; `scheduler`,
`client` and `backend` implement the protocols of the second half. Invariant: everything up to
Reserve is synchronous and pure on the snapshot; only Permit, PreBind, Bind and PostBind wait.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, runtime_checkable

import numpy as np

from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.status import OK, SKIP, Status
from stellwerk.framework.status_column import StatusColumn
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.changes import Changes
from stellwerk.snapshot.columns import IntColumn, Mask, VerdictColumn
from stellwerk.snapshot.node_view import NodeView
from stellwerk.snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from stellwerk.framework.verdicts import Verdicts

MAX_NODE_SCORE = 100


class Reuse(Enum):
    """What a verdict or raw score of a row depends on, beside the pod's reuse key and the args.

    The runtime keeps such columns per key and recomputes only rows that changed.
    """

    NEVER = auto()
    """Anything: computed in every cycle."""
    NODE = auto()
    """The row's node object alone."""
    USAGE = auto()
    """The row's node object and the pods on it."""


# --- results ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FilterResult:
    """A verdict per row as a small code; texts are made only when somebody reads them."""

    codes: VerdictColumn
    """(n,) int32; 0 fits, every other code stands for a status."""
    status: Callable[[int], Status]
    """Code (not 0) → the status with its reasons."""

    @classmethod
    def of_mask(cls, fails: np.ndarray[Any, np.dtype[np.bool_]], status: Status) -> "FilterResult":
        """One status for every row where `fails` is True."""
        return cls(fails.astype(np.int32), lambda _: status)

    @classmethod
    def everywhere(cls, rows: int) -> "FilterResult":
        """Every row fits."""
        return cls(np.zeros(rows, np.int32), lambda _: OK)


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """What PreFilter says: go on, Skip the coupled Filter, reject; and perhaps only these nodes."""

    status: Status = OK
    node_names: frozenset[str] | None = None
    """The nodes worth looking at (they need not exist); None: all."""


GO_ON: Final = PreFilterResult()
"""Nothing against the pod so far."""
SKIP_FILTER: Final = PreFilterResult(SKIP)
"""The coupled Filter has nothing to do for this pod."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could be cleared for a pod, and who would have to go."""

    node_name: str
    victims: tuple[PodInfo, ...]
    """Most important first; for cross-node preemption they may run elsewhere."""
    pdb_violations: int


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What PostFilter says: a status, and the candidates among which to choose."""

    status: Status
    candidates: tuple[Candidate, ...] = ()
    best: Callable[[Sequence[Candidate]], Sequence[Candidate]] | None = None
    """The best of those candidates that the extenders have left; they tie. None: no candidates."""
    clear_nomination: bool = False
    """The pod's nominatedNodeName no longer helps and is to be removed."""
    earlier_reasons: tuple[str, ...] = ()
    """What the plugins said that were asked before and found no way.

    The runtime notes it: the message has them if in the end nothing comes of the candidates.
    """


@dataclass(frozen=True, slots=True)
class PermitResult:
    """Approve (OK), deny (rejected) or Wait for at most `timeout_seconds`."""

    status: Status = OK
    timeout_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why no node was found: the status of every node. Made when a cycle fails."""

    rows: Sequence[int]
    """The snapshot row of each node."""
    statuses: StatusColumn
    """One status per node, in the order of `rows`."""
    pre_filter_message: str = ""
    """Set when PreFilter rejected the pod as a whole."""
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()


# --- extension points ---------------------------------------------------------------------------


class Plugin(Protocol):
    """Every plugin has the name that profiles, events and metrics use."""

    name: ClassVar[str]


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    """Says which cluster events may end this plugin's rejections; without it, every event does."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Keeps pods out of the queue (gated) until it answers Success."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """Orders activeQ; exactly one, the same in all profiles."""

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """Return a key; smaller keys are scheduled first."""
        ...


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """Looks at the pod once per attempt, before any node."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult: ...


@runtime_checkable
class PreFilterExtensions(Protocol):
    """For plugins that keep state of their own about pods on nodes; others read `nodes.overlay`.

    `pods` have just been put on (taken off) the node at a position of a view with overlay.
    A node may come at another position later, in a narrower view: such state is kept by row
    (`nodes.row_numbers()[position]`).
    """

    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> Status: ...

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> Status: ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Says for each row whether the pod fits; all rows of a view at once, each on its own."""

    filter_reuse: ClassVar[Reuse] = Reuse.NEVER

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult: ...

    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:  # noqa: ARG002
        """What of the pod the verdict depends on (its spec, unless overridden); None: no reuse."""
        return pod.spec


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits: looks for a way to make room."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult: ...


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """Looks at the feasible rows once, before any score."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status: ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """Scores the rows of a view."""

    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """Return (n,) int64 raw scores; 0–100 unless the plugin also normalises."""
        ...

    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:  # noqa: ARG002
        """What of the pod the score depends on (its spec, unless overridden); None: no reuse."""
        return pod.spec


@runtime_checkable
class NormalizeScorePlugin(Protocol):
    """Maps raw scores of the feasible rows to 0–100."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn: ...


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """Keeps books for a pod that has a node; unreserve is idempotent and undoes reserve."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Approves, denies or delays a binding."""

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult: ...


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """Prepares a binding, e.g. its volumes."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success: pre_bind has work to do; Skip: it has none and is not called."""
        ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Binds the pod, or answers Skip and leaves it to the next."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """Told that the pod is bound."""

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


# --- the world, as plugins and handlers see it --------------------------------------------------


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """What an event is about."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


def pod_reference(pod: PodInfo) -> ObjectReference:
    """A pod as the object of an event."""
    return ObjectReference("Pod", "v1", pod.namespace, pod.name, pod.uid, pod.resource_version)


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
    """The API server, for those who write; raises the errors of `stellwerk.errors`."""

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

    async def patch(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject: ...


class WatchHandlers(Protocol):
    """What kopf's handlers call; `event_type` is kopf's: None for the items of a list.

    A synthetic DELETED (the object vanished while a watch was broken) carries only metadata.
    """

    def on_pod(self, event_type: str | None, obj: JsonObject) -> None: ...

    def on_node(self, event_type: str | None, obj: JsonObject) -> None: ...

    def on_object(self, kind: str, event_type: str | None, obj: JsonObject) -> None: ...

    def on_synced(self, kind: str) -> None:
        """The first list of the kind is complete (or the kind is absent, and so empty)."""
        ...


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


class Nominations(Protocol):
    """Pods that were promised a node."""

    def pods_for_node(self, node_name: str) -> Sequence[PodInfo]: ...

    def nominated_nodes(self) -> Collection[str]:
        """Return the names of nodes with nominated pods."""
        ...

    def against(self, pod: PodInfo, node_name: str) -> list[PodInfo]:
        """Return the pods nominated to a node that a pod may not preempt."""
        return [
            other
            for other in self.pods_for_node(node_name)
            if other.priority >= pod.priority and other.uid != pod.uid
        ]

    def node_of(self, uid: str) -> str:
        """Return the node that a pod is nominated to; empty: none."""
        ...

    @property
    def changes(self) -> Changes[str]:
        """The nodes whose nominated pods changed, by name."""
        ...


class WaitingPod(Protocol):
    """A pod held by Permit plugins."""

    @property
    def pod(self) -> PodInfo: ...

    @property
    def pending_plugins(self) -> Sequence[str]: ...

    def allow(self, plugin: str) -> None: ...

    def reject(self, plugin: str, message: str) -> None: ...


class Handle(Protocol):
    """What the framework offers to plugins. Nothing here needs an event loop to be imported."""

    @property
    def profile_name(self) -> str:
        """The schedulerName that this framework serves."""
        ...

    @property
    def snapshot(self) -> Snapshot: ...

    @property
    def objects(self) -> ObjectStore: ...

    @property
    def nominations(self) -> Nominations: ...

    @property
    def client(self) -> ClusterClient: ...

    @property
    def recorder(self) -> Recorder: ...

    def now_seconds(self) -> float:
        """Return the monotonic time."""
        ...

    def random(self, below: int) -> int:
        """Return a number from 0 to below − 1 from the profile's seeded generator."""
        ...

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move pending pods to activeQ."""
        ...

    def waiting_pods(self) -> Iterable[WaitingPod]: ...

    def waiting_pod(self, uid: str) -> WaitingPod | None: ...

    def is_preempting(self, uid: str) -> bool:
        """Return whether victims are still being sent away for a pod."""
        ...

    def feasible(self, pod: PodInfo) -> Mask:
        """Return (N,) bool: the rows that would take the pod, in an attempt of its own."""
        ...

    def is_row_local(self, state: CycleState, pod: PodInfo) -> bool:
        """Return whether what filters say of a row depends on the spec and that row alone."""
        ...

    def run_filters(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> "Verdicts":
        """Return each row's first rejection, with nominated pods counted (two passes)."""
        ...

    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Put pods on positions of a view with overlay, and tell PreFilterExtensions."""
        ...

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: Sequence[tuple[int, PodInfo]]
    ) -> None:
        """Take pods off positions of a view with overlay, and tell PreFilterExtensions."""
        ...

    async def wait_until(self, predicate: Callable[[], bool], timeout_seconds: float) -> bool:
        """Return whether the predicate became true in time; it is checked after watch events."""
        ...
