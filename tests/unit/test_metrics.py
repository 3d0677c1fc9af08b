"""The exposition is what Prometheus reads, so the tests look at its text."""

import json
import timeit

import pytest

from stellwerk.metrics import Family, Histogram, Metrics, attempts_label, exponential
from tests.support.repository import TRANSCRIPTS

RECORDED = TRANSCRIPTS / "scheduler"


def lines(metrics: Metrics, name: str) -> list[str]:
    text = metrics.exposition().decode()
    return [line for line in text.splitlines() if line.startswith(name)]


def test_exponential_bounds_multiply_step_by_step() -> None:
    assert exponential(0.001, 2, 4) == (0.001, 0.002, 0.004, 0.008)
    assert exponential(0.00001, 1.5, 20)[-1] == pytest.approx(0.0221683782)


def test_counter_is_exposed_under_its_upstream_name() -> None:
    metrics = Metrics()
    metrics.schedule_attempts.labels("scheduled", "stellwerk").inc()
    assert lines(metrics, "scheduler_schedule_attempts_total") == [
        'scheduler_schedule_attempts_total{profile="stellwerk",result="scheduled"} 1.0'
    ]


def test_a_batch_counts_as_that_many_observations() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe_repeated(1.5, 4)
    assert (histogram.counts, histogram.sum) == ([0, 4, 0], 6.0)


def test_histogram_buckets_are_cumulative_and_end_at_infinity() -> None:
    metrics = Metrics()
    for victims in (1, 1, 3, 1000):
        metrics.preemption_victims.labels().observe(victims)
    assert lines(metrics, "scheduler_preemption_victims") == [
        'scheduler_preemption_victims_bucket{le="1.0"} 2.0',
        'scheduler_preemption_victims_bucket{le="2.0"} 2.0',
        'scheduler_preemption_victims_bucket{le="4.0"} 3.0',
        'scheduler_preemption_victims_bucket{le="8.0"} 3.0',
        'scheduler_preemption_victims_bucket{le="16.0"} 3.0',
        'scheduler_preemption_victims_bucket{le="32.0"} 3.0',
        'scheduler_preemption_victims_bucket{le="64.0"} 3.0',
        'scheduler_preemption_victims_bucket{le="+Inf"} 4.0',
        "scheduler_preemption_victims_count 4.0",
        "scheduler_preemption_victims_sum 1005.0",
    ]


def test_gauge_is_read_at_the_scrape() -> None:
    metrics = Metrics()
    waiting = [3]
    metrics.pending_pods.labels("active").set_function(lambda: waiting[0])
    waiting[0] = 7
    assert lines(metrics, "scheduler_pending_pods") == [
        'scheduler_pending_pods{queue="active"} 7.0'
    ]


def test_series_without_labels_exist_from_the_start() -> None:
    assert lines(Metrics(), "scheduler_preemption_attempts_total") == [
        "scheduler_preemption_attempts_total 0.0"
    ]


def test_removed_series_are_no_longer_exposed() -> None:
    metrics = Metrics()
    metrics.unschedulable_pods.labels("NodeName", "gone").set(2)
    metrics.unschedulable_pods.remove("NodeName", "gone")
    assert lines(metrics, "scheduler_unschedulable_pods") == []


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


def test_process_metrics_are_exposed() -> None:
    assert lines(Metrics(), "process_resident_memory_bytes")


def test_a_pods_share_of_metrics_costs_less_than_twenty_microseconds() -> None:
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

    best_seconds = min(timeit.repeat(one_pod, number=1000, repeat=7)) / 1000
    assert best_seconds < 20e-6


def test_families_have_the_names_and_labels_that_kube_scheduler_exposes() -> None:
    if not RECORDED.is_dir():
        pytest.skip("the recordings of kube-scheduler are not beside this checkout")
    left_out = ("scheduler_batch_", "scheduler_get_node_hint_", "scheduler_store_schedule_results_")
    ours = {
        family.name: set(family.label_names)
        for family in vars(Metrics()).values()
        if isinstance(family, Family)
    }
    theirs = {
        series
        for path in RECORDED.glob("*.json")
        for change in json.loads(path.read_text())["metricsChanged"]
        if not (series := change["series"]).startswith(left_out)
    }
    assert theirs
    for series in theirs:
        name, _, labels = series.removesuffix("}").partition("{")
        label_names = {label.partition("=")[0] for label in labels.split(",") if label}
        assert ours[name.removesuffix("_count")] == label_names, series
