"""Lines of throughput and latency: whole stretches, gaps, and words for each point."""

from datetime import UTC, datetime, timedelta

from stellwerk.answers.queue import QueueSample
from stellwerk_cli.page.queue_chart import HEIGHT
from stellwerk_cli.page.rate_chart import milliseconds, rate_charts

BEGIN = datetime(2026, 11, 22, 10, tzinfo=UTC)


def sample(number: int, **fields: float) -> QueueSample:
    at = (BEGIN + timedelta(seconds=5 * number)).isoformat()
    none = {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 0, "scheduled": 0}
    return QueueSample(at=at, seconds=5.0, **(none | fields))  # type: ignore[arg-type]


def test_rates_are_those_of_a_second() -> None:
    charts = rate_charts([sample(0), sample(1, bound=10, failed=5)], lambda at: at[11:19])
    assert charts.rates.latest == {"bound": 2.0, "failed": 1.0}
    assert charts.rates.highest == 2
    assert charts.rates.lines["bound"] == f"M0.0,{HEIGHT:.1f} L1000.0,0.0"


def test_a_stretch_of_many_samples_has_one_rate_and_the_longest_latency() -> None:
    samples = [sample(n, bound=5, p50_seconds=0.01, p99_seconds=0.02) for n in range(1000)]
    samples[501] = sample(501, bound=5, p50_seconds=0.5, p99_seconds=0.9)
    charts = rate_charts(samples, str)
    assert len(charts.readings) < 200
    assert charts.rates.highest == 1, "all stretches have the same rate"
    assert charts.latencies.highest == 1000, "the peak is drawn"


def test_a_line_breaks_off_where_no_pod_was_bound() -> None:
    values = [0.01, None, 0.01, 0.02, None]
    samples = [
        sample(n) if it is None else sample(n, p50_seconds=it, p99_seconds=it)
        for n, it in enumerate(values)
    ]
    line = rate_charts(samples, str).latencies.lines["p50"]
    assert (line.count("M"), line.count("L"), line.count("h")) == (2, 1, 1)


def test_a_point_is_read_in_words() -> None:
    samples = [sample(0), sample(1, active=7, bound=10, p50_seconds=0.02, p99_seconds=1.5)]
    _, (x, _, words) = rate_charts(samples, lambda at: at[11:19]).readings
    assert x == 1000
    assert words == (
        "10:00:05: 7 active, 0 backoff, 0 unschedulable, 0 gated; 2 bound and 0 failed per s; "
        "p50 20 ms, p99 1.5 s"
    )


def test_an_operator_of_before_has_no_periods() -> None:
    old = QueueSample(
        at=BEGIN.isoformat(), active=0, backoff=0, unschedulable=0, gated=0, scheduled=9
    )
    charts = rate_charts([old], str)
    assert charts.rates.lines == {"bound": "", "failed": ""}
    assert milliseconds(999.0) == "999 ms"
