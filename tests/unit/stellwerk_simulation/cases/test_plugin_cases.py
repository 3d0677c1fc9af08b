"""Cases of one plugin: what is refused, what fails, and what is asked of the case itself."""

from typing import Any

import pytest

from stellwerk_plugins.pod_state import PodState
from stellwerk_simulation.cases.decide import CaseError
from stellwerk_simulation.cases.plugin_cases import decide_plugin_case, is_plugin_case
from tests.support.builders import make_node, make_pod


def case(**fields: Any) -> dict[str, Any]:
    plain = {"id": "one", "suite": "simple-scores", "plugin": "PodState"}
    return {**plain, "nodes": [make_node("n")], "pod": make_pod("web"), **fields}


def test_scores_are_raw_and_normalised() -> None:
    assert is_plugin_case(case())
    expected = {"id": "one", "raw": {"n": 0}, "normalised": {"n": 0}}
    assert decide_plugin_case(case()) == expected


def test_arguments_that_are_refused_are_an_answer() -> None:
    refused = decide_plugin_case(case(plugin="NodeResourcesAllocatable", args={"mode": "x"}))
    assert "spec.pluginConfig[0].args.mode" in refused["refuses"]


def test_a_plugin_that_raises_ends_its_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(PodState, "score", broken)
    assert "ZeroDivisionError" in decide_plugin_case(case())["error"]


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"plugin": "None"}, "plugin"),
        ({"extra": 1}, "extra"),
        ({"nodes": [{}]}, "nodes[0]"),
        ({"pod": None}, "pod"),
        ({"assigned": {"default/a": float("inf")}}, "assigned.default/a"),
        ({"assigned": [7]}, "assigned"),
        ({"plugin": "QOSSort", "queue": [{"pod": make_pod("a")}]}, "queue[0].timestamp"),
    ],
)
def test_a_malformed_case_names_the_field(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(CaseError) as refused:
        decide_plugin_case(case(**fields))
    assert refused.value.field == place


def test_a_measurement_of_a_time_that_no_clock_shows_is_decided_about() -> None:
    load = {"plugin": "LoadVariationRiskBalancing", "suite": "load-variation"}
    for timestamp in (10**30, float("nan"), "now"):
        decided = decide_plugin_case(case(**load, metrics={"timestamp": timestamp}))
        assert decided["raw"] == {"n": 0}


def test_an_expectation_beyond_any_number_fills_every_node() -> None:
    metrics = {"metrics": [{"type": "CPU", "operator": "AVG", "value": 1}]}
    load = {
        "plugin": "TargetLoadPacking",
        "metrics": {"data": {"NodeMetricsMap": {"n": metrics}}},
        "args": {"defaultRequestsMultiplier": "1e308"},
        "pod": make_pod("web", cpu="4"),
    }
    node = make_node("n", cpu="8")
    node["status"]["capacity"] = node["status"]["allocatable"]
    assert decide_plugin_case(case(**load, nodes=[node]))["raw"] == {"n": 0}
