"""Label selectors and node selectors, one requirement at a time."""

import pytest

from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.selectors import (
    EVERYTHING,
    LabelSelector,
    NodeSelectorTerm,
    Requirement,
    parse_integer,
    parse_label_selector,
    parse_node_selector,
    parse_preferred_terms,
)


@pytest.mark.parametrize(
    ("operator", "values", "value", "matches"),
    [
        ("In", ["a", "b"], "a", True),
        ("In", ["a", "b"], "c", False),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], "b", True),
        ("NotIn", ["a"], "a", False),
        ("NotIn", ["a"], None, True),
        ("Exists", [], "", True),
        ("Exists", [], None, False),
        ("DoesNotExist", [], None, True),
        ("DoesNotExist", [], "", False),
        ("Gt", ["4"], "5", True),
        ("Gt", ["4"], "4", False),
        ("Gt", ["-4"], "-3", True),
        ("Gt", ["4"], None, False),
        ("Gt", ["4"], "many", False),
        ("Gt", ["many"], "5", False),
        ("Gt", ["4", "5"], "6", False),
        ("Lt", ["4"], "3", True),
        ("Lt", ["4"], "4", False),
        ("Lt", ["4"], "+3", True),
    ],
)
def test_a_requirement(
    operator: str, values: list[str], value: str | None, *, matches: bool
) -> None:
    assert Requirement("key", operator, frozenset(values)).matches_value(value) is matches


@pytest.mark.parametrize(
    "value", ["1_0", " 10", "10 ", "1e1", "\N{ARABIC-INDIC DIGIT FOUR}", "9223372036854775808"]
)
def test_an_integer_is_one_as_go_reads_it(value: str) -> None:
    assert not Requirement("key", "Gt", frozenset({"1"})).matches_value(value)


def test_the_largest_integers() -> None:
    largest = Requirement("key", "Lt", frozenset({"9223372036854775807"}))
    assert largest.matches_value("9223372036854775806")
    assert largest.matches_value("-9223372036854775808")


def test_an_unknown_operator_is_refused() -> None:
    with pytest.raises(ValueError, match="'in' is not a valid selector operator"):
        Requirement("key", "in", frozenset({"a"}))


@pytest.mark.parametrize(
    ("selector", "labels", "matches"),
    [
        pytest.param({}, {}, True, id="an empty selector matches everything"),
        pytest.param({"matchLabels": {"a": "1"}}, {"a": "1", "b": "2"}, True, id="labels"),
        pytest.param({"matchLabels": {"a": "1", "b": "2"}}, {"a": "1"}, False, id="all of them"),
        pytest.param(
            {
                "matchLabels": {"a": "1"},
                "matchExpressions": [{"key": "b", "operator": "DoesNotExist"}],
            },
            {"a": "1", "b": ""},
            False,
            id="labels and expressions together",
        ),
    ],
)
def test_a_label_selector(selector: JsonObject, labels: dict[str, str], *, matches: bool) -> None:
    parsed = parse_label_selector(selector)
    assert parsed is not None
    assert parsed.matches(labels) is matches


def test_no_selector_stays_none() -> None:
    assert parse_label_selector(None) is None
    assert parse_label_selector({}) == EVERYTHING


def test_equal_selectors_are_equal_whatever_the_order_of_their_labels() -> None:
    one = parse_label_selector({"matchLabels": {"a": "1", "b": "2"}})
    other = parse_label_selector({"matchLabels": {"b": "2", "a": "1"}})
    assert one == other
    assert hash(one) == hash(other)


def test_a_selector_is_narrowed_by_labels_that_are_there() -> None:
    labels = {"app": "web", "hash": "x"}
    narrowed = EVERYTHING.with_values(labels, ["hash", "absent"], "In")
    assert narrowed == LabelSelector((Requirement("hash", "In", frozenset({"x"})),))
    assert narrowed.with_values(labels, ["hash"], "In") == narrowed, "nothing is said twice"
    assert not EVERYTHING.with_values(labels, ["hash"], "NotIn").matches(labels)
    assert EVERYTHING.with_values(labels, ["absent"], "In") == EVERYTHING


NAMED: JsonObject = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
ON_SSD: JsonObject = {"key": "disk", "operator": "In", "values": ["ssd"]}


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        pytest.param([], False, id="no term: no node"),
        pytest.param([{}], False, id="an empty term: no node"),
        pytest.param([{"matchExpressions": [ON_SSD]}], True, id="an expression"),
        pytest.param([{"matchFields": [NAMED]}], True, id="a name"),
        pytest.param(
            [{"matchExpressions": [ON_SSD], "matchFields": [{**NAMED, "values": ["n2"]}]}],
            False,
            id="expressions and fields of a term together",
        ),
        pytest.param(
            [{"matchExpressions": [{**ON_SSD, "values": ["hdd"]}]}, {"matchFields": [NAMED]}],
            True,
            id="one term is enough",
        ),
    ],
)
def test_a_node_selector(terms: list[JsonObject], *, matches: bool) -> None:
    selector = parse_node_selector({"nodeSelectorTerms": terms})
    assert selector is not None
    assert selector.matches({"disk": "ssd"}, "n1") is matches


def test_no_node_selector_stays_none() -> None:
    assert parse_node_selector(None) is None


def test_preferred_terms_keep_weight_and_order() -> None:
    first, second = parse_preferred_terms(
        [{"weight": 1, "preference": {"matchExpressions": [ON_SSD]}}, {"weight": 50}]
    )
    assert (first.weight, second.weight) == (1, 50)
    assert first.term.matches({"disk": "ssd"}, "any")
    assert second.term == NodeSelectorTerm()
    assert parse_preferred_terms(None) == ()


@pytest.mark.parametrize(
    ("text", "number"),
    [
        pytest.param("+7", 7, id="sign"),
        pytest.param("-9223372036854775808", -(1 << 63), id="the least"),
        pytest.param("9223372036854775808", None, id="one too many"),
        pytest.param("0" * 5000 + "7", 7, id="leading zeros"),
        pytest.param("9" * 100_000, None, id="more digits than Python reads"),
        pytest.param("+-7", None, id="two signs"),
        pytest.param("1_000", None, id="underscore"),
        pytest.param(" 1", None, id="space"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_an_integer(text: str, number: int | None) -> None:
    assert parse_integer(text) == number
