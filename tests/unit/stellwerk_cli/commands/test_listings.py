"""Lists of the operator: all of their pages, of one namespace or of all, as tables."""

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any
from unittest.mock import ANY

import aiohttp
import pytest
from aiohttp import web

from stellwerk.answers.answer import codec
from stellwerk.answers.pod import PodExplanation, RecomputedVerdicts
from stellwerk.answers.workload import PodsWaitingAlike, WorkloadExplanation
from stellwerk.client.operator_port import OperatorPort
from stellwerk_cli.cli import main
from stellwerk_cli.commands import output
from stellwerk_cli.commands.explained_workload import WORKLOAD
from stellwerk_cli.commands.listings import QUEUE, shown_lists
from stellwerk_cli.commands.listings import _entries as entries
from stellwerk_cli.commands.output import show, show_written
from stellwerk_cli.commands.printer import console
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import device, held
from tests.support.explaining_port import explaining_port, two_nodes, with_devices
from tests.support.in_process import make_profile, quiet

PENDING = {
    "queue": "activeQ",
    "schedulerName": "default-scheduler",
    "priority": 0,
    "since": "2026-01-01T00:00:00Z",
    "attempts": 1,
    "rejectedBy": ["NodeResourcesFit", "TaintToleration"],
}
PODS = [{**PENDING, "pod": f"{'team' if number % 2 else 'other'}/p{number}"} for number in range(7)]


async def pages(request: web.Request) -> web.Response:
    """At most three at once, as an operator gives at most 5000."""
    offset = int(request.query.get("offset", 0))
    page = PODS[offset : offset + min(3, int(request.query["limit"]))]
    return web.json_response({"counts": {"activeQ": 7}, "total": len(PODS), "items": page})


@pytest.mark.parametrize(("namespace", "expected"), [(None, 7), ("team", 3), ("nobody", 0)])
async def test_all_pages_are_asked_for(namespace: str | None, expected: int) -> None:
    app = web.Application()
    app.router.add_get("/queue", pages)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with aiohttp.ClientSession() as session:
            port = OperatorPort(session, f"http://127.0.0.1:{runner.addresses[0][1]}")

            def is_inside(entry: Mapping[str, Any]) -> bool:
                return str(entry["pod"]).startswith(f"{namespace}/")

            answer = await entries(port, QUEUE.path, is_inside if namespace else None, None, {})
            beginning = await entries(port, QUEUE.path, None, 2, {})
    finally:
        await runner.cleanup()
    assert (len(answer["items"]), answer["total"]) == (expected, expected)
    assert (len(beginning["items"]), beginning["total"]) == (2, 7), "a table asks for its rows"


def table(path: str, answer: dict[str, Any]) -> list[list[str]]:
    output = io.StringIO()
    shown = shown_lists()[path]
    shown.table(codec(shown.kind).read(answer), console(output))
    return [line.split() for line in output.getvalue().splitlines()]


def test_the_queue_as_a_table() -> None:
    lines = table("/queue", {"counts": {}, "total": 1, "items": PODS[:1]})
    assert lines[0] == ["POD", "QUEUE", "FOR", "PRIORITY", "ATTEMPTS", "REJECTED", "BY"]
    pod, queue, age, priority, attempts, *rejected = lines[1]
    assert (pod, queue, priority, attempts) == ("other/p0", "activeQ", "0", "1")
    assert age[-1] in "dy"
    assert rejected == ["NodeResourcesFit,", "TaintToleration"]


def test_more_rows_than_anybody_reads_are_counted() -> None:
    lines = table("/queue", {"counts": {}, "total": 600, "items": PODS[:1] * 600})
    assert len(lines) == 1 + 500 + 1
    assert lines[-1] == ["100", "more:", "-o", "json", "has", "all"]


