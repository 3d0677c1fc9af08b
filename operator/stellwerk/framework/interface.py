"""The extension points: one Protocol for each, and the results that they return.

Plugins inherit the points they implement; the runtime calls them in a profile's order. Invariant:
everything up to Reserve is synchronous and pure on the snapshot; only Permit, PreBind, Bind and
PostBind may wait.
"""

from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, Final, Protocol, TypeAlias

from stellwerk.answers.gpus import GpusOfPod
from stellwerk.answers.pod import DevicesOfPod, PluginFacts
from stellwerk.framework.changes import Proposal
from stellwerk.framework.diagnosis import Diagnosis
from stellwerk.framework.events import ClusterEventWithHint
from stellwerk.framework.types import OK, SKIP, CycleState, FilterResult, PlacementSums, Status
from stellwerk.framework.victim_order import VictimOrder
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_group import PodGroup
from stellwerk.snapshot.columns import IntColumn
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.json_values import JsonObject

MAX_NODE_SCORE: Final = 100
"""Highest normalised score of a node (`MaxNodeScore`)."""
MAX_PROPOSALS: Final = 32
"""Changes in one list of proposals of a plugin that does not come with Stellwerk. A plugin that
proposes more fails, because each trial of a change runs every filter."""

PluginPart: TypeAlias = PluginFacts | DevicesOfPod | GpusOfPod
"""A plugin's part of an explanation."""

PlacedPods: TypeAlias = Sequence[tuple[int, PodInfo]]
"""(position in a view, pod on the node there)."""


class Reuse(Enum):
    """The state that a row's verdict or raw score depends on, beside the pod's reuse key and args.

    The runtime caches such columns and recomputes only rows that changed: scores by any key, filter
    verdicts only by the default one, the pod's spec.
    """

    NEVER = auto()
    """Anything: computed in every cycle."""
    NODE = auto()
    """The row's node object alone."""
    USAGE = auto()
    """The row's node object and the pods on it."""


class EqualPods(Enum):
    """The difference that a pod on a node makes to the next pod that is equal to it.

    Two pods are equal if they share spec, labels, namespace, owner and details (volumes and claims
    among them): only their names differ.
    """

    ANYTHING = auto()
    """Not known: the next pod is decided by itself."""
    ROW = auto()
    """PreFilter and PreScore answer as before, and what they left in the state stays right. Only
    the verdict and the raw score of that node's row may differ."""
    SCORES = auto()
    """As ROW, but PreScore and Score have to run again for all rows."""


# --- results ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """The answer of PreFilter: go on, Skip its Filter, reject; and perhaps only these nodes."""

    status: Status = OK
    node_names: frozenset[str] | None = None
    """The nodes worth looking at (they need not exist); None: all."""


GO_ON: Final = PreFilterResult()
"""Nothing against the pod so far."""
SKIP_FILTER: Final = PreFilterResult(SKIP)
"""The coupled Filter has nothing to do for this pod."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that could be cleared for a pod, and the pods that would be deleted."""

    node_name: str
    victims: tuple[PodInfo, ...]
    """Most important first; for cross-node preemption they may run elsewhere."""
    pdb_violations: int
    known_losses: list[tuple[float, ...]] = field(default_factory=list, compare=False, repr=False)
    """The victims as a loss, once `plugins.shared.victims` has computed it; else empty. A
    candidate lives as long as its node does not change, and each preemptor compares all of them."""


class ClusterWriter(Protocol):
    """The requests that such a write may make of the API server; a ClusterClient is one."""

    async def get(self, path: str) -> JsonObject:
        """Return an object."""
        ...

    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Replace an object; returns it as stored."""
        ...

    async def patch(
        self, path: str, body: Mapping[str, Any], *, content_type: str = ...
    ) -> JsonObject:
        """Patch an object; returns it as stored."""
        ...

    async def delete(self, path: str, uid: str) -> None:
        """Delete exactly this object."""
        ...


@dataclass(frozen=True, slots=True)
class APICall:
    """The write, and what it is about."""

    act: str
    """For logs: "deallocate default/gpu"."""
    carry_out: Callable[[ClusterWriter], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """The answer of PostFilter: a status, and the candidates among which to choose."""

    status: Status
    candidates: tuple[Candidate, ...] = ()
    best: Callable[[Sequence[Candidate]], Sequence[Candidate]] | None = None
    """The best of those candidates that the extenders have left; they tie. None: no candidates."""
    told_of: Callable[[Candidate], str] | None = None
    """Text for the pod's condition about the candidate that is taken; None: no text."""
    clear_nomination: bool = False
    """The pod's nominatedNodeName no longer helps and is to be removed."""
    earlier_reasons: tuple[str, ...] = ()
    """Reasons of earlier PostFilter plugins, which found no way.

    The runtime notes it: the message has them if in the end nothing comes of the candidates.
    """
    decided_by: Callable[[Candidate, Sequence[Candidate]], str] | None = None
    """Given the candidate that is taken and all that were left, the text on what decided against
    kube-scheduler's order; empty: nothing did. None: the candidates follow that order."""
    api_call: APICall | None = None
    """A write to the cluster that is made whatever the plugins that follow answer."""
    plugin: str = ""
    """The plugin that found the candidates. The runtime notes it, and asks the next plugin if none
    of them is left."""


