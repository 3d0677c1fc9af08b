"""What commands print for programs is as docs/answers.json says it is."""

import json
from typing import Any

import orjson
import pytest

from stellwerk_cli.commands.explained_group import GROUP
from stellwerk_cli.commands.explained_pod import POD
from stellwerk_cli.commands.listings import shown_lists
from stellwerk_cli.commands.output import API_VERSION, show_answer, show_written
from stellwerk_cli.commands.schemas import document, printed_kinds, written
from stellwerk_cli.commands.shadow import shown_shadow
from stellwerk_cli.commands.what_if_table import WHAT_IF
from stellwerk_simulation.answers import (
    DefragAnswer,
    FitAnswer,
    PlannedMove,
    ReplayAnswer,
    ReplayComparison,
    ReplayDifference,
    ReplayedProfile,
    SimulatedPod,
    SimulatedRun,
    SimulationAnswer,
)
from tests.support.json_schema import violations
from tests.support.recorded_answers import STORIES, recorded
from tests.support.repository import ROOT

SCHEMAS = document()["components"]["schemas"]


def checked(text: str) -> Any:
    answer = orjson.loads(text)
    assert answer["apiVersion"] == API_VERSION
    assert list(violations(answer, SCHEMAS[answer["kind"]], SCHEMAS)) == []
    return answer


def test_the_published_document_is_that_of_the_code() -> None:
    path = ROOT / "docs" / "answers.json"
    assert path.read_text() == written(), (
        "run python -m stellwerk_cli.commands.schemas > docs/answers.json"
    )
    assert {kind.__name__ for kind in printed_kinds()} <= SCHEMAS.keys()


@pytest.mark.parametrize("story", STORIES)
def test_recorded_answers_are_printed_as_described(
    story: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: dict[str, Any] = {"/what-if": WHAT_IF, "/shadow": shown_shadow(), **shown_lists()}
    for path, found in json.loads(recorded(story)).items():
        if found["status"] != 200:
            continue
        kind: Any = next((each for prefix, each in shown.items() if path.startswith(prefix)), None)
        if path.startswith("/explain/"):
            kind = GROUP if "/podgroups/" in path else POD
        if kind is None or path.startswith("/queue/"):
            continue
        show_written(found["answer"], "json", kind)
        checked(capsys.readouterr().out)


@pytest.mark.parametrize(
    "answer",
    [
        SimulationAnswer(
            runs=[
                SimulatedRun(
                    profile="p",
                    seed=1,
                    compatibility="1.36",
                    placed=1,
                    left_out=1,
                    figures={"placed": 1.0},
                    pods=[SimulatedPod(pod="a/b", node="n"), SimulatedPod(pod="a/c", reason="no")],
                )
            ],
            conclusions=["x"],
        ),
        FitAnswer(
            compatibility="1.36",
            nodes={"n": 1},
            cost=1.0,
            bound=1.0,
            placed=1,
            homeless={},
            left_out={"a": "b"},
        ),
        DefragAnswer(
            compatibility="1.37",
            goal="nodes=1",
            frees=["n"],
            cordons=[],
            moves=[PlannedMove(pod="a/b", from_node="n", to="m", ties=[], held=False)],
            simulations=5,
            waiting=0,
            stay={"why": 1},
        ),
        ReplayAnswer(
            decisions=1,
            equal=0,
            groups=0,
            unknown=0,
            differences=[
                ReplayDifference(pod="a/b", attempt=1, after_seconds=0.5, recorded="x", now="y")
            ],
        ),
        ReplayComparison(
            profiles=[
                ReplayedProfile(
                    profile="p",
                    placed=1,
                    arrived=2,
                    waited_p50_seconds=0.1,
                    waited_p99_seconds=0.2,
                    nodes_in_use=1.5,
                    most_nodes_in_use=2,
                    preempted=0,
                )
            ]
        ),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_answers_of_the_simulation_are_printed_as_described(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    show_answer(answer, "json")
    printed = checked(capsys.readouterr().out)
    if isinstance(answer, DefragAnswer):
        assert printed["moves"][0]["from"] == "n"
