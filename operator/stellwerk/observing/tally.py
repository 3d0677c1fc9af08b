"""Counts of how another scheduler's bindings compare with an observed profile.

The observer writes it; the operator's port and the metrics show it. Invariant: what is kept of one
profile is bounded, however long it observes, and every binding is counted in one class.
"""

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import Final, get_args

import numpy as np

from stellwerk.answers.observed import (
    BindingLatency,
    ClassCounts,
    ClassShares,
    ComparisonClass,
    DifferenceReason,
    IncomparableReason,
    ObservedComparison,
    ObservedDay,
    ObservedProfile,
    ObservedShadow,
    PluginPoints,
)
from stellwerk.observing.comparison import BindingComparison
from stellwerk.observing.trailing import Binding
from stellwerk.profiles.spec.profile import LoadedProfile
from stellwerk_kube.clock import rfc3339_milliseconds, rfc3339_seconds

CLASSES: Final[tuple[ComparisonClass, ...]] = get_args(ComparisonClass)
MAX_DAYS: Final = 31
"""Days that are counted by themselves; the oldest are dropped. A day takes 300 bytes."""
MAX_COMPARISONS: Final = 1000
"""Last comparisons that are kept: 1 KiB each. Those that are equal are kept as well: a reader sees
what an answer was made of."""
MAX_TALLIED_REASONS: Final = 200
"""Reasons that are counted by themselves. Further ones count as OTHER_REASONS of their plugin."""
OTHER_REASONS: Final = "other reasons"
MAX_LATENCIES: Final = 10_000
"""Last latencies, of which the quantiles are made: 8 bytes each."""
MAX_PLUGINS: Final = 20
"""Plugins that a comparison names."""
_MAX_REASON_CHARACTERS: Final = 300
"""Characters of a reason that are kept: a plugin may give one of any length."""


@dataclass(slots=True)
class _Reason:
    """Bindings that differ for one reason."""

    count: int = 0
    points: int = 0


@dataclass(slots=True)
class Tally:
    """The counts of one observed profile, from when a version of it began to observe."""

    loaded: LoadedProfile
    since: datetime
    decisions: int = 0
    skipped_decisions: int = 0
    counts: Counter[ComparisonClass] = field(default_factory=Counter)
    _days: dict[str, Counter[ComparisonClass]] = field(default_factory=dict)
    """By day, in the order in which they came."""
    _latencies: deque[float] = field(default_factory=lambda: deque(maxlen=MAX_LATENCIES))
    _measured: int = 0
    _reasons: dict[tuple[str, str], _Reason] = field(default_factory=dict)
    """By plugin and reason."""
    _incomparable: Counter[str] = field(default_factory=Counter)
    _last: deque[ObservedComparison] = field(default_factory=lambda: deque(maxlen=MAX_COMPARISONS))

    @property
    def compared(self) -> int:
        """The bindings that were compared."""
        return self.counts.total()

    def put(
        self, binding: Binding, comparison: BindingComparison | None, incomparable: str = ""
    ) -> ComparisonClass:
        """Count a binding that was compared, or cannot be; returns its class."""
        result = comparison.result if comparison is not None and not incomparable else None
        found: ComparisonClass = result or "notComparable"
        self.counts[found] += 1
        if binding.after_seconds is not None:
            self._measured += 1
            self._latencies.append(binding.after_seconds)
        day = binding.seen_at.date().isoformat()
        if day not in self._days:
            self._days[day] = Counter()
            if len(self._days) > MAX_DAYS:
                del self._days[next(iter(self._days))]
        self._days[day][found] += 1
        if incomparable:
            self._incomparable[incomparable] += 1
        elif comparison is not None and found == "differs":
            self._count_reason(comparison)
        self._last.append(_described(binding, comparison, found, incomparable))
        return found

    def _count_reason(self, comparison: BindingComparison) -> None:
        largest = comparison.plugins[0] if comparison.plugins else None
        plugin = comparison.rejected_by or ("" if largest is None else largest.plugin)
        key = plugin, comparison.reason[:_MAX_REASON_CHARACTERS]
        if key not in self._reasons and len(self._reasons) >= MAX_TALLIED_REASONS:
            key = plugin, OTHER_REASONS
        counted = self._reasons.setdefault(key, _Reason())
        counted.count += 1
        if not comparison.rejected_by and largest is not None:
            counted.points += largest.points

    def comparison_of(self, key: str, node_name: str) -> ObservedComparison | None:
        """The kept comparison of a pod on a node; `key`: NAMESPACE/NAME."""
        kept = (each for each in reversed(self._last) if each.pod == key)
        return next((each for each in kept if each.node == node_name), None)

    # --- as answered ----------------------------------------------------------------------------

    def described(
        self,
        waiting: int,
        pending: int,
        comparisons: int,
        compatibility: str,
        shadows: Sequence[ObservedShadow] = (),
    ) -> ObservedProfile:
        """The counts, with up to `comparisons` of the last comparisons.

        `waiting`: pods that wait for the other scheduler; `pending`: bindings that were seen and
        are not compared yet.
        """
        loaded = self.loaded
        percentage = loaded.percentage_of_nodes_to_score
        return ObservedProfile(
            name=loaded.name,
            scheduler_name=loaded.scheduler_name,
            since=rfc3339_seconds(self.since),
            waiting=waiting,
            decisions=self.decisions,
            skipped_decisions=self.skipped_decisions,
            bindings=self.compared + pending,
            compared=self.compared,
            pending=pending,
            counts=_counts(self.counts),
            shares=_shares(self.counts),
            latency=self._latency(),
            percentage_of_nodes_to_score=0 if percentage is None else percentage,
            days=[
                ObservedDay(day=day, compared=counts.total(), counts=_counts(counts))
                for day, counts in sorted(self._days.items(), reverse=True)
            ],
            reasons=list(self._described_reasons()),
            incomparable=[
                IncomparableReason(reason=reason, count=count)
                for reason, count in self._incomparable.most_common()
            ],
            comparisons=list(islice(reversed(self._last), comparisons)),
            compatibility=compatibility,
            shadows=shadows or None,
        )

    def _described_reasons(self) -> Iterator[DifferenceReason]:
        for (plugin, reason), counted in sorted(
            self._reasons.items(), key=lambda each: (-each[1].count, each[0])
        ):
            yield DifferenceReason(
                plugin=plugin, reason=reason, count=counted.count, points=counted.points
            )

    def _latency(self) -> BindingLatency | None:
        if not self._latencies:
            return None
        p50, p90, p99 = np.quantile(np.array(self._latencies), (0.5, 0.9, 0.99)).tolist()
        return BindingLatency(
            count=self._measured,
            measured=len(self._latencies),
            p50_seconds=round(p50, 4),
            p90_seconds=round(p90, 4),
            p99_seconds=round(p99, 4),
        )