def test_nodes_with_what_is_requested() -> None:
    node = {
        "name": "node-1",
        "allocatable": {"cpu": 4000, "memory": 8 << 30, "pods": 110},
        "requested": {"cpu": 1500, "memory": 1 << 30, "pods": 3},
        "labels": {},
        "taints": [{"key": "a", "value": "", "effect": "NoSchedule"}],
        "unschedulable": False,
    }
    head, row = table("/nodes", {"total": 1, "items": [node]})
    assert head == ["NODE", "CPU", "MEMORY", "GiB", "PODS", "TAINTS"]
    assert row == ["node-1", "1.5/4", "1/8", "3/110", "a:NoSchedule"]


@pytest.mark.parametrize(
    ("path", "line"),
    [("/queue", "No pod waits."), ("/decisions", "No pod has been placed yet.")],
)
def test_an_empty_list_is_a_sentence(path: str, line: str) -> None:
    empty = {"counts": {}, "total": 0, "items": []}
    if path != "/queue":
        del empty["counts"]
    assert table(path, empty) == [line.split()]


@pytest.mark.parametrize("command", ["queue", "decisions", "nodes", "devices"])
def test_an_operator_that_does_not_answer_is_status_3(command: str) -> None:
    assert main([command, "--url", "http://127.0.0.1:1"]) == 3


@contextlib.asynccontextmanager
async def port_with_queue(items: list[dict[str, Any]]) -> AsyncIterator[str]:
    """The URL of a port whose queue has these pods."""

    async def first_page(_: web.Request) -> web.Response:
        return web.json_response({"counts": {}, "total": len(items), "items": items})

    app = web.Application()
    app.router.add_get("/queue", first_page)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_labels_choose_entries_as_kubectl_writes_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    labelled = [{**pod, "labels": {"app": f"a{at % 3}"}} for at, pod in enumerate(PODS)]
    async with port_with_queue(labelled) as url:
        for selector, names in {
            "app=a1": ["other/p4", "team/p1"],
            "app in (a0, a1),app!=a0": ["other/p4", "team/p1"],
            "!app": [],
        }.items():
            arguments = ["queue", "-A", "-l", selector, "-o", "name", "--url", url]
            assert await asyncio.to_thread(main, arguments) == 0
            assert sorted(capsys.readouterr().out.split()) == names, selector


async def test_where_a_namespace_has_none_those_that_have_some_are_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with port_with_queue(PODS) as url:

        async def asked(*words: str) -> tuple[str, str]:
            assert await asyncio.to_thread(main, ["queue", *words, "--url", url]) == 0
            written = capsys.readouterr()
            return written.out, written.err

        out, err = await asked("-n", "taem")
        assert out == "No pod waits.\n"
        assert err.startswith('stellwerk: nothing in namespace taem; did you mean "team"?; ')
        assert err.endswith("there are some in other, team (-A lists all)\n")
        assert (await asked("-n", "taem", "-o", "name")) == ("", "")
        assert (await asked("-n", "team"))[1] == ""
        assert (await asked("-n", "taem", "-l", "app=none"))[1] == ""


