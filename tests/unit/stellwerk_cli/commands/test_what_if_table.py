"""The table of a what-if: who gets which node."""

import io
import re
from dataclasses import replace

import pytest

from stellwerk.answers.what_if import (
    PlacedPod,
    PodsOnKind,
    PodsOnNode,
    PodsWithoutNode,
    PodThatStays,
    TemplateOutcome,
    UnplacedPod,
    WhatIf,
    WouldPreempt,
)
from stellwerk_cli.commands.printer import Printer, console
from stellwerk_cli.commands.what_if_table import print_what_if

HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\u202egnp"


def test_what_if_says_who_lands_where_and_who_does_not() -> None:
    output = io.StringIO()
    answer = WhatIf(
        drained="n1",
        placed=[PlacedPod(pod="default/a", node="n2")],
        unplaced=[UnplacedPod(pod="default/b", message="0/1 nodes are available")],
    )
    print_what_if(answer, Printer(output, width=100))
    text = output.getvalue()
    assert "If n1 were drained" in text
    assert "default/a" in text
    assert "default/b gets no node: 0/1 nodes are available" in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_what_a_tenant_wrote_changes_nothing_on_the_terminal(is_terminal: bool) -> None:  # noqa: FBT001 as parametrized
    output = io.StringIO()
    output.isatty = lambda: is_terminal  # type: ignore[method-assign]
    answer = WhatIf(
        drained=HOSTILE,
        placed=[PlacedPod(pod=HOSTILE, node=HOSTILE)],
        unplaced=[UnplacedPod(pod=HOSTILE, message=HOSTILE)],
    )
    print_what_if(answer, console(output))
    written = re.sub("\x1b\\[[0-9;]*m", "", output.getvalue()) if is_terminal else output.getvalue()
    assert "]0;title" in written
    assert [each for each in written if not each.isprintable() and each != "\n"] == []


FLOOD = [
    UnplacedPod(pod=f"shop/flood-{n}", message="0/2 nodes", controller="Deployment/flood")
    for n in range(30)
]
WEB = [
    PlacedPod(pod=f"shop/web-{n}", node=f"node-{n % 2}", controller="Deployment/web")
    for n in range(3)
]


def printed(answer: WhatIf, *, is_wide: bool = False) -> list[str]:
    output = io.StringIO()
    to = Printer(output, width=80)
    to.is_wide = is_wide
    print_what_if(answer, to)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_the_summary_comes_first_and_alike_pods_are_one_line() -> None:
    bare = [UnplacedPod(pod=f"shop/bare-{n}", message="gone") for n in range(4)]
    staying = [
        PodThatStays(pod=f"shop/s-{n}", node="node-2", budget="shop/b", message="0 allowed")
        for n in range(2)
    ]
    answer = WhatIf(
        drained="node-2",
        placed=[*WEB, PlacedPod(pod="shop/one", node="node-1", tied=2)],
        unplaced=[*bare, *FLOOD],
        lost=["shop/lone", "shop/other"],
        staying=staying,
    )
    assert printed(answer) == [
        "If node-2 were drained: 4 of 42 pods move, 34 find no node, 2 stay where they",
        "are, 2 are lost.",
        "2 pods (shop/lone, shop/other) are lost: no controller recreates them",
        "2 pods (shop/s-0, shop/s-1) stay on node-2: budget shop/b: 0 allowed",
        "POD                            NODE",
        "3 pods of shop/deployment/web  node-0 (2), node-1",
        "shop/one                       node-1 (or 1 equal)",
        "30 pods of shop/deployment/flood get no node: 0/2 nodes",
        "4 pods (shop/bare-0, shop/bare-1, shop/bare-2 and 1 more) get no node: gone",
    ]


def test_wide_lists_each_pod() -> None:
    lines = printed(WhatIf(placed=WEB, unplaced=FLOOD), is_wide=True)
    assert lines[0] == "3 of 33 pods get a node, 30 find no node."
    assert [line for line in lines if line.startswith("shop/web-")] == [
        f"shop/web-{n}  node-{n % 2}" for n in range(3)
    ]
    assert sum(" gets no node: 0/2 nodes" in line for line in lines) == 30


JOB = TemplateOutcome(
    template="batch/Job/train",
    pods=10_000,
    placed=9600,
    unplaced=400,
    nodes=1200,
    by_node=[PodsOnNode(node=f"node-{n}", pods=8) for n in range(100)],
    by_kind=[
        PodsOnKind(kind="m5.large", nodes=1000, pods=8000),
        PodsOnKind(kind="4 CPU, 32 GiB", nodes=200, pods=1600),
    ],
    reasons=[
        PodsWithoutNode(
            message="0/1200 nodes are available: 1200 Insufficient cpu.",
            pods=399,
            would_preempt=WouldPreempt(node="node-7", victims=["shop/low"]),
        )
    ],
    other_reasons=1,
)


def test_ten_thousand_pods_are_a_page_of_text() -> None:
    assert printed(WhatIf(placed=[], unplaced=[], templates=[JOB])) == [
        "9,600 of 10,000 pods get a node, 400 find no node.",
        "batch/job/train: 9,600 of 10,000 pods get a node",
        "  8,000 pods on 1,000 nodes of m5.large",
        "  1,600 pods on 200 nodes of 4 CPU, 32 GiB",
        "  by node: node-0 (8), node-1 (8), node-2 (8), node-3 (8), node-4 (8) and 1,195",
        "more",
        "  399 pods get no node: 0/1200 nodes are available: 1200 Insufficient cpu.",
        "    the first would preempt shop/low on node-7",
        "  1 more pod without a node, for other reasons",
    ]
    wide = printed(WhatIf(placed=[], unplaced=[], templates=[JOB]), is_wide=True)
    assert "node-99 (8)" in " ".join(wide)


def test_templates_whose_pods_are_listed_are_not_counted_twice() -> None:
    listed = replace(JOB, pods=3, placed=3, unplaced=0, listed=True)
    assert printed(WhatIf(placed=WEB, unplaced=[], templates=[listed])) == [
        "3 of 3 pods get a node.",
        "POD                            NODE",
        "3 pods of shop/deployment/web  node-0 (2), node-1",
    ]
