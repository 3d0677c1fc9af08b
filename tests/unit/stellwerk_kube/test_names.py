"""Misspelt names get a suggestion, other names get none."""

import pytest

from stellwerk_kube.names import suggestion

KNOWN = ["NodeResourcesFit", "SchedulingGates", "SelectorSpread", "score", "ImageLocality"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        pytest.param("NodeResourceFit", "NodeResourcesFit", id="a letter is missing"),
        pytest.param("noderesourcesfit", "NodeResourcesFit", id="in lower case"),
        pytest.param("ImageLocalty", "ImageLocality", id="another"),
        pytest.param("scoring", "score", id="another ending"),
    ],
)
def test_a_near_name_is_suggested(name: str, meant: str) -> None:
    assert suggestion(name, KNOWN) == f'; did you mean "{meant}"?'


@pytest.mark.parametrize(
    "name", ["Coscheduling", "NodeMetrics", "Schedule", "NetworkSpread", "", "x" * 100_000]
)
def test_a_name_with_parts_in_common_is_not(name: str) -> None:
    assert suggestion(name, KNOWN) == ""
