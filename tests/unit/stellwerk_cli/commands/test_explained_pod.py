"""The table of an explanation fits its width, and says what the JSON says."""

import io
import json
import random
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import (
    DecisionFields,
    LastPreemption,
    PodExplanation,
    PreemptedBy,
    PreemptionNow,
    QueueFacts,
    RankedNode,
    ScoreFields,
    VictimFields,
)
from stellwerk.answers.what_if import WhatIf
from stellwerk.answers.workload import PodsWaitingAlike, WorkloadExplanation
from stellwerk.explain.report import explain_on
from stellwerk.explain.steps import finished
from stellwerk.models.troubleshooting import PAGE, SITE
from stellwerk_cli.commands.explained_pod import print_explanation
from stellwerk_cli.commands.explained_workload import print_workload
from stellwerk_cli.commands.printer import Printer, console
from stellwerk_cli.commands.what_if_table import print_what_if
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod
from tests.support.recorded_answers import recorded


def waiting() -> PodExplanation:
    """The explanation of a pod that is too large, in a cluster of nodes with long names."""
    nodes = [make_node(f"node-{'x' * 60}-{n}", cpu="1") for n in range(4)]
    loaded = Case({"id": "w", "nodes": nodes, "pod": make_pod("web", cpu="2")})
    fork = loaded.world.fork(random.Random(0))
    found = finished(explain_on(fork, loaded.pod, loaded.profile))
    return PodExplanation(
        pod="default/[web]",
        scheduler_name="stellwerk",
        priority=0,
        state="waiting",
        queue=QueueFacts(
            queue="unschedulablePods",
            since="2026-01-01T00:00:00Z",
            attempts=3,
            unschedulable_attempts=3,
            consecutive_errors=0,
        ),
        verdicts=found.verdicts,
        preemption=found.preemption,
        would_fit=found.would_fit,
    )


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    output = io.StringIO()
    print_explanation(waiting(), Printer(output, width=width))
    lines = output.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "[web]" in lines[0]


def test_every_suggestion_and_every_plugin_is_printed() -> None:
    output, explanation = io.StringIO(), waiting()
    print_explanation(explanation, Printer(output, width=400))
    assert explanation.would_fit
    for suggestion in explanation.would_fit:
        assert suggestion.text in output.getvalue()
    assert explanation.verdicts is not None
    assert explanation.verdicts.by_plugin
    for verdict in explanation.verdicts.by_plugin:
        assert verdict.plugin in output.getvalue()


def test_there_is_no_colour_without_a_terminal() -> None:
    output = io.StringIO()
    print_explanation(waiting(), console(output))
    assert "\x1b" not in output.getvalue()


def test_the_last_line_of_an_answer_says_which_release_it_follows() -> None:
    decision = DecisionFields(
        decided_at="2026-01-01T00:00:00Z",
        compatibility="1.36.5",
        attempts=1,
        nodes=1,
        evaluated=1,
        feasible=1,
        tied=1,
        nominated=False,
        best=[],
    )
    pod = PodExplanation(pod="a/b", state="bound", node="n", decision=decision)
    cause = PodsWaitingAlike(reason="no room", pods=["a/c"], explanation=waiting())
    workload = WorkloadExplanation(
        workload="Deployment/d", namespace="a", pods=1, with_node=0, waiting=[cause]
    )
    of_waiting = waiting().verdicts
    assert of_waiting is not None
    for show, expected in (
        (partial(print_explanation, pod), "1.36.5"),
        (partial(print_explanation, waiting()), of_waiting.compatibility),
        (partial(print_workload, workload), of_waiting.compatibility),
        (
            partial(print_what_if, WhatIf(compatibility=["1.37.1"], placed=[], unplaced=[])),
            "1.37.1",
        ),
    ):
        output = io.StringIO()
        show(Printer(output, width=100))
        lines = output.getvalue().splitlines()
        assert lines[-1] == f"decisions follow Kubernetes {expected}"
        assert sum("decisions follow" in line for line in lines) == 1


WHY = "minRunSeconds spares 1 pod that has run for less than 600 s"


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param(
            {
                "preempted": PreemptedBy(
                    by="a/urgent",
                    by_priority=9,
                    priority=0,
                    node="n",
                    decided_at="2026-01-01T00:00:00Z",
                    decided_by=WHY,
                )
            },
            id="of a victim",
        ),
        pytest.param(
            {
                "last_preemption": LastPreemption(
                    decided_at="2026-01-01T00:00:00Z",
                    node="n",
                    budget_violations=0,
                    victims=[VictimFields(pod="a/old", priority=0)],
                    candidates=1,
                    others=[],
                    nominated_node="n",
                    decided_by=WHY,
                )
            },
            id="of a preemptor",
        ),
    ],
)
def test_what_decided_against_kube_schedulers_order_is_printed(fields: dict[str, Any]) -> None:
    output = io.StringIO()
    explanation = PodExplanation(pod="a/b", state="bound", node="n", **fields)
    print_explanation(explanation, Printer(output, width=200))
    assert f"Chosen against kube-scheduler's order: {WHY}." in output.getvalue()


