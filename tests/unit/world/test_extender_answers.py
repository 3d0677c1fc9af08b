"""What extenders answered makes the same decision again, from JSON."""

from typing import Any

import numpy as np
import orjson
import pytest
from typing_extensions import override

from stellwerk.framework.status import Status, unschedulable
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.decide import Decision
from stellwerk.world.extender_answers import AnswersMissing, RecordedExtenders, ReplayedExtenders
from stellwerk.world.extenders import ExtenderFilterResult, Extenders
from tests.support.builders import make_node, make_pod
from tests.unit.scheduler.extenders.test_decide import Refusing, decided

NODES = [make_node(f"n{number}") for number in range(9)]


class Choosy(Refusing):
    """Says why it refuses, and prefers later nodes."""

    @override
    async def filter(self, pod: PodInfo, node_names: Any) -> ExtenderFilterResult:
        left = await super().filter(pod, node_names)
        reasons: dict[str, Status] = {self.refused: unschedulable("Extender", "not this one")}
        return ExtenderFilterResult(left.node_names, reasons)

    @override
    async def prioritize(self, pod: PodInfo, node_names: Any) -> IntColumn:
        return np.array([50 * int(name[1:]) for name in node_names], np.int64)


class Indifferent(Choosy):
    """Filters nothing."""

    @override
    async def filter(self, pod: PodInfo, node_names: Any) -> ExtenderFilterResult:
        return ExtenderFilterResult(node_names)


CASES: dict[str, tuple[JsonObject, Extenders]] = {
    "filtered and scored": ({"pod": make_pod("p"), "nodes": NODES}, Choosy("n8")),
    "scored alone": ({"pod": make_pod("p"), "nodes": NODES}, Indifferent("")),
    "a nomination accepted": (
        {"pod": make_pod("p", nominated_node_name="n3"), "nodes": NODES},
        Choosy("n8"),
    ),
    "a nomination refused": (
        {"pod": make_pod("p", nominated_node_name="n8"), "nodes": NODES},
        Choosy("n8"),
    ),
    "a candidate struck out": (
        {
            "pod": make_pod("p", cpu="1", priority=9),
            "nodes": [make_node("n1", cpu="1"), make_node("n2", cpu="1")],
            "pods": [
                make_pod("q1", cpu="1", node_name="n1", priority=1),
                make_pod("q2", cpu="1", node_name="n2", priority=1),
            ],
        },
        Refusing("n1"),
    ),
    "all candidates struck out": (
        {
            "pod": make_pod("p", cpu="1", priority=9),
            "nodes": [make_node("n1", cpu="1")],
            "pods": [make_pod("q", cpu="1", node_name="n1", priority=1)],
        },
        Refusing("n1"),
    ),
}


def said(decision: Decision) -> tuple[object, ...]:
    candidate, failure = decision.candidate, decision.failure
    return (
        decision.node_name,
        None if failure is None else (failure.message, failure.nomination),
        None if candidate is None else [victim.uid for victim in candidate.victims],
        None if decision.total is None else decision.total.tolist(),
    )


@pytest.mark.parametrize("name", CASES)
async def test_the_same_decision_comes_out(name: str) -> None:
    case, extenders = CASES[name]
    profile = {"tieBreakSeed": 3, "extenders": [{"urlPrefix": "http://localhost:1"}]}
    recorded = RecordedExtenders(extenders)
    first = await decided({**case, "profile": profile}, recorded)
    answers = orjson.loads(orjson.dumps(recorded.answers))
    again = await decided({**case, "profile": profile}, ReplayedExtenders(answers))
    assert said(first) == said(again)
    assert answers


async def test_each_decision_has_answers_of_its_own() -> None:
    recorded = RecordedExtenders(Choosy("n8"))
    for _ in range(2):
        await decided({"pod": make_pod("p"), "nodes": NODES}, recorded)
    assert len(recorded.answers) == 2


async def test_a_question_that_was_not_asked_has_no_answer() -> None:
    with pytest.raises(AnswersMissing):
        await decided({"pod": make_pod("p"), "nodes": NODES}, ReplayedExtenders([]))
