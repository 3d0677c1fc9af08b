"""The outcome of a supposition: a summary first, and pods that are alike as one line."""

import pytest

from stellwerk.answers.what_if import EndedPod, PlacedPod, PodThatStays, UnplacedPod, WhatIf
from stellwerk_cli.page.what_if_view import placed_alike, summary, unplaced_alike

FLOOD = "Deployment/flood"


def placed(number: int, node: str = "a", controller: str | None = None) -> PlacedPod:
    return PlacedPod(pod=f"ml/p-{number}", node=node, controller=controller)


def unplaced(number: int, message: str, controller: str | None = None) -> UnplacedPod:
    return UnplacedPod(pod=f"ml/u-{number}", message=message, controller=controller)


STAYING = PodThatStays(pod="a/b", node="n", budget="a/c", message="")
ENDED = EndedPod(pod="a/b", reason="deleted", made_anew=True)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        pytest.param(WhatIf(placed=(), unplaced=()), "", id="nothing"),
        pytest.param(
            WhatIf(
                drained="n",
                placed=[placed(n) for n in range(3)],
                unplaced=[unplaced(n, "full") for n in range(5)],
            ),
            "3 of 8 pods move, 5 find no node.",
            id="a drain",
        ),
        pytest.param(
            WhatIf(drained="n", placed=[placed(1)], unplaced=(), staying=[STAYING], lost=["a/l"]),
            "1 of 3 pods moves, 1 stays where it is, 1 is lost.",
            id="some that do not move",
        ),
        pytest.param(
            WhatIf(placed=(), unplaced=[unplaced(1, "full")]),
            "0 of 1 pod get a node, 1 finds no node.",
            id="one that waits",
        ),
        pytest.param(
            WhatIf(placed=[placed(1), placed(2)], unplaced=(), ended=[ENDED]),
            "2 of 2 pods move.",
            id="pods that are made anew",
        ),
    ],
)
def test_the_summary_counts(answer: WhatIf, text: str) -> None:
    assert summary(answer) == text


def test_pods_of_one_controller_are_one_line() -> None:
    answer = WhatIf(
        placed=[placed(1, "a", FLOOD), placed(2, "b", FLOOD), placed(3, "b", FLOOD), placed(4)],
        unplaced=[
            *(unplaced(n, "0/3 nodes are available", FLOOD) for n in range(30)),
            unplaced(31, "0/3 nodes are available"),
            unplaced(32, "its group waits", FLOOD),
        ],
    )
    flood, alone = placed_alike(answer)
    assert (flood.nodes, len(flood.pods), alone.pods) == ({"a": 1, "b": 2}, 3, ["ml/p-4"])
    assert [(len(each.pods), each.message) for each in unplaced_alike(answer)] == [
        (30, "0/3 nodes are available"),
        (1, "0/3 nodes are available"),
        (1, "its group waits"),
    ]
