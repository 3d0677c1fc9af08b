"""What extenders answered makes the same decision again, from JSON."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest
from typing_extensions import override

from stellwerk.framework.types import Status, unschedulable
from stellwerk.models.pod import PodInfo
from stellwerk.snapshot.columns import IntColumn
from stellwerk.world.decide import Decision
from stellwerk.world.extenders import (
    AnswerSink,
    AnswersMissing,
    ExtenderFilterResult,
    Extenders,
    RecordedExtenders,
    ReplayedExtenders,
)
from stellwerk_kube.errors import SchedulerError
from stellwerk_kube.json_values import JsonObject
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


class Sink(AnswerSink):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.asked_for: list[str] = []
        self.answers: list[Any] = []

    @override
    def asked(self, pod: PodInfo) -> None:
        self.asked_for.append(pod.name)

    @override
    def answered(self, answer: Any) -> None:
        self.answers.append(answer)


def replayed(case: JsonObject, answers: Sequence[Any]) -> Decision:
    """The decision with these answers, one after the other."""
    deciding, left = decided(case, ReplayedExtenders()), deque(answers)
    answer = None
    while True:
        try:
            deciding.send(answer)
        except StopIteration as ended:
            decision: Decision = ended.value
            return decision
        answer = left.popleft()


@pytest.mark.parametrize("name", CASES)
async def test_the_same_decision_comes_out(name: str) -> None:
    case, extenders = CASES[name]
    profile = {"tieBreakSeed": 3, "extenders": [{"urlPrefix": "http://localhost:1"}]}
    sink = Sink()
    first = await decided({**case, "profile": profile}, RecordedExtenders(extenders, sink))
    answers = orjson.loads(orjson.dumps(sink.answers))
    assert said(first) == said(replayed({**case, "profile": profile}, answers))
    assert answers
    assert sink.asked_for == ["p"], "once for each decision"


class Broken(Refusing):
    """Does not answer."""

    @override
    async def filter(self, pod: PodInfo, node_names: Any) -> ExtenderFilterResult:
        raise SchedulerError("no answer")


async def test_a_failure_is_an_answer_too() -> None:
    case, sink = {"pod": make_pod("p"), "nodes": NODES}, Sink()
    with pytest.raises(SchedulerError, match="no answer"):
        await decided(case, RecordedExtenders(Broken(""), sink))
    with pytest.raises(SchedulerError, match="no answer"):
        replayed(case, sink.answers)


@pytest.mark.parametrize(
    "answer",
    [5, [], ["n1"], [["n1"], 5], [["n1"], {"n1": ["Nonsense", [], ""]}], {"x": 1}],
    ids=repr,
)
def test_the_answer_to_another_question_is_none(answer: Any) -> None:
    with pytest.raises(AnswersMissing):
        replayed({"pod": make_pod("p"), "nodes": NODES}, [answer])


def test_scores_of_other_nodes_are_none() -> None:
    with pytest.raises(AnswersMissing):
        replayed({"pod": make_pod("p"), "nodes": NODES}, [[None, {}], [1, 2]])