@dataclass(frozen=True, slots=True)
class PermitResult:
    """Approve (OK), deny (rejected) or Wait for at most `timeout_seconds`."""

    status: Status = OK
    timeout_seconds: float = 0.0


# --- extension points ---------------------------------------------------------------------------


class Plugin(Protocol):
    """Every plugin has the name that profiles, events and metrics use."""

    name: ClassVar[str]


class EnqueueExtensions(Plugin, Protocol):
    """Says which cluster events may end this plugin's rejections; without it, every event does."""

    def events_to_register(self) -> Sequence[ClusterEventWithHint]: ...


class PreEnqueuePlugin(Plugin, Protocol):
    """Keeps pods out of the queue (gated) until it answers Success."""

    def pre_enqueue(self, pod: PodInfo) -> Status: ...


class QueueSortPlugin(Plugin, Protocol):
    """Orders activeQ; exactly one, the same in all profiles."""

    def sort_key(self, pod: PodInfo, queued_at_seconds: float) -> tuple[float, ...]:
        """Return a key; smaller keys are scheduled first.

        `queued_at_seconds` is the time by which the queue sorts the pod: when it was queued, plus
        the delay that `backend.namespace_fairness` gives to retries and to large namespaces.
        """
        ...


class PreFilterPlugin(Plugin, Protocol):
    """Looks at the pod once per attempt, before any node."""

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult: ...


class PreFilterExtensions(Protocol):
    """For plugins with state of their own about pods on nodes; others read `nodes.overlay`.

    `pods` have just been put on (taken off) the node at a position of a view with overlay.
    A node may come at another position later, in a narrower view: such state goes by row
    (`nodes.row_numbers()[position]`).
    """

    def add_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods
    ) -> Status: ...

    def remove_pods(
        self, state: CycleState, pod: PodInfo, nodes: NodeView, pods: PlacedPods
    ) -> Status: ...


class FilterPlugin(Plugin, Protocol):
    """Says for each row whether the pod fits; all rows of a view at once, each on its own."""

    filter_reuse: ClassVar[Reuse] = Reuse.NEVER
    costly_filter: ClassVar[bool] = False
    """True if the filter is worth running only on rows that every cheaper filter passes.

    A status that is an error then ends the attempt, also where other rows fit.
    """
    needs_pre_filter: ClassVar[bool] = False
    """True if attempts fail in a profile that has the plugin at Filter and not at PreFilter."""

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult: ...

    def filter_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:  # noqa: ARG002
        """Return the pod's spec if verdicts depend on nothing else of the pod; None: no reuse.

        Verdicts are cached by `pod.spec` alone: with any other key the filter runs in every attempt
        of that pod. A filter that reads labels, for example, returns the spec for pods without
        them, and None for the others. Scores are cached by other keys, too (`score_key`).
        """
        return pod.spec


class CountsRoom(FilterPlugin, Protocol):
    """A Filter plugin that decides by amounts, so that groups count how many members a node holds.

    `world.gangs.group_capacity` asks every Filter plugin of a profile that has this method. Without
    one, members are tried without counting what nodes hold. A group's `minResources` are compared
    with the free amounts of the cluster in any case, before that (`world.gangs.group_decision`).
    """

    def counted_resources(self, resources: Collection[str]) -> Collection[str]:
        """Return those of the resources about which this filter alone decides.

        A pod whose requests are all among them passes exactly on the nodes where each request, and
        one of `pods`, is free: allocatable minus the requests of the pods there.
        """
        ...


class PostFilterPlugin(Plugin, Protocol):
    """Called when no node fits: looks for a way to make room."""

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis
    ) -> PostFilterResult: ...


class AdmitsVictims(PostFilterPlugin, Protocol):
    """A PostFilter plugin that says which pods may be evicted, so that groups evict no others.

    `world.gangs.group_preemption` asks every PostFilter plugin of a profile that has this method: a
    pod that one of them does not admit stays. Without one, all pods of lower priority may go.
    """

    def admits_victim(self, namespace: str, victim: PodInfo) -> bool:
        """Return whether a pod of lower priority may be evicted for a pod of this namespace."""
        ...


