"""Tables fit their width, and say what the JSON says."""

import io
import json
import os
import random
import re
from functools import partial
from typing import Any

import orjson
import pytest
import yaml

from stellwerk.answers.answer import codec
from stellwerk.answers.diagnosis import DoctorReport, Finding
from stellwerk.answers.dump import CacheDifference, CacheDump
from stellwerk.answers.pod import (
    DecisionFields,
    PodExplanation,
    QueueFacts,
    RankedNode,
    ScoreFields,
)
from stellwerk.answers.shadow import ShadowDiff
from stellwerk.answers.what_if import PlacedPod, UnplacedPod, WhatIf
from stellwerk.answers.workload import PodsWaitingAlike, WorkloadExplanation
from stellwerk.explain.report import explain_on
from stellwerk.explain.steps import finished
from stellwerk.models.troubleshooting import DOCUMENT, SITE
from stellwerk_cli.commands.tables import (
    API_VERSION,
    LISTS,
    SHADOW,
    WHAT_IF,
    Printer,
    console,
    print_diagnosis,
    print_dump,
    print_explanation,
    print_shadow,
    print_what_if,
    print_workload,
    show_written,
)
from stellwerk_simulation.cases.decide import Case
from tests.support.builders import make_node, make_pod
from tests.support.recorded_answers import STORIES, recorded


def test_a_finding_fits_80_columns_and_its_texts_are_no_markup() -> None:
    finding = Finding(
        check="operator",
        state="failed",
        what=f"pod {'x' * 120}: the image cannot be pulled",
        remedy="name another one",
        quoted=["[red]not red[/] \x1b[31m\n" + "y" * 200, "[/unclosed"],
    )
    report = DoctorReport(state="failed", items=[finding, finding])
    shown = io.StringIO()
    print_diagnosis(report, console(shown))
    lines = shown.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("failed   operator: ")
    assert "         > name another one" in lines
    assert "[red]not red[/]  [31m" in shown.getvalue()
    assert "[/unclosed" in shown.getvalue()
    assert lines[-1] == "0 ok, 0 warning, 2 failed, 0 unknown"
    wide = console(shown := io.StringIO())
    wide.is_wide = True
    print_diagnosis(report, wide)
    assert len(shown.getvalue().splitlines()) == 9


def test_a_dump_begins_with_what_differs() -> None:
    dump = CacheDump(
        compared_at="2026-01-01T00:00:00Z",
        comparison="cache compared with the API: 3 missed pods",
        compared=True,
        differences=[CacheDifference(kind="missed pods", count=3, names=["a/[b]"])],
        items=["node n1: allocatable cpu=1, 0 pods", "  [a]/b: requests nothing"],
        stopped="the dump ends here",
    )
    shown = io.StringIO()
    print_dump(dump, console(shown))
    first, second, *rest = shown.getvalue().splitlines()
    assert first.startswith("cache compared with the API: 3 missed pods (")
    assert second == "missed pods: a/[b] and 2 more"
    assert rest == [*dump.items, "the dump ends here"]


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


@pytest.mark.parametrize("story", STORIES)
def test_a_pipe_gets_every_row_in_one_line(
    story: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`| cat` and `| grep` see what a terminal of endless width would show."""
    monkeypatch.delenv("COLUMNS", raising=False)
    shown: dict[str, Any] = {"/what-if": WHAT_IF, "/shadow": SHADOW, **LISTS}
    for path, found in json.loads(recorded(story)).items():
        kind: Any = next((each for prefix, each in shown.items() if path.startswith(prefix)), None)
        if found["status"] != 200 or kind is None or path.startswith("/queue/"):
            continue
        widened = lengthened(found["answer"])
        show_written(widened, "table", kind)
        piped = stripped(capsys.readouterr().out)
        endless = io.StringIO()
        kind.table(codec(kind.kind).read(widened), Printer(endless, width=100_000))
        assert piped == stripped(endless.getvalue())


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_a_shadow_that_was_not_compared_yet_has_no_figures() -> None:
    answer = json.loads(recorded("a-shadow"))
    (shadow,) = (each["answer"] for path, each in answer.items() if path == "/shadow/next")
    counted = codec(ShadowDiff).read({**shadow, "compared": 0, "differing": 0, "differences": []})
    output = io.StringIO()
    print_shadow(counted, console(output))
    first = output.getvalue().splitlines()[0]
    assert first == "next decides beside stellwerk: no decision was compared yet"


def lengthened(answer: Any) -> Any:
    """The answer with names of pods and nodes that are longer than any terminal is wide."""
    text = json.dumps(answer)
    return json.loads(re.sub(r'"(node|pod|name)": "([^"]+)"', r'"\1": "\2' + "x" * 300 + '"', text))


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


def test_the_width_that_the_environment_names_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "57")
    assert console(io.StringIO()).width == 57


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
        assert lines[-1] == f"decided as Kubernetes {expected}"
        assert sum("decided as" in line for line in lines) == 1


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


def test_a_closed_pipe_is_left_to_the_command_line() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as closed:
        with pytest.raises(BrokenPipeError):
            console(closed).print("x" * 100_000)
        # What is left in the buffer has somewhere to go when the file is closed.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, writing)
        os.close(nowhere)


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


HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\u202egnp"


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


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_escape_what_a_terminal_would_obey(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"message": HOSTILE, "plain": "ü 漢", "\U000e0001": "\x85"}
    show_written(answer, form, LISTS["/queue"])
    written = capsys.readouterr().out
    assert [each for each in written if not each.isprintable() and each != "\n"] == []
    read = orjson.loads if form == "json" else yaml.safe_load
    assert read(written) == {"apiVersion": API_VERSION, "kind": "QueuePage", **answer}


@pytest.mark.parametrize(
    ("site", "link"),
    [
        (None, DOCUMENT.as_uri()),
        ("", DOCUMENT.as_uri()),
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
