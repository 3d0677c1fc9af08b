"""Cases of one plugin: what is refused, what fails, and what is asked of the case itself."""

from typing import Any

import pytest

from stellwerk.cases.decide import CaseError
from stellwerk.cases.plugin_cases import decide_plugin_case, is_plugin_case
from stellwerk_plugins.pod_state import PodState
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
    ],
)
def test_a_malformed_case_names_the_field(fields: dict[str, Any], place: str) -> None:
    with pytest.raises(CaseError) as refused:
        decide_plugin_case(case(**fields))
    assert refused.value.field == place
