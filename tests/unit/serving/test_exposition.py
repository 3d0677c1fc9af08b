"""The exposition is what Prometheus reads, so the tests look at its text."""

from stellwerk.metrics import Metrics
from stellwerk.serving.exposition import exposition


def lines(metrics: Metrics, name: str) -> list[str]:
    text = exposition(metrics).decode()
    return [line for line in text.splitlines() if line.startswith(name)]


def test_counter_is_exposed_under_its_upstream_name() -> None:
    metrics = Metrics()
    metrics.schedule_attempts.labels("scheduled", "stellwerk").inc()
    assert lines(metrics, "scheduler_schedule_attempts_total") == [
        'scheduler_schedule_attempts_total{profile="stellwerk",result="scheduled"} 1.0'
    ]


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


def test_process_metrics_are_exposed() -> None:
    assert lines(Metrics(), "process_resident_memory_bytes")
