"""What is counted of one observed profile stays bounded, and adds up."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from stellwerk.answers.observed import ClassCounts
from stellwerk.observing.comparison import BindingComparison, PluginDifference
from stellwerk.observing.tally import (
    CLASSES,
    MAX_COMPARISONS,
    MAX_DAYS,
    MAX_LATENCIES,
    MAX_TALLIED_REASONS,
    OTHER_REASONS,
    Tally,
)
from stellwerk.observing.trailing import Binding
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.world.decide import Decision
from tests.support.builders import pod_info
from tests.support.in_process import make_profile

NOW = datetime(2026, 11, 30, 23, 59, tzinfo=UTC)
DECISION = Decision(None, feasible=4)  # type: ignore[arg-type]


def tally() -> Tally:
    manifest = make_profile("observed", "others", mode="Observe")
    return Tally(load_profile(manifest, known_plugins()), NOW)


def binding(at: datetime = NOW, after_seconds: float | None = None) -> Binding:
    pod = pod_info("web", node_name="a")
    return Binding(pod, pod_info("web"), "others", 0.0, at, after_seconds)


def compared(result: Any, **more: Any) -> BindingComparison:
    return BindingComparison(DECISION, result, ("b",), 1, **more)


def test_every_class_is_counted_and_the_sum_is_what_was_compared() -> None:
    counted = tally()
    for number, each in enumerate(CLASSES, 1):
        for _ in range(number):
            counted.put(binding(), compared(each), "no" if each == "notComparable" else "")
    found = counted.described(0, 2, 10, "1.36.2")
    assert found.counts == ClassCounts(
        equal=1, sampled=2, differs=3, found_none=4, not_comparable=5
    )
    assert (found.compared, found.pending, found.bindings) == (15, 2, 17)
    shares = found.shares
    assert sum(
        (shares.equal, shares.sampled, shares.differs, shares.found_none, shares.not_comparable)
    ) == pytest.approx(1)
    assert [(each.day, each.counts) for each in found.days] == [("2026-11-30", found.counts)]


def test_days_are_in_utc_and_the_oldest_go() -> None:
    counted = tally()
    for day in range(MAX_DAYS + 5):
        counted.put(binding(NOW + timedelta(days=day)), compared("equal"))
    found = counted.described(0, 0, 0, "")
    assert len(found.days) == MAX_DAYS
    assert found.days[0].day == "2027-01-04"
    assert found.counts.equal == MAX_DAYS + 5


def test_reasons_are_bounded_and_the_rest_counts_by_plugin() -> None:
    counted = tally()
    for number in range(MAX_TALLIED_REASONS + 50):
        counted.put(binding(), compared("differs", rejected_by="Own", reason=f"reason {number}"))
    points = [PluginDifference("NodeResourcesFit", 7), PluginDifference("ImageLocality", -2)]
    counted.put(binding(), compared("differs", total=1, plugins=points))
    found = counted.described(0, 0, 1, "")
    assert len(found.reasons) <= MAX_TALLIED_REASONS + 2
    assert sum(each.count for each in found.reasons) == MAX_TALLIED_REASONS + 51
    assert (found.reasons[0].plugin, found.reasons[0].reason) == ("Own", OTHER_REASONS)
    (last,) = found.comparisons
    assert (last.plugin, last.points, len(last.plugins)) == ("NodeResourcesFit", 7, 2)


def test_comparisons_and_latencies_are_bounded() -> None:
    counted = tally()
    for number in range(MAX_LATENCIES + 100):
        counted.put(binding(after_seconds=float(number >= 100)), compared("equal"))
    found = counted.described(0, 0, 10**6, "")
    assert len(found.comparisons) == MAX_COMPARISONS
    assert found.latency is not None
    assert (found.latency.count, found.latency.measured) == (MAX_LATENCIES + 100, MAX_LATENCIES)
    assert (found.latency.p50_seconds, found.latency.p99_seconds) == (1.0, 1.0)


def test_a_reason_of_any_length_is_cut() -> None:
    counted = tally()
    counted.put(binding(), compared("differs", rejected_by="Own", reason="x" * 10_000))
    found = counted.described(0, 0, 1, "")
    assert len(found.reasons[0].reason) == len(found.comparisons[0].reason) == 300
