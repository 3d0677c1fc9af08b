"""One pod's explanation, as it is answered: where it went, why it waits, what would help.

`explain.report` makes it; the tables, the page and the demo print it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.gpus import GpusOfPod
from stellwerk.answers.observed import ObservedComparison
from stellwerk.answers.reading import ClusterReading
from stellwerk.answers.suggestion import Suggestion

_MAX_REASONS: Final = 6
"""Lines of reasons about devices; the others are counted."""
_MAX_EXAMPLES: Final = 2
"""Examples that a line names."""

PodState: TypeAlias = Literal[
    "bound", "waiting", "scheduling", "unserved", "elsewhere", "terminating", "preempted"
]

# --- devices ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimState(PortAnswer):
    """A resource claim of the pod."""

    claim: str
    state: Literal["missing", "needed", "allocated"]
    devices: Sequence[str] | None = None
    """The devices that it has been given: DRIVER/POOL/DEVICE."""
    reserved_for: Sequence[str] | None = None
    """The names of the pods that it is reserved for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesNotTaken(PortAnswer):
    """Devices that have the same first reason against them."""

    reason: str
    devices: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceError(PortAnswer):
    """An error that ended the search on some nodes."""

    claim: str
    request: str
    error: str
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequestState(PortAnswer):
    """One request of a claim, and the devices that it could take, seen alone."""

    claim: str
    request: str
    device_class: str
    count: int | Literal["All"]
    """The number of devices that are asked for."""
    considered: int
    free: int
    nodes: int
    nodes_with_enough: int
    """Nodes on which the request finds enough, alone."""
    not_taken: Sequence[DevicesNotTaken]
    errors: Sequence[DeviceError] | None = None

    def lines(self) -> Iterator[str]:
        """The request in words."""
        plural = "" if self.count == 1 else "s"
        wanted = "all devices" if self.count == "All" else f"{self.count} device{plural}"
        yield (
            f"Request {self.request} of {self.claim} needs {wanted} of class "
            f"{self.device_class}: {self.considered} considered, {self.free} available. "
            f"{self.nodes_with_enough} of {self.nodes} nodes have enough for this request alone."
        )
        for each in self.not_taken[:_MAX_REASONS]:
            examples = ", ".join(each.examples[:_MAX_EXAMPLES])
            yield f"  {each.devices} not available: {each.reason} ({examples})"
        for error in self.errors or ():
            yield f"  on {error.nodes} nodes: {error.error}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolLeftOut(PortAnswer):
    """A pool from which nothing is taken."""

    pool: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicesOfPod(PortAnswer):
    """The devices that a pod has, or asks for."""

    claims: Sequence[ClaimState]
    requests: Sequence[DeviceRequestState] | None = None
    pools_left_out: Sequence[PoolLeftOut] | None = None

    def lines(self) -> Iterator[str]:
        """The claims, and for each request why devices were not taken, for people."""
        for claim in self.claims:
            given = f": {', '.join(claim.devices)}" if claim.devices else ""
            yield f"Claim {claim.claim} is {claim.state}{given}."
        for pool in self.pools_left_out or ():
            yield f"Pool {pool.pool} is ignored: {pool.reason}."
        for request in self.requests or ():
            yield from request.lines()


