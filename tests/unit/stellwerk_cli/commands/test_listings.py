"""Lists of the operator: all of their pages, of one namespace or of all, as tables."""

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Mapping
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from stellwerk.answers.answer import codec
from stellwerk.client.operator_port import OperatorPort
from stellwerk_cli.cli import main
from stellwerk_cli.commands.listings import QUEUE, shown_lists
from stellwerk_cli.commands.listings import _entries as entries
from stellwerk_cli.commands.printer import console
from tests.support.device_cases import device, held
from tests.support.explaining_port import explaining_port, two_nodes, with_devices

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
