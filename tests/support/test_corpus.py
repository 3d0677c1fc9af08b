"""The comparison with recorded decisions sees every difference, and only chance is forgiven."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.corpus import CORPUS, SUITES, Recording, differences, read_suite

SCHEDULED: dict[str, Any] = {
    "id": "scheduled",
    "error": None,
    "filter": {"a": {"fits": True}, "b": {"fits": True}},
    "allFilters": {"a": {}, "b": {}},
    "scores": {"ImageLocality": {"a": {"raw": 0, "normalized": 0, "weighted": 0}}},
    "total": {"a": 7, "b": 7},
    "selected": ["a", "b"],
}
PREEMPTING: dict[str, Any] = {
    "id": "preempting",
    "error": None,
    "filter": {"a": {"fits": False}, "b": {"fits": False}},
    "selected": [],
    "message": "0/2 nodes are available: 2 Insufficient cpu.",
    "preemption": {
        "code": "Success",
        "message": "",
        "nominatedNode": "a",
        "nominatedNodes": ["a", "b"],
        "victims": ["default/low-a"],
        "candidates": {
            "a": {"victims": ["default/low-a"], "pdbViolations": 0},
            "b": {"victims": ["default/low-b"], "pdbViolations": 0},
        },
    },
}


def changed(result: dict[str, Any], change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    other = copy.deepcopy(result)
    change(other)
    return other


def test_every_file_of_the_corpus_is_a_suite() -> None:
    assert sorted(path.name for path in CORPUS.iterdir()) == [
        f"{suite}.jsonl.xz" for suite in SUITES
    ]


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_holds_150_cases_that_agree_with_themselves(suite: str) -> None:
    recordings = list(read_suite(suite))
    assert len({recording.id for recording in recordings}) == 150
    assert [r.id for r in recordings if differences(r.expected, r.expected)] == []
    assert all(_describes_a_cluster(recording) for recording in recordings)


def _describes_a_cluster(recording: Recording) -> bool:
    return (
        recording.case["id"] == recording.id and {"nodes", "pods", "pod"} <= recording.case.keys()
    )


@pytest.mark.parametrize(
    ("expected", "change", "fields"),
    [
        pytest.param(SCHEDULED, lambda got: got.update(error="boom"), ["error"], id="an error"),
        pytest.param(
            SCHEDULED, lambda got: got["filter"]["a"].update(fits=False), ["filter"], id="a verdict"
        ),
        pytest.param(SCHEDULED, lambda got: got.pop("scores"), ["scores"], id="scores left out"),
        pytest.param(
            SCHEDULED,
            lambda got: got.update(total={"a": 8, "b": 7}, selected=["a"]),
            ["total", "selected"],
            id="another total, most telling first",
        ),
        pytest.param(
            SCHEDULED,
            lambda got: got["selected"].reverse(),
            [],
            id="the order of selected is chance",
        ),
        pytest.param(
            SCHEDULED,
            lambda got: got["selected"].append("b"),
            ["selected"],
            id="a node named twice",
        ),
        pytest.param(
            SCHEDULED, lambda got: got.update(selected=None), ["selected"], id="nothing selected"
        ),
        pytest.param(SCHEDULED, lambda got: got.pop("allFilters"), [], id="allFilters is optional"),
        pytest.param(
            SCHEDULED,
            lambda got: got["allFilters"].update(a={"NodeName": ["no"]}),
            ["allFilters"],
            id="allFilters is compared when given",
        ),
        pytest.param(
            SCHEDULED,
            lambda got: got.update(preemption={"code": "Success"}),
            ["preemption"],
            id="preemption where none was recorded",
        ),
        pytest.param(
            PREEMPTING, lambda got: got.pop("preemption"), ["preemption"], id="preemption left out"
        ),
        pytest.param(
            PREEMPTING,
            lambda got: got["preemption"].update(nominatedNode="b", victims=["default/low-b"]),
            [],
            id="any of the nodes that tie may be nominated",
        ),
        pytest.param(
            PREEMPTING,
            lambda got: got["preemption"].update(nominatedNode="b"),
            ["preemption.victims"],
            id="the victims are those of the nominated node",
        ),
        pytest.param(
            PREEMPTING,
            lambda got: got["preemption"].update(nominatedNode=None),
            ["preemption.nominatedNode"],
            id="no nomination where one is due",
        ),
        pytest.param(
            PREEMPTING,
            lambda got: got["preemption"]["candidates"].pop("b"),
            ["preemption.candidates"],
            id="a candidate missed",
        ),
    ],
)
def test_differences_name_the_fields(
    expected: dict[str, Any], change: Callable[[dict[str, Any]], object], fields: list[str]
) -> None:
    assert differences(expected, changed(expected, change)) == fields


@pytest.mark.parametrize(
    ("ignore", "fields"),
    [
        pytest.param(
            (), ["message", "preemption.code", "preemption.message"], id="nothing ignored"
        ),
        pytest.param(("message", "preemption"), [], id="preemption means each of its fields"),
        pytest.param(
            ("preemption.code",), ["message", "preemption.message"], id="one field of preemption"
        ),
    ],
)
def test_ignored_fields_are_not_reported(ignore: tuple[str, ...], fields: list[str]) -> None:
    got = changed(PREEMPTING, lambda result: result.update(message=""))
    got["preemption"].update(code="Error", message="not found")
    assert differences(PREEMPTING, got, ignore=ignore) == fields
