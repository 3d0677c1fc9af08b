"""How another scheduler's bindings compare with an observed profile's decisions, as answered.

`observing.tally` makes it, `stellwerk observe report` and the page show it. Invariant: the counts
by class add up to the bindings that were compared, in all and for each day.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from stellwerk.answers.answer import PortAnswer, Time

ComparisonClass = Literal["equal", "sampled", "differs", "foundNone", "notComparable"]
"""How a binding of the other scheduler compares with the decision of the observed profile.

- equal: its node is among our best ones.
- sampled: our best node scores more, and the other scheduler does not score every node.
- differs: our best node scores more, or our filters turn its node away.
- foundNone: we found no node for the pod.
- notComparable: others of the same scheduler were bound within a second around it, and without
  some of them or with some of them its node is among our best; or the state in which the other
  scheduler decided cannot be known for another reason, which is said.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts(PortAnswer):
    """Bindings by class."""

    equal: int
    sampled: int
    differs: int
    found_none: int
    not_comparable: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassShares(PortAnswer):
    """Shares of the compared bindings by class, from 0 to 1; all are 0 if none was compared."""

    equal: float
    sampled: float
    differs: float
    found_none: float
    not_comparable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedDay(PortAnswer):
    """The bindings that were compared on one day, in UTC."""

    day: str
    """As 2026-11-30."""
    compared: int
    counts: ClassCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingLatency(PortAnswer):
    """The time from when a pod could be scheduled until the other scheduler's binding was seen.

    Both moments are the observer's: a pod is seen when its creation is delivered by the watch. Of
    pods that waited when observing began, the time is not known, and they do not count.
    """

    count: int
    """Bindings that were measured."""
    measured: int
    """The last ones among them, of which these are the quantiles."""
    p50_seconds: float
    p90_seconds: float
    p99_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferenceReason(PortAnswer):
    """Why bindings differ, by the plugin that made the largest difference or rejected the node."""

    plugin: str
    reason: str
    """The plugin's reason against the other scheduler's node; empty: its scores made the
    difference."""
    count: int
    points: int
    """The sum of the points that our best nodes have more by this plugin; 0 if it rejects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomparableReason(PortAnswer):
    """Why bindings could not be compared."""

    reason: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginPoints(PortAnswer):
    """The points that our best node has more than the other scheduler's, by one plugin."""

    plugin: str
    points: int
    """Weighted; negative: the plugin speaks for the other scheduler's node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedComparison(PortAnswer):
    """One binding of the other scheduler, compared."""

    at: Time
    """When the binding was seen."""
    pod: str
    node: str
    """The other scheduler's node."""
    result: ComparisonClass
    best_nodes: Sequence[str]
    """Our best nodes, at most five of them; empty: we found none."""
    best: int
    """The number of our best nodes: more than one is a tie."""
    feasible: int
    """The number of nodes that pass our filters."""
    total: int | None
    """Our total for its node; null: the node does not pass our filters, or nothing was scored."""
    best_total: int | None
    """Our total for our best nodes; null: nothing was scored."""
    plugin: str = ""
    """The plugin that made the largest difference, or rejects its node."""
    points: int = 0
    """The points that our best node has more by this plugin."""
    plugins: Sequence[PluginPoints] = ()
    """Every plugin that makes a difference, the largest first."""
    reason: str = ""
    """Why its node does not pass our filters, why we found none, or why this cannot be compared."""
    scheduled_after_seconds: float | None = None
    """From when the pod could be scheduled until its binding was seen; absent: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProfile(PortAnswer):
    """A profile with `mode: Observe`, and how the other scheduler's bindings compare with it."""

    name: str
    scheduler_name: str
    since: Time
    """When this process began to observe; counts begin there."""
    waiting: int
    """Pods that wait for the other scheduler now."""
    decisions: int
    """Decisions made for pods that wait."""
    skipped_decisions: int
    """Decisions left out in bursts; these pods are explained when somebody asks."""
    bindings: int
    """Bindings of the other scheduler that were seen."""
    compared: int
    """Bindings that were compared; the sum of the counts."""
    pending: int
    """Bindings that were seen and are not compared yet."""
    counts: ClassCounts
    shares: ClassShares
    latency: BindingLatency | None
    """Null: no binding was measured yet."""
    percentage_of_nodes_to_score: int
    """How the other scheduler samples, as the profile says; 0: by kube-scheduler's default; 100:
    it scores every node."""
    days: Sequence[ObservedDay]
    """The newest day first."""
    reasons: Sequence[DifferenceReason]
    """Why bindings differ, the most frequent reason first."""
    incomparable: Sequence[IncomparableReason]
    """Why bindings could not be compared, the most frequent reason first."""
    comparisons: Sequence[ObservedComparison]
    """The last comparisons, the newest first."""
    compatibility: str | None = None
    """The Kubernetes release that our decisions follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPage(PortAnswer):
    """Every observed profile."""

    items: Sequence[ObservedProfile]
