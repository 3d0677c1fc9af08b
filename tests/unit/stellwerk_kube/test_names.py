"""The syntax of names; misspelt names get a suggestion, other names get none."""

import pytest

from stellwerk_kube.names import is_dns_1035_label, is_label, suggestion

KNOWN = ["NodeResourcesFit", "SchedulingGates", "SelectorSpread", "score", "ImageLocality"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        pytest.param("NodeResourceFit", "NodeResourcesFit", id="a letter is missing"),
        pytest.param("noderesourcesfit", "NodeResourcesFit", id="in lower case"),
        pytest.param("ImageLocalty", "ImageLocality", id="another"),
        pytest.param("scoring", "score", id="another ending"),
        pytest.param("scroe", "score", id="two letters are swapped"),
        pytest.param("NodeResourcesFti", "NodeResourcesFit", id="swapped at the end"),
    ],
)
def test_a_near_name_is_suggested(name: str, meant: str) -> None:
    assert suggestion(name, KNOWN) == f'; did you mean "{meant}"?'


@pytest.mark.parametrize("name", ["bgi", "ibg"])
def test_swapped_letters_of_a_short_name_are_one_mistake(name: str) -> None:
    assert suggestion(name, ["big"]) == '; did you mean "big"?'


@pytest.mark.parametrize(
    "name", ["Coscheduling", "NodeMetrics", "Schedule", "NetworkSpread", "", "x" * 100_000]
)
def test_a_name_with_parts_in_common_is_not(name: str) -> None:
    assert suggestion(name, KNOWN) == ""


@pytest.mark.parametrize(
    ("name", "is_1123", "is_1035"),
    [
        pytest.param("a-1", True, True, id="letters, digits and dashes"),
        pytest.param("1a", True, False, id="a digit first"),
        pytest.param("a-", False, False, id="a dash last"),
        pytest.param("a.b", False, False, id="a dot"),
        pytest.param("", False, False, id="nothing"),
        pytest.param("a\n", False, False, id="a line end"),
        pytest.param("a" * 63, True, True, id="the longest"),
        pytest.param("a" * 64, False, False, id="a longer one"),
    ],
)
def test_labels_of_both_standards(name: str, is_1123: bool, is_1035: bool) -> None:  # noqa: FBT001  (a table)
    assert is_label(name) is is_1123
    assert is_dns_1035_label(name) is is_1035
