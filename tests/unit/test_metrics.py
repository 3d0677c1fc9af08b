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
