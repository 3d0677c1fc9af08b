"""Why a pod is where it is: a sentence, columns that differ, and colours for differences."""

import pytest

from stellwerk.answers.pod import (
    DecisionFields,
    LastPreemption,
    PodExplanation,
    RankedNode,
    ScoreFields,
    VictimFields,
)
from stellwerk_cli.page.score_view import score_map, step, why_there


def ranked(node: str, rank: int, **weighted: int) -> RankedNode:
    scores = {
        name: ScoreFields(raw=it, normalized=it, weighted=it) for name, it in weighted.items()
    }
    return RankedNode(node=node, rank=rank, total=sum(weighted.values()), scores=scores)


def explained(
    *best: RankedNode, tied: int = 1, feasible: int = 9, nominated: bool = False
) -> PodExplanation:
    decision = DecisionFields(
        decided_at="", attempts=1, nodes=10, evaluated=10, feasible=feasible, tied=tied,
        nominated=nominated, best=best,
    )  # fmt: skip
    victims = [VictimFields(pod="a/low", priority=1)]
    last = LastPreemption(
        decided_at="", node="n6", budget_violations=0, victims=victims, candidates=1, others=(),
        nominated_node="n6",
    )  # fmt: skip
    return PodExplanation(
        pod="a/b", state="bound", node="n6", decision=decision, last_preemption=last
    )


N6 = ranked("n6", 1, Taint=300, Fit=80)
N7 = ranked("n7", 2, Taint=300, Fit=73)


@pytest.mark.parametrize(
    ("explanation", "sentence"),
    [
        pytest.param(
            explained(N6, N7),
            "n6: the best of 9 nodes that took it, 7 points above the next (n7), by Fit.",
            id="the best",
        ),
        pytest.param(
            explained(N6, ranked("n5", 1, Taint=300, Fit=80), N7, tied=5),
            "n6: drawn from 5 equal best nodes, 7 points above the next (n7), by Fit.",
            id="a tie",
        ),
        pytest.param(explained(N6, tied=40), "n6: drawn from 40 equal best nodes.", id="all equal"),
        pytest.param(
            explained(N6, feasible=1), "n6: the only one of 10 nodes that took it.", id="alone"
        ),
        pytest.param(explained(), "n6: the only one of 10 nodes that took it.", id="no score"),
        pytest.param(
            explained(nominated=True),
            "n6: it was nominated there, where a/low had been evicted for it.",
            id="nominated",
        ),
        pytest.param(PodExplanation(pod="a/b", state="bound"), "", id="no decision"),
    ],
)
def test_the_reason_is_a_sentence(explanation: PodExplanation, sentence: str) -> None:
    assert why_there(explanation) == sentence


def test_points_of_no_plugin_are_an_extender_s() -> None:
    high = RankedNode(node="n6", rank=1, total=9, scores={})
    low = RankedNode(node="n7", rank=2, total=8, scores={})
    assert why_there(explained(high, low)).endswith("1 point above the next (n7), by an extender.")


def test_equal_columns_are_folded_and_the_one_that_decided_has_the_strongest_colour() -> None:
    small = ranked("n8", 3, Taint=300, Fit=80, Image=0)
    shown = score_map(explained(ranked("n6", 1, Taint=300, Fit=90, Image=1), small))
    assert shown is not None
    assert (shown.plugins, shown.equal) == (["Fit", "Image"], {"Taint": 300})
    assert [[cell.step for cell in row.cells] for row in shown.rows] == [[10, 1], [0, 0]]


@pytest.mark.parametrize(
    ("value", "highest", "expected"),
    [
        pytest.param(0, 100, 0, id="nothing"),
        pytest.param(100, 100, 10, id="all"),
        pytest.param(59, 100, 5, id="in between"),
        pytest.param(10**18, 100, 10, id="beyond the highest"),
        pytest.param(-5, 100, 0, id="below nothing"),
        pytest.param(5, 0, 0, id="of nothing"),
    ],
)
def test_a_step_is_one_of_eleven(value: int, highest: int, expected: int) -> None:
    assert step(value, highest) == expected
