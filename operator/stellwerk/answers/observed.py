"""The comparison of another scheduler's bindings with an observed profile, as it is answered.

`observing.tally` makes it, `stellwerk observe report` and the page show it. Invariant: the counts
by class add up to the bindings that were compared, in all and for each day.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, Literal

from stellwerk.answers.answer import PortAnswer, Time
from stellwerk.answers.words import age

ComparisonClass = Literal["equal", "sampled", "differs", "foundNone", "notComparable"]
"""The class of a binding of the other scheduler, compared with the observed profile's decision.

- equal: its node is among our best ones.
- sampled: our best node scores more, and the other scheduler does not score every node.
- differs: our best node scores more, or our filters turn its node away.
- foundNone: we found no node for the pod.
- notComparable: others of the same scheduler were bound within a second around it, and without
  some of them or with some of them its node is among our best; or the state in which the other
  scheduler decided cannot be known for another reason, which is said.
"""

CLASS_WORDS: Final[Mapping[str, str]] = {
    "equal": "equal",
    "sampled": "sampled",
    "differs": "differs",
    "foundNone": "we found none",
    "notComparable": "not comparable",
}
"""The classes in the words of tables and pages, in the order in which they are shown."""
ONE_STEP: Final = (
    "A shadow's regret is of one step: each pod is decided on the cluster as the other scheduler "
    "made it, and its own choices change nothing. What follows from them is a simulation: "
    "stellwerk record, then stellwerk simulate --replay FILE --profile SHADOW."
)
"""The sentence beside the figures of a shadow of an observed profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassCounts(PortAnswer):
    """Bindings by class."""

    equal: int
    sampled: int
    differs: int
    found_none: int
    not_comparable: int

    def by_class(self) -> dict[str, int]:
        """The counts by class, in the order in which they are shown."""
        counts = (self.equal, self.sampled, self.differs, self.found_none, self.not_comparable)
        return dict(zip(CLASS_WORDS, counts, strict=True))


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
    """A reason why bindings differ, by the plugin with the largest difference or a rejection."""

    plugin: str
    reason: str
    """The plugin's reason against the other scheduler's node; empty: its scores made the
    difference."""
    count: int
    points: int
    """The sum of the points that our best nodes have more by this plugin; 0 if it rejects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IncomparableReason(PortAnswer):
    """A reason why bindings could not be compared."""

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
    """The time at which the binding was seen."""
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
    """The reason why its node does not fit, we found none, or it cannot be compared."""
    scheduled_after_seconds: float | None = None
    """From when the pod could be scheduled until its binding was seen; absent: not known."""

    def our_best(self) -> str:
        """Our best nodes in words: one name, and how many share its total."""
        if not self.best_nodes:
            return "none"
        # Of nodes that are equally good, the other scheduler's own is the one to name.
        first = self.node if self.node in self.best_nodes else self.best_nodes[0]
        return first if self.best == 1 else f"{first} and {self.best - 1} more"

    def sentence(self) -> str:
        """The result, and what makes it so."""
        words = CLASS_WORDS[self.result]
        best = self.our_best()
        match self.result:
            case "equal":
                tie = f" {self.best}" if self.best > 1 else ""
                why = f"{self.node} is among our{tie} best nodes" if tie else "it is our best node"
            case "foundNone" | "notComparable":
                why = self.reason.removesuffix(".")
            case _ if self.reason:
                by = f"{self.plugin} rejects {self.node}" if self.plugin else self.node
                why = f"{by}: {self.reason}; our best is {best}"
            case _:
                points = "" if self.best_total is None else f" with {self.best_total} points"
                made = ", ".join(f"{each.plugin} {each.points:+}" for each in self.plugins)
                why = f"our best is {best}{points}, and its node has {self.total}"
                why += f" ({made})" if made else ""
                if self.result == "sampled":
                    why += "; the other scheduler does not score every node"
        return f"{words}: {why}"

    def made_by(self) -> str:
        """The plugin that made the difference with its points, or the reason."""
        if self.reason:
            return ": ".join(filter(None, (self.plugin, self.reason)))
        return f"{self.plugin} {self.points:+}" if self.plugin else ""


@dataclass(frozen=True, slots=True)
class ComparedBindings:
    """The table of comparisons, for commands."""

    items: Sequence[ObservedComparison]
    TITLES: ClassVar[Sequence[str]] = ("POD", "NODE", "AGE", "RESULT", "OUR BEST", "MADE BY")
    NONE: ClassVar[str] = "No binding has been compared yet."

    def rows(self) -> Iterator[tuple[str, ...]]:
        """The cells of each comparison."""
        for each in self.items:
            words = CLASS_WORDS[each.result]
            yield (each.pod, each.node, age(each.at), words, each.our_best(), each.made_by())

    def count(self) -> int:
        """The comparisons."""
        return len(self.items)

    def remarks(self) -> Iterator[str]:
        """No line stands below the table."""
        return iter(())

    def names(self) -> Iterator[str]:
        """The pods."""
        return (each.pod for each in self.items)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedShadow(PortAnswer):
    """A profile with shadowOf beside an observed one.

    Its regret is of one step: each pod is decided on the cluster as the other scheduler made it.
    """

    name: str
    compared: int
    differing: int
    """Compared decisions in which it chose another node."""
    mean_gain_points: float
    """The points that its own nodes score more, on average, by its own plugins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProfile(PortAnswer):
    """A profile with `mode: Observe`, and how the other scheduler's bindings compare with it."""

    name: str
    scheduler_name: str
    since: Time
    """The time at which this process began to observe; counts begin there."""
    waiting: int
    """Pods that wait for the other scheduler now."""
    decisions: int
    """Decisions made for pods that wait."""
    skipped_decisions: int
    """Decisions left out in bursts; explanations decide on these pods when they are made."""
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
    """The share of nodes that the other scheduler scores, as the profile says; 0: kube-scheduler's
    default; 100: it scores every node."""
    days: Sequence[ObservedDay]
    """The newest day first."""
    reasons: Sequence[DifferenceReason]
    """Reasons for which bindings differ, the most frequent one first."""
    incomparable: Sequence[IncomparableReason]
    """Reasons for which bindings could not be compared, the most frequent one first."""
    comparisons: Sequence[ObservedComparison]
    """The last comparisons, the newest first."""
    compatibility: str | None = None
    """The Kubernetes release that our decisions follow."""
    shadows: Sequence[ObservedShadow] | None = None
    """The profiles that shadow it; absent: there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedPage(PortAnswer):
    """Every observed profile."""

    items: Sequence[ObservedProfile]