def test_what_preemption_would_decide_against_that_order_is_printed() -> None:
    output, explanation = io.StringIO(), waiting()
    victims = [VictimFields(pod="a/old", priority=0)]
    now = PreemptionNow(node="n", victims=victims, decided_by=WHY)
    print_explanation(replace(explanation, preemption=now), Printer(output, width=200))
    assert f"Chosen against kube-scheduler's order: {WHY}." in output.getvalue()


def test_a_plugins_remark_on_the_decision_is_printed() -> None:
    decision = DecisionFields(
        decided_at="2026-01-01T00:00:00Z",
        attempts=2,
        nodes=2,
        evaluated=2,
        feasible=2,
        tied=1,
        nominated=False,
        best=[],
        remarks=["DoNotSchedule over zone counted as ScheduleAnyway"],
    )
    output = io.StringIO()
    pod = PodExplanation(pod="a/b", state="bound", node="n", decision=decision)
    print_explanation(pod, Printer(output, width=200))
    assert "DoNotSchedule over zone counted as ScheduleAnyway.\n" in output.getvalue()


def test_names_of_plugins_are_broken_between_words_where_they_are_too_wide() -> None:
    score = ScoreFields(raw=1, normalized=1, weighted=1)
    plugins = ("NodeResourcesBalancedAllocation", "InterPodAffinity", "CSILimits", "lower-case")
    best = RankedNode(node="n", rank=1, total=4, scores=dict.fromkeys(plugins, score))
    decision = DecisionFields(
        decided_at="t",
        attempts=1,
        nodes=1,
        evaluated=1,
        feasible=1,
        tied=1,
        nominated=False,
        best=[best],
    )
    explained = PodExplanation(pod="a/b", state="bound", node="n", decision=decision)
    printed = {}
    for width in (80, 200):
        output = io.StringIO()
        print_explanation(explained, Printer(output, width=width))
        printed[width] = output.getvalue()
    assert "NodeResourcesBalancedAllocation" in printed[200]
    assert {"Node", "Resources", "Balanced", "Allocation", "CSILimits"} <= {*printed[80].split()}


@pytest.mark.parametrize(
    ("site", "link"),
    [
        (None, f"{PAGE.as_uri()}#insufficient"),
        ("", f"{PAGE.as_uri()}#insufficient"),
        (
            "https://docs.example.com/stellwerk/",
            "https://docs.example.com/stellwerk/troubleshooting.html#insufficient",
        ),
        (
            "https://a.example/[/link]\x1b",
            "https://a.example/%5B/link%5D%1B/troubleshooting.html#insufficient",
        ),
    ],
)
def test_a_terminal_that_knows_links_leads_from_a_reason_to_what_to_do(
    site: str | None, link: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if site is None:
        monkeypatch.delenv(SITE, raising=False)
    else:
        monkeypatch.setenv(SITE, site)
    shown = io.StringIO()
    shown.isatty = lambda: True  # type: ignore[method-assign]
    print_explanation(waiting(), Printer(shown, width=200))
    assert f";{link}\x1b\\" in shown.getvalue()
    plain = io.StringIO()
    print_explanation(waiting(), Printer(plain, width=200))
    assert "Insufficient cpu" in plain.getvalue()
    assert "https://" not in plain.getvalue()
    assert "file://" not in plain.getvalue()


@pytest.mark.parametrize("name", ["pods", "a-queue", "devices", "preemption"])
def test_explanations_fit_a_narrow_terminal_without_a_broken_word(name: str) -> None:
    found = json.loads(recorded(name)).items()
    pods = [
        each["answer"]
        for path, each in found
        if path.count("/") == 3 and "verdicts" in each["answer"]
    ]
    assert pods
    for answer in pods:
        wide, narrow = io.StringIO(), io.StringIO()
        for output, width in ((wide, 10_000), (narrow, 80)):
            explained = codec(PodExplanation).read(answer)
            print_explanation(explained, Printer(output, width=width, no_color=True))
        lines = narrow.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        assert not any(line != line.rstrip() for line in lines)
        whole = {*wide.getvalue().split()}
        for word in {*narrow.getvalue().split()} - whole:
            is_part = any(word.rstrip(",") in each for each in whole)
            assert is_part, word
            assert word[0].isupper(), "only names of plugins are broken, at capitals"