# --- a decision ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreFields(PortAnswer):
    """One plugin's score of one node."""

    raw: int
    normalized: int
    """From 0 to 100."""
    weighted: int
    """The normalised score times the plugin's weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedNode(PortAnswer):
    """One of the best nodes of a decision."""

    node: str
    rank: int
    """One more than there are nodes with a higher total."""
    total: int
    scores: Mapping[str, ScoreFields]
    """Scores by plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonCount(PortAnswer):
    """Nodes that one plugin rejected for the same reasons."""

    plugin: str
    reasons: Sequence[str]
    nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherNodes(PortAnswer):
    """The rejections of the nodes that were not feasible."""

    counted_at: Time
    nodes: int
    reasons: Sequence[ReasonCount]
    """Each node under the first plugin that turned it away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFields(PortAnswer):
    """The decision that gave the pod its node."""

    decided_at: Time
    compatibility: str | None = None
    """The Kubernetes release that the decision followed."""
    attempts: int
    nodes: int
    """The number of nodes in all."""
    evaluated: int
    """Nodes that were evaluated."""
    feasible: int
    tied: int
    """Nodes that shared the best total; 1: there was no tie."""
    nominated: bool
    """It went to the node to which it was nominated; no other node was evaluated."""
    best: Sequence[RankedNode]
    """The chosen node among them; empty: there was nothing to score."""
    others: OtherNodes | None = None
    remarks: Sequence[str] | None = None
    """Sentences of plugins on the decision, such as that a constraint had given way."""


# --- the queue ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class WakingEvent(PortAnswer):
    """A kind of events that may end a rejection."""

    event: str
    plugins: Sequence[str]
    """The plugins that registered it."""
    words: str | None = None
    """The event in words; absent: no such event could help this pod."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts(PortAnswer):
    """The pod's place in the scheduling queue."""

    queue: str
    since: Time
    attempts: int
    unschedulable_attempts: int
    consecutive_errors: int
    position: int | None = None
    """Pods before it in activeQ."""
    next_retry: Time | None = None
    """The latest moment at which it is tried again."""
    gated_by: str | None = None
    """The plugin that keeps it out of the queue."""
    rejected_by: Sequence[str] | None = None
    woken_by: Sequence[WakingEvent] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingFacts(PortAnswer):
    """The binding of a pod that counts on its node already, as far as it has come."""

    node: str
    point: Literal["Permit", "PreBind", "Bind"]
    """The extension point that its binding cycle is at."""
    waits_for: Sequence[str]
    """The plugins, claims, devices or members that it waits for."""
    since: Time

    def lines(self) -> Iterator[str]:
        """The binding in words."""
        yield f"It is assigned to {self.node} and counts there. Its binding is in {self.point}."
        for each in self.waits_for:
            yield f"It waits for {each}."


@dataclass(frozen=True, slots=True, kw_only=True)
class LastAttempt(PortAnswer):
    """The end of the last attempt."""

    ended_at: Time
    message: str | None = None


# --- preemption ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptedBy(PortAnswer):
    """The pod that this one was preempted for."""

    by: str
    by_priority: int
    priority: int
    """Its own."""
    node: str
    decided_at: Time
    decided_by: str | None = None
    """Text on what decided for it against kube-scheduler's order; absent: nothing did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VictimFields(PortAnswer):
    """A pod that goes."""

    pod: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionCandidate(PortAnswer):
    """A node with what decides between candidates, in the order in which it does."""

    node: str
    budget_violations: int
    victims: Sequence[VictimFields]


@dataclass(frozen=True, slots=True, kw_only=True)
class TookPlace(PortAnswer):
    """A pod that got, or was nominated to, the node that victims were to leave for another."""

    pod: str
    priority: int
    bound: bool
    decided_at: Time


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPreemption(PortAnswer):
    """The last preemption for the pod, with the other candidates."""

    decided_at: Time
    node: str
    budget_violations: int
    victims: Sequence[VictimFields]
    candidates: int
    """Nodes that could have been cleared."""
    others: Sequence[PreemptionCandidate]
    nominated_node: str
    """The node that it is nominated to now, perhaps none."""
    decided_by: str | None = None
    """Text on what decided for the victims against kube-scheduler's order; absent: nothing did."""
    took_place: Sequence[TookPlace] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreemptionNow(PortAnswer):
    """The outcome of preemption now: victims on a node, or the reason for which there are none."""

    node: str | None = None
    victims: Sequence[VictimFields] | None = None
    decided_by: str | None = None
    """Text on what decides for the victims against kube-scheduler's order; absent: nothing does."""
    message: str | None = None
    would_do: str | None = None
    """The pods whose eviction would do, which preemptionPolicy Never rules out."""


# --- verdicts -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SameVerdict(PortAnswer):
    """Nodes that a plugin rejects for the same reasons."""

    reasons: Sequence[str]
    nodes: int
    examples: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginVerdicts(PortAnswer):
    """The nodes that one plugin rejects, whatever other plugins say."""

    plugin: str
    nodes: int
    verdicts: Sequence[SameVerdict]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreFilterVerdict(PortAnswer):
    """A rejection that concerns all nodes."""

    plugin: str
    reasons: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NearNode(PortAnswer):
    """One of the nodes that the fewest plugins reject."""

    node: str
    rejected_by: Mapping[str, Sequence[str]]
    """Reasons by plugin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedVerdicts(PortAnswer):
    """Every plugin's verdicts on every node, recomputed; or the error that this ended with."""

    recomputed_at: Time
    compatibility: str | None = None
    """The Kubernetes release that the verdicts follow."""
    nodes: int | None = None
    feasible: int | None = None
    by_plugin: Sequence[PluginVerdicts] | None = None
    """The plugin that turns most nodes away first."""
    first_reasons: Mapping[str, int] | None = None
    """Nodes by the first reason against each, as kube-scheduler counts them."""
    pre_filter: PreFilterVerdict | None = None
    only_nodes: Sequence[str] | None = None
    """Some of the nodes that PreFilter leaves."""
    message: str | None = None
    """The text of the pod's condition."""
    nearest: Sequence[NearNode] | None = None
    error: str | None = None


