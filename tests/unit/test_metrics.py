"""What is counted, under which names, and what counting costs."""

import time
import timeit

import pytest

from stellwerk.metrics import Metrics, attempts_label
from stellwerk.series import Family, Histogram, exponential
from tests.support.machine_speed import addition_seconds
from tests.support.recordings import scenario, scenarios


def test_exponential_bounds_multiply_step_by_step() -> None:
    assert exponential(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential(0.00001, 1.5, 20)[-1] == pytest.approx(0.0221683782)


def test_a_batch_counts_as_that_many_observations() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe_repeated(1.5, 4)
    assert (histogram.counts, histogram.sum) == ([0, 4, 0], 6.0)


def test_wrong_number_of_label_values_is_refused() -> None:
    family = Family("name", "text", ("one", "two"), lambda: Histogram((1.0,)))
    with pytest.raises(ValueError, match="has labels"):
        family.labels("only one")


@pytest.mark.parametrize(
    ("attempts", "label"),
    [pytest.param(1, "1", id="first"), (14, "14"), pytest.param(15, "15+", id="many")],
)
def test_attempts_label_ends_at_fifteen(attempts: int, label: str) -> None:
    assert attempts_label(attempts) == label


def test_a_pods_share_of_metrics_costs_little() -> None:
    """One attempt, twelve extension points, thirty evaluations: the shape of a real cycle."""
    metrics = Metrics()
    profile = metrics.profile("stellwerk")
    points = [
        metrics.framework_extension_point_duration.labels(f"{number}", "Success", "stellwerk")
        for number in range(12)
    ]
    evaluations = [
        metrics.plugin_evaluation.labels(f"plugin-{number}", "Filter", "stellwerk")
        for number in range(30)
    ]

    def one_pod() -> None:
        profile.attempt("scheduled", 0.002)
        for point in points:
            point.observe(0.0003)
        for evaluation in evaluations:
            evaluation.inc()

    timer = time.thread_time
    best_seconds = min(timeit.repeat(one_pod, timer=timer, number=1000, repeat=7)) / 1000
    assert best_seconds < 500 * addition_seconds(), "20 µs where one takes 40 ns"


ATTEMPT = exponential(0.001, 2, 15)
POINT = exponential(0.0001, 2, 12)
PLUGIN = exponential(0.00001, 1.5, 20)
SLOW = exponential(0.01, 2, 20)

KUBE_SCHEDULER: dict[str, tuple[set[str], tuple[float, ...]]] = {
    "schedule_attempts_total": ({"result", "profile"}, ()),
    "scheduling_attempt_duration_seconds": ({"result", "profile"}, ATTEMPT),
    "scheduling_algorithm_duration_seconds": (set(), ATTEMPT),
    "pod_scheduling_sli_duration_seconds": ({"attempts"}, SLOW),
    "pod_scheduling_attempts": (set(), exponential(1, 2, 5)),
    "framework_extension_point_duration_seconds": (
        {"extension_point", "status", "profile"},
        POINT,
    ),
    "plugin_execution_duration_seconds": ({"plugin", "extension_point", "status"}, PLUGIN),
    "plugin_evaluation_total": ({"plugin", "extension_point", "profile"}, ()),
    "podgroup_schedule_attempts_total": ({"result", "profile"}, ()),
    "podgroup_scheduling_algorithm_duration_seconds": (set(), ATTEMPT),
    "podgroup_scheduling_attempt_duration_seconds": ({"result", "profile"}, ATTEMPT),
    "pending_pods": ({"queue"}, ()),
    "queue_incoming_pods_total": ({"queue", "event"}, ()),
    "unschedulable_pods": ({"plugin", "profile"}, ()),
    "pod_scheduled_after_flush_total": (set(), ()),
    "preemption_victims": (set(), exponential(1, 2, 7)),
    "preemption_attempts_total": (set(), ()),
    "preemption_goroutines_duration_seconds": ({"result"}, SLOW),
    "preemption_goroutines_execution_total": ({"result"}, ()),
    "permit_wait_duration_seconds": ({"result"}, ATTEMPT),
    "goroutines": ({"operation"}, ()),
    "cache_size": ({"type"}, ()),
    "event_handling_duration_seconds": ({"event"}, POINT),
    "queueing_hint_execution_duration_seconds": ({"plugin", "event", "hint"}, PLUGIN),
    "inflight_events": ({"event"}, ()),
    "resourceclaim_creates_total": ({"status"}, ()),
    "dra_bindingconditions_allocations_total": ({"profile", "driver", "status"}, ()),
    "dra_bindingconditions_wait_duration_seconds": (
        {"profile", "driver", "status"},
        exponential(0.1, 2, 14),
    ),
    "volume_binder_cache_requests_total": ({"operation"}, ()),
    "volume_scheduling_stage_error_total": ({"operation"}, ()),
}
"""Those of v1.36 that mean something here: labels, and the buckets of histograms."""


@pytest.mark.parametrize("name", KUBE_SCHEDULER)
def test_families_of_kube_scheduler_have_its_labels_and_buckets(name: str) -> None:
    family = next(each for each in Metrics().families if each.name == f"scheduler_{name}")
    labels, buckets = KUBE_SCHEDULER[name]
    series = family.labels(*("x" for _ in family.label_names))
    assert set(family.label_names) == labels
    assert (series.bounds if isinstance(series, Histogram) else ()) == buckets


def test_no_family_takes_kube_schedulers_prefix_for_something_else() -> None:
    theirs = {f"scheduler_{name}" for name in KUBE_SCHEDULER}
    named = {each.name for each in Metrics().families if each.name.startswith("scheduler_")}
    assert named == theirs


def test_families_have_the_names_and_labels_that_kube_scheduler_exposes() -> None:
    names = scenarios()
    if not names:
        pytest.skip("no scenarios of kube-scheduler are beside this clone")
    left_out = ("scheduler_batch_", "scheduler_get_node_hint_", "scheduler_store_schedule_results_")
    ours = {family.name: set(family.label_names) for family in Metrics().families}
    theirs = {
        series
        for name in names
        for change in scenario(name)["metricsChanged"]
        if not (series := change["series"]).startswith(left_out)
    }
    assert theirs
    for series in theirs:
        name, _, labels = series.removesuffix("}").partition("{")
        label_names = {label.partition("=")[0] for label in labels.split(",") if label}
        assert ours[name.removesuffix("_count")] == label_names, series
