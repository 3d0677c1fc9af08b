"""Usage of nodes as columns: what counts, what is refused, and what is too old."""

import gc
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.handle import NothingMeasured
from stellwerk.framework.services import PluginMetrics
from stellwerk.metrics import Metrics
from stellwerk.scheduler.observers.instruments import PluginFamilies
from stellwerk_plugins.load.node_usage import KIND, UsageTable, checked_usage, go_round
from tests.support.builders import make_cache, make_node
from tests.support.plugin_runs import PluginHandle

END = 1_772_354_000


def answer(nodes: dict[str, Any], end: int = END) -> dict[str, Any]:
    metrics = {
        name: {"metrics": [{"type": "CPU", "operator": "AVG", "value": value}]}
        for name, value in nodes.items()
    }
    return {"window": {"end": end}, "data": {"NodeMetricsMap": metrics}}


class Table:
    """A table over three nodes, with a clock and a source that answers when told to."""

    def __init__(self, max_age_seconds: float = 300, metrics: PluginMetrics | None = None) -> None:
        self.objects, self.now_seconds = IndexedObjectStore(), float(END)
        self.cache = make_cache([make_node("a"), make_node("b"), make_node("c")])
        handle: Any = PluginHandle(
            self.cache.snapshot,
            self.objects,
            now=lambda: datetime.fromtimestamp(self.now_seconds, UTC),
            metrics=metrics or NothingMeasured(),
        )
        self.table = UsageTable(handle, "test", max_age_seconds)

    def answers(self, given: dict[str, Any]) -> None:
        self.objects.hold(KIND, {"metadata": {"name": "test"}, **checked_usage(given)})

    def cpu(self) -> dict[str, float | None]:
        self.table.refresh()
        column, rows = self.table.column("cpuLast"), self.cache.snapshot.row_of
        return {
            name: None if np.isnan(column[row]) else float(column[row])
            for name, row in rows.items()
        }


def test_without_an_answer_no_node_is_measured() -> None:
    table = Table()
    assert table.cpu() == {"a": None, "b": None, "c": None}
    assert "has not answered" in table.table.explained(["a", "b", "c"])


def test_nodes_of_another_cluster_count_nowhere() -> None:
    table = Table()
    table.answers(answer({"b": 20, "elsewhere": 90}))
    assert table.cpu() == {"a": None, "b": 20.0, "c": None}
    assert "2 of 3 nodes have no measurement (a, c)" in table.table.explained(["a", "b", "c"])


def test_a_node_that_comes_later_has_its_measurement_at_once() -> None:
    table = Table()
    table.answers(answer({"d": 7}))
    assert "d" not in table.cpu()
    from stellwerk_kube.node import parse_node  # noqa: PLC0415

    table.cache.set_node(parse_node(make_node("d")))
    table.cache.update_snapshot()
    assert table.cpu()["d"] == 7.0


def test_what_is_too_old_counts_as_missing_from_that_moment_on() -> None:
    table = Table(max_age_seconds=300)
    table.answers(answer({"a": 20}))
    revision = table.table.refresh()
    table.now_seconds = END + 300
    assert table.cpu()["a"] == 20.0
    table.now_seconds = END + 301
    assert table.cpu()["a"] is None
    assert table.table.revision != revision, "cached scores would go on"
    assert "maxAgeSeconds" in table.table.explained(["a"])


def test_what_is_measured_far_ahead_of_the_clock_counts_as_missing() -> None:
    table = Table(max_age_seconds=300)
    table.answers(answer({"a": 20}, end=END + 10**9))
    assert table.cpu()["a"] is None
    assert "1000000000 s ahead of this clock" in table.table.explained(["a"])
    given = answer({"a": 20, "b": 30})
    given["data"]["NodeMetricsMap"]["b"]["timestamp"] = END + 301
    table.answers(given)
    assert table.cpu() == {"a": 20.0, "b": None, "c": None}


def test_an_end_that_no_clock_shows_is_none() -> None:
    assert checked_usage({"window": {"end": 10**400}})["end"] == 0


def test_zero_takes_measurements_of_any_age_as_upstream_does() -> None:
    table = Table(max_age_seconds=0)
    table.answers(answer({"a": 20}))
    table.now_seconds = END + 10**6
    assert table.cpu()["a"] == 20.0


def test_a_node_whose_own_measurement_is_old_is_left_out_alone() -> None:
    table = Table(max_age_seconds=300)
    given = answer({"a": 20, "b": 30})
    given["data"]["NodeMetricsMap"]["b"]["timestamp"] = END - 301
    table.answers(given)
    assert table.cpu() == {"a": 20.0, "b": None, "c": None}


@pytest.mark.parametrize("value", [1e30, 10**400, -1, float("nan"), float("inf"), True, "70", None])
def test_what_is_no_number_is_left_out_and_counted(value: Any) -> None:
    checked = checked_usage(answer({"a": value}))
    assert checked["cpuLast"] == [None]
    assert checked["refused"] == 1


@pytest.mark.parametrize("given", [None, [], "usage", 7])
def test_an_answer_of_another_form_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="an object is expected"):
        checked_usage(given)


@pytest.mark.parametrize(
    "given",
    [{"data": []}, {"data": {"NodeMetricsMap": [1]}}, {"data": {"NodeMetricsMap": {"a": 1}}}],
)
def test_parts_of_another_form_say_nothing(given: Any) -> None:
    checked = checked_usage(given)
    assert all(value is None for value in checked["cpuLast"])


def test_more_nodes_than_any_cluster_has_are_refused() -> None:
    nodes: dict[str, Any] = {str(number): {} for number in range(50_001)}
    with pytest.raises(ValueError, match="more than 50000 nodes"):
        checked_usage({"data": {"NodeMetricsMap": nodes}})


def test_rounding_is_half_away_from_zero_as_in_go() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 2.4])
    assert go_round(values).tolist() == [1.0, 2.0, 3.0, -1.0, -2.0, 0.0, 2.0]


def test_a_node_measured_long_before_the_answer_is_too_old_at_its_own_time() -> None:
    table = Table(max_age_seconds=300)
    given = answer({"a": 20, "b": 30})
    given["data"]["NodeMetricsMap"]["a"]["timestamp"] = END - 200
    table.answers(given)
    table.now_seconds = END + 100
    assert table.cpu() == {"a": 20.0, "b": 30.0, "c": None}
    table.now_seconds = END + 101
    assert table.cpu() == {"a": None, "b": 30.0, "c": None}


def test_the_nodes_without_a_measurement_that_counts_are_a_metric() -> None:
    metrics = Metrics()
    tables = [Table(metrics=PluginFamilies(metrics))]
    (table,) = tables
    family = metrics.gauge_of_plugins("stellwerk_nodes_without_usage", "", ("profile", "source"))

    def shown() -> float:
        tables[0].table.refresh()
        return family.labels("default-scheduler", "test").current()

    assert shown() == 3
    table.answers(answer({"a": 20, "elsewhere": 30}))
    assert shown() == 2
    table.now_seconds = END + 301
    assert shown() == 3
    del table, tables[0]
    gc.collect()
    assert family.size == 0