# --- what plugins add ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFacts(PortAnswer):
    """A plugin's own part of an explanation."""

    lines: Sequence[str]
    """For people."""
    fields: Mapping[str, str | int | float | bool | Sequence[str]] | None = None
    """For programs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginLeftOut(PortAnswer):
    """A plugin that has no part in the explanation."""

    plugin: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class PodFacts(PortAnswer):
    """A pod, where it is, and what was noted of it; one of two bases can have slots."""

    pod: str
    """NAMESPACE/NAME."""
    uid: str | None = None
    scheduler_name: str | None = None
    priority: int | None = None
    requests: Mapping[str, int] | None = None
    """Amounts by resource: cpu in millicores, memory and storage in bytes; absent: none."""
    state: PodState
    node: str | None = None
    preempted: PreemptedBy | None = None
    selected_by: str | None = None
    """The profile whose selector takes the pod."""
    queue: QueueFacts | None = None
    binding: BindingFacts | None = None
    """The stage of its binding; absent: it is not being bound."""
    last_attempt: LastAttempt | None = None
    last_preemption: LastPreemption | None = None
    reason: str | None = None
    """The reason for which no profile serves it."""
    served: Sequence[str] | None = None
    """The schedulerNames that are served."""
    nearest: str | None = None
    """The one that is spelt most alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed(PortAnswer):
    """The part of an explanation that is computed anew."""

    verdicts: RecomputedVerdicts | None = None
    devices: DevicesOfPod | None = None
    gpus: GpusOfPod | None = None
    would_get_node: str | None = None
    tied_nodes: Sequence[str] | None = None
    """Nodes that it may get as well, that one among them; which one is drawn then. Some of them."""
    tied: int | None = None
    """The number of equal nodes; absent: there is no tie."""
    would_wait: str | None = None
    """The reason for getting no node now although some take it: its group, a plugin that is too
    slow."""
    preemption: PreemptionNow | None = None
    would_fit: Sequence[Suggestion] | None = None
    """Changes that would make it fit, the smallest first."""
    plugins: Mapping[str, PluginFacts] | None = None
    """The words of plugins that do not come with Stellwerk, by their names."""
    left_out: Sequence[PluginLeftOut] | None = None
    """Plugins that raised, took too long, or proposed too much, and what is not asked here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementNow(PortAnswer):
    """The nodes that a bound pod would choose among if it came now, with their points."""

    node: str
    """The node that it would get. Of equal nodes one is drawn."""
    nodes: int
    """The number of nodes in all."""
    feasible: int
    tied: int
    """Nodes that share the best total; 1: there is no tie."""
    best: Sequence[RankedNode]
    """The best nodes, and the pod's own one if it takes the pod; empty: there is one feasible node,
    and nothing to score."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PodExplanation(Recomputed, PodFacts):
    """The reason for which a pod is where it is, waits, or is served by no profile."""

    pod_group: str | None = None
    """namespace/name of the group that it is a member of."""
    owner: str | None = None
    """KIND/NAME of the controller that made it, in its namespace."""
    note: str | None = None
    decision: DecisionFields | None = None
    refused_by_extenders: OtherNodes | None = None
    """Nodes that plugins let pass and extenders refused in the last attempt of a waiting pod."""
    scheduler_said: str | None = None
    """The message of the pod's condition PodScheduled, in the words of the scheduler that wrote
    it. An operator has it in `lastAttempt`."""
    placement_now: PlacementNow | None = None
    """The node for a bound pod whose decision was not seen, if it came now."""
    read: ClusterReading | None = None
    """The reading that the answer was decided on; absent: an operator gave it."""
    observing: str | None = None
    """The schedulerName of the other scheduler that serves the pod, and is observed: nothing is
    written about the pod. Absent: the pod is not of an observed profile."""
    comparison: ObservedComparison | None = None
    """The other scheduler's binding beside our decision; absent: it was not compared, or is no
    longer kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecomputedExplanation(Recomputed):
    """The computed part of an explanation, for a supposed pod."""

    verdicts: RecomputedVerdicts
    stopped: str | None = None
    """The reason why no more changes were tried that would make it fit; absent: all were."""


def names_near(names: Sequence[str], count: int) -> str:
    """The sentence about pods whose names begin as one that is not there; some of `count`."""
    more = ", …" if count > len(names) else ""
    begin = "name begins" if count == 1 else "names begin"
    return f"; {count} {begin} so: {', '.join(names)}{more}"