def test_what_is_no_selector_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nodes", "-l", "a=(b"])
    assert ended.value.code == 2
    assert "argument -l/--selector: unable to parse requirement: found '('" in (
        capsys.readouterr().err
    )


async def test_the_operator_chooses_by_the_filters_and_explains_devices_and_claims(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with explaining_port() as operator:
        await two_nodes(operator)
        devices = [device("gpu-0"), device("gpu-1")]
        with_devices(operator, held("used", "gpu-1", by="holder"), devices=devices)

        async def printed(*words: str, status: int = 0) -> str:
            assert await asyncio.to_thread(main, [*words, "--url", operator.url]) == status
            return capsys.readouterr().out

        for words, names in {
            "devices": ["device/gpu.example.com/a/gpu-0", "device/gpu.example.com/a/gpu-1"],
            "devices --state held": ["device/gpu.example.com/a/gpu-1"],
            "devices --node b": [],
            "nodes --match a --sort-by name": ["node/a", "node/small", "node/tainted"],
            "decisions -A --node small": ["default/web"],
            "queue -A --queue gated": [],
        }.items():
            assert (await printed(*words.split(), "-o", "name")).split() == names, words
        table = await printed("devices")
        assert [line.split()[:3] for line in table.splitlines()[1:]] == [
            ["gpu.example.com/a/gpu-0", "a", "model=large,"],
            ["gpu.example.com/a/gpu-1", "a", "default/used"],
        ]
        assert await printed("explain", "device/gpu.example.com/a/gpu-1") == (
            "device/gpu.example.com/a/gpu-1: held\n"
            "Nodes: a\n"
            "Attributes: model=large, group=0\n"
            "Held by default/used (request r), for default/holder\n"
        )
        assert await printed("explain", "resourceclaim", "used", "-n", "default") == (
            "resourceclaim/default/used: allocated\n"
            "Request r: 1 of class gpu\n"
            "Devices: gpu.example.com/a/gpu-1\n"
            "Reserved for: default/holder\n"
            "Waiting for it: none\n"
        )
        await printed("explain", "device/gpu.example.com/a/gpu-9", status=1)


GROUP = {
    "namespace": "shop",
    "controller": "Deployment/flood",
    "pods": 30,
    "longestWaiting": "shop/flood-0",
    "queues": {"unschedulablePods": 30},
    "rejectedBy": ["NodeResourcesFit"],
    "profiles": ["default-scheduler"],
    "priority": 0,
    "attempts": 1,
    "waitsSince": "2026-01-01T00:00:00Z",
}
ALONE = {**GROUP, "controller": None, "pods": 1, "longestWaiting": "shop/big"}
LOST = [
    {"pod": f"shop/lost-{n}", "schedulerName": "custom", "priority": 0, "reason": "none serves it"}
    for n in range(2)
]


def grouped(*groups: dict[str, Any], total: int) -> dict[str, Any]:
    return {
        "counts": {},
        "total": total,
        "items": [],
        "groups": list(groups),
        "groupsTotal": len(groups),
    }


def test_pods_of_one_controller_are_one_row_of_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = grouped(GROUP, {**ALONE, "queues": {"backoffQ": 1}}, total=31)
    answer |= {"unserved": LOST, "unservedTotal": 2, "served": ["default-scheduler"]}
    show_written(answer, "table", shown_lists()["/queue"].of(answer))
    head, *rows = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert head.split("  ")[0] == "POD OR CONTROLLER"
    assert [row.split() for row in rows[:3]] == [
        ["shop/deployment/flood", "30", "unschedulablePods", ANY, "NodeResourcesFit"],
        ["shop/big", "1", "backoffQ", ANY, "NodeResourcesFit"],
        ["schedulerName", "custom", "2", "unserved"],
    ]
    assert rows[3:] == [
        "31 pods in all; -o wide lists each",
        "2 pods unserved: none serves it",
        "Served schedulerNames: default-scheduler",
    ]
    assert max(map(len, rows)) <= 80


async def test_an_operator_groups_and_chooses_and_wide_and_json_list_each_pod(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with explaining_port() as operator:
        world = operator.world
        world.apply(make_profile("stellwerk"), make_node("a", cpu="2"))
        for number in range(3):
            pod = make_pod(f"web-{number}", cpu="64", labels={"app": "web"})
            pod["spec"]["schedulerName"] = "stellwerk"
            world.apply(owned(pod, name="web", kind="StatefulSet"))
        await quiet(100)

        async def asked(*words: str) -> tuple[list[str], str]:
            assert await asyncio.to_thread(main, ["queue", *words, "--url", operator.url]) == 0
            written = capsys.readouterr()
            return written.out.splitlines(), written.err

        for words in ("-A", "-n default", "-n default -l app=web"):
            (_, row, remark), _ = await asked(*words.split())
            assert row.split()[:2] == ["default/statefulset/web", "3"], words
            assert remark == "3 pods in all; -o wide lists each"
        for words in ("-l app=other", "-n default -l app=other"):
            assert (await asked(*words.split()))[0] == ["No pod waits."]
        out, err = await asked("-n", "defalt")
        assert out == ["No pod waits."]
        assert err.startswith('stellwerk: nothing in namespace defalt; did you mean "default"?')
        out, _ = await asked("-A", "-o", "wide")
        assert sorted(line.split()[0] for line in out[1:]) == [f"default/web-{n}" for n in range(3)]
        assert '"groups"' not in "".join((await asked("-A", "-o", "json"))[0])


class Answers:
    """An operator that gives one answer after the other, and then ends the command."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = list(answers)

    async def __call__(self) -> dict[str, Any]:
        if not self._answers:
            raise KeyboardInterrupt
        return self._answers.pop(0)


async def watched(*answers: dict[str, Any], form: str = "table") -> None:
    with pytest.raises(KeyboardInterrupt):
        await show(Answers(*answers), form, shown_lists()["/queue"], watch=True)


async def test_a_watched_list_prints_rows_that_are_new_changed_or_gone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "WATCH_SECONDS", 0)
    later = {**GROUP, "waitsSince": "2026-01-02T00:00:00Z"}
    await watched(
        grouped(GROUP, ALONE, total=31),
        grouped(later, ALONE, total=31),
        grouped({**GROUP, "pods": 29}, ALONE, total=30),
        grouped({**GROUP, "pods": 29}, total=29),
    )
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split()[:2] for line in lines[1:]] == [
        ["shop/deployment/flood", "30"],
        ["shop/big", "1"],
        ["31", "pods"],
        ["shop/deployment/flood", "29"],
        ["shop/big", "left"],
    ]
    assert lines[1].index(" 30 ") == lines[4].index(" 29 "), "the columns stay where they are"


async def test_a_watched_list_is_drawn_anew_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = io.StringIO()
    screen.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(output, "WATCH_SECONDS", 0)
    monkeypatch.setattr("sys.stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "7")
    many = [{**ALONE, "longestWaiting": f"shop/p-{n}"} for n in range(9)]
    await watched(grouped(*many, total=9), grouped(*many, total=9))
    _, first, second = screen.getvalue().split("\x1b[2J")
    for drawn in (first, second):
        assert re.search(r"[0-9]{2}:[0-9]{2}:[0-9]{2}, every", drawn)
        assert ("shop/p-1" in drawn, "shop/p-2" in drawn) == (True, False), "what there is room for"
        assert "7 more: -o json has all" in drawn


async def test_an_explanation_that_is_watched_is_printed_again_on_a_change_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "WATCH_SECONDS", 0)

    def workload(second: int, reason: str) -> dict[str, Any]:
        verdicts = RecomputedVerdicts(recomputed_at=f"2026-01-01T00:00:0{second}Z")
        pod = PodExplanation(pod="shop/a", state="waiting", verdicts=verdicts)
        alike = PodsWaitingAlike(reason=reason, pods=["shop/a"], explanation=pod)
        answer = WorkloadExplanation(
            workload="deployment/a", namespace="shop", pods=1, with_node=0, waiting=[alike]
        )
        return dict(codec(WorkloadExplanation).as_json(answer))

    asked = Answers(workload(0, "full"), workload(2, "full"), workload(4, "tainted"))
    with pytest.raises(KeyboardInterrupt):
        await show(asked, "table", WORKLOAD, watch=True)
    first, time, second = re.split(r"\n--- ([0-9]{2}:[0-9]{2}:[0-9]{2})\n", capsys.readouterr().out)
    assert ("1 pod (shop/a): full" in first, "1 pod (shop/a): tainted" in second) == (True, True)
    assert len(time) == len("00:00:00")