class ReadsTime(Plugin, Protocol):
    """A plugin whose rejections may end by themselves, because it reads `Handle.moment`.

    The queue asks it about pods that it has rejected, and tries these again when they are due.
    """

    reads_time: bool
    """False: its arguments make nothing depend on the time, and it is not asked."""

    def rejection_ends_at(self, pod: PodInfo) -> float | None:
        """Return the time from which on the pod is not rejected for the same reason.

        In seconds since the epoch, by the wall clock; None: time alone does not end the rejection.
        """
        ...


class OrdersVictims(PostFilterPlugin, Protocol):
    """A PostFilter plugin whose arguments order pods of equal priority.

    `Handle.victim_order` asks the first one of a profile, for all that choose victims.
    """

    def victim_order(self) -> VictimOrder:
        """Return the order; the caller sets its moment."""
        ...


class PreScorePlugin(Plugin, Protocol):
    """Looks at the feasible rows once, before any score."""

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> Status: ...


class ScorePlugin(Plugin, Protocol):
    """Scores the rows of a view."""

    score_reuse: ClassVar[Reuse] = Reuse.NEVER

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> IntColumn:
        """Return (n,) int64 raw scores; 0–100 unless the plugin also normalises."""
        ...

    def score_key(self, state: CycleState, pod: PodInfo) -> Hashable | None:  # noqa: ARG002
        """Return the part of the pod that scores depend on, mostly its spec; None: no reuse.

        Scores are cached by whatever it returns, unlike the verdicts of filters.
        """
        return pod.spec


class NormalizeScorePlugin(Protocol):
    """Maps raw scores of the feasible rows to 0–100."""

    def normalize(self, state: CycleState, pod: PodInfo, scores: IntColumn) -> IntColumn: ...


class EqualPodsPlugin(Plugin, Protocol):
    """A plugin that says what an equal pod on a node changes, so that runs of them are cheap.

    `framework.equal_pods` asks every plugin of a profile from PreFilter to Reserve, and decides the
    pods by themselves if one has no answer. Only plugins that come with Stellwerk are asked: their
    answers are held to single decisions by tests.
    """

    def after_equal_pod(self, pod: PodInfo) -> EqualPods:
        """Return what a pod that is equal to this one, placed on a node, changes for this one."""
        ...


class PlacementGeneratePlugin(Plugin, Protocol):
    """Divides nodes into placements for a group: sets of nodes that all its members are in."""

    def placement_keys(self, group: PodGroup) -> Sequence[Sequence[str]]:
        """Return the label keys whose values the nodes of a placement share.

        Each is tried where those before it have no placement that holds the group; without keys,
        all nodes are one placement.
        """
        ...


class PlacementScorePlugin(Plugin, Protocol):
    """Scores the placements that hold a group."""

    def score_placements(self, placements: PlacementSums) -> IntColumn:
        """Return (P,) int64 scores, 0–100."""
        ...

    def scored_resources(self) -> Collection[str]:
        """Return the resources that `placements` must have besides those that members request."""
        return ()


class ReservePlugin(Plugin, Protocol):
    """Reserves for a pod that has a node; unreserve is idempotent and undoes reserve."""

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


class PermitPlugin(Plugin, Protocol):
    """Approves, denies or delays a binding."""

    async def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult: ...


class PreBindPlugin(Plugin, Protocol):
    """Prepares a binding, e.g. its volumes."""

    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Success: pre_bind has work to do; Skip: it has none and is not called."""
        ...

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...


class BindPlugin(Plugin, Protocol):
    """Binds the pod, or answers Skip and leaves it to the next."""

    async def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status: ...


class PostBindPlugin(Plugin, Protocol):
    """Runs once the pod is bound."""

    async def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None: ...


# --- explanations -------------------------------------------------------------------------------


class ExplainPlugin(Plugin, Protocol):
    """Adds to the explanation of a pod; asked when a user asks, never in a scheduling cycle."""

    def explain(
        self, state: CycleState, pod: PodInfo, nodes: NodeView
    ) -> PluginPart | Generator[None, None, PluginPart | None] | None:
        """Return the plugin's part, None where it has none; a generator yields between steps.

        `state` is that of an attempt up to Filter, and holds the FilterResults. PluginFacts are
        shown under the plugin's name; the others are for plugins that come with Stellwerk.
        """
        ...


class ProposePlugin(Plugin, Protocol):
    """Proposes changes that may let a pod fit; each is tried before it is suggested."""

    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterable[Proposal | None]:
        """Return changes that are worth a try; a generator may yield None between steps.

        With a row, which the plugin rejects, propose changes to that node, or to the pod so that
        it fits there; `nodes` are all nodes then. Without a row, propose changes to the pod only;
        `nodes` are those that fewest plugins reject.
        """
        ...