def _described(
    binding: Binding,
    comparison: BindingComparison | None,
    result: ComparisonClass,
    incomparable: str,
) -> ObservedComparison:
    """One comparison as it is answered; it holds nothing of the decision."""
    pod, after = binding.pod, binding.after_seconds
    if comparison is None:
        return ObservedComparison(
            at=rfc3339_milliseconds(binding.seen_at),
            pod=pod.key,
            node=pod.node_name,
            result=result,
            best_nodes=(),
            best=0,
            feasible=0,
            total=None,
            best_total=None,
            reason=incomparable,
            scheduled_after_seconds=None if after is None else round(after, 4),
        )
    largest = comparison.plugins[0] if comparison.plugins else None
    named = comparison.rejected_by or ("" if largest is None else largest.plugin)
    return ObservedComparison(
        at=rfc3339_milliseconds(binding.seen_at),
        pod=pod.key,
        node=pod.node_name,
        result=result,
        best_nodes=list(comparison.best_nodes),
        best=comparison.best,
        feasible=comparison.decision.feasible,
        total=comparison.total,
        best_total=comparison.best_total,
        plugin=named,
        points=0 if comparison.rejected_by or largest is None else largest.points,
        plugins=[
            PluginPoints(plugin=each.plugin, points=each.points)
            for each in comparison.plugins[:MAX_PLUGINS]
        ],
        reason=(incomparable or comparison.reason)[:_MAX_REASON_CHARACTERS],
        scheduled_after_seconds=None if after is None else round(after, 4),
    )


def _counts(counts: Counter[ComparisonClass]) -> ClassCounts:
    equal, sampled, differs, found_none, not_comparable = (counts[each] for each in CLASSES)
    return ClassCounts(
        equal=equal,
        sampled=sampled,
        differs=differs,
        found_none=found_none,
        not_comparable=not_comparable,
    )


def _shares(counts: Counter[ComparisonClass]) -> ClassShares:
    total = counts.total() or 1
    equal, sampled, differs, found_none, not_comparable = (
        round(counts[each] / total, 6) for each in CLASSES
    )
    return ClassShares(
        equal=equal,
        sampled=sampled,
        differs=differs,
        found_none=found_none,
        not_comparable=not_comparable,
    )
