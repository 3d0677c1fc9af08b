"""The text of /metrics: every family of `stellwerk.metrics`, and the process's own figures.

Invariant: a family without series is exposed too, by its name and type.
"""

from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias, assert_never

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from typing_extensions import override

from stellwerk.metrics import Metrics
from stellwerk.series import CounterFamily, GaugeFamily, Histogram, HistogramFamily

AnyFamily: TypeAlias = CounterFamily | GaugeFamily | HistogramFamily
Families: TypeAlias = Sequence[AnyFamily]

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
"""The media type of an exposition."""


def exposition(metrics: Metrics) -> bytes:
    """Return every metric in the Prometheus text format, the process's own included."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(metrics.families))
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def exposition_of(families: Families) -> bytes:
    """Return some families in the Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


class _Families(Collector):
    """The families as prometheus_client collects them."""

    def __init__(self, families: Families) -> None:
        self._families = families

    @override
    def collect(self) -> Iterator[Metric]:
        return (_samples(family) for family in self._families)


def _samples(family: AnyFamily) -> Metric:
    name, text, labels = family.name, family.text, family.label_names
    match family:
        case CounterFamily():
            counters = CounterMetricFamily(name, text, labels=labels)
            for values, counter in family.items():
                counters.add_metric(values, counter.value)
            return counters
        case GaugeFamily():
            gauges = GaugeMetricFamily(name, text, labels=labels)
            for values, gauge in family.items():
                gauges.add_metric(values, gauge.current())
            return gauges
        case HistogramFamily():
            histograms = HistogramMetricFamily(name, text, labels=labels)
            for values, histogram in family.items():
                histograms.add_metric(values, _buckets(histogram), histogram.sum)
            return histograms
        case _:
            assert_never(family)


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """(upper bound, observations up to it): Prometheus counts them cumulatively."""
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        buckets.append((floatToGoString(bound), total))  # type: ignore[no-untyped-call]
    return buckets
