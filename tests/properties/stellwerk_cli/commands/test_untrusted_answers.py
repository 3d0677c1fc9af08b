"""Whatever stands in an answer, a command prints its characters: no markup, picture, link or line.

Every field of every kind of answer holds rich's markup, emoji codes, and what terminals obey.
"""

import asyncio
import io
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout
from typing import Any

import pytest
from aiohttp import web
from typing_extensions import override

from stellwerk.answers.answer import codec
from stellwerk.models.troubleshooting import SITE
from stellwerk_cli.commands import schemas
from stellwerk_cli.commands.listings import shown_lists
from stellwerk_cli.commands.output import Shown, show, show_written
from tests.support.filled_answers import FORGED, HOSTILE, filled
from tests.support.processes import command

SHOWN: dict[str, Shown[Any]] = {each.kind.__name__: each for each in schemas.SHOWN}
LISTS = shown_lists()
FORMS = ("table", "wide", "name", "json", "yaml")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
OWN_LINK = re.compile(r"\x1b\]8;(id=\d+;|;)(https://docs\.example/[^\x1b]*)?\x1b\\")


class Terminal(io.StringIO):
    @override
    def isatty(self) -> bool:
        return True


def judge(written: str, *, is_table: bool) -> None:
    """Look at what was written: the characters of the text are there, and do nothing."""
    bare = OWN_LINK.sub("", COLOURS.sub("", written))
    assert [each for each in bare if not each.isprintable() and each != "\n"] == []
    assert "\N{SKULL}" not in bare
    assert "\N{WARNING SIGN}" not in bare
    assert "\x1b[8" not in written, "nothing is concealed"
    if is_table:
        assert not [line for line in bare.splitlines() if line.startswith(FORGED)]


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("name", SHOWN)
def test_every_field_of_every_answer_is_shown_as_it_is(
    name: str,
    is_terminal: bool,  # noqa: FBT001 as parametrized
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "9999")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(SITE, "https://docs.example/")
    shown = SHOWN[name]
    answer = filled(shown.kind)
    assert codec(shown.kind).read(answer)
    for form in FORMS:
        output = Terminal() if is_terminal else io.StringIO()
        with redirect_stdout(output):
            show_written(answer, form, shown)
        judge(output.getvalue(), is_table=form in {"table", "wide", "name"})
        if form in {"table", "wide"}:
            bare = OWN_LINK.sub("", COLOURS.sub("", output.getvalue()))
            assert "[conceal]hidden[/conceal][/bold]:skull:" in bare, bare
            assert "[link=https://evil.example]click" in bare


@asynccontextmanager
async def port() -> AsyncIterator[str]:
    """A port that answers any question with an answer that is filled, or with a refusal."""

    async def handle(request: web.Request) -> web.Response:
        if "refused" in request.query_string or "refused" in request.path:
            return web.json_response({"error": HOSTILE, "leader": ""}, status=404)
        kinds = {"/shadow": "ShadowDiff", "/what-if": "WhatIf", "/debug": "CacheDump"}
        path, explained = request.path, "explain" in request.query
        found = next((kind for start, kind in kinds.items() if path.startswith(start)), "")
        if not found and path in LISTS and not explained:
            found = LISTS[path].kind.__name__
        if not found and path == "/nodes":
            found = "NodeExplanation"
        if not found and path == "/explain/devices":
            found = "DeviceExplanation"
        if "podgroups" in path:
            found = "GroupExplanation"
        if "resourceclaims" in path:
            found = "ClaimExplanation"
        return web.json_response(filled(SHOWN[found or "PodExplanation"].kind))

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


ASKED = (
    *("explain pod x", "explain podgroup x", "explain node x", "explain device a/b/c"),
    *("explain resourceclaim x", "queue -A", "decisions -A", "nodes", "devices"),
    *("what-if --drain x", "shadow diff x", "dump"),
)
REFUSED = (
    *("explain pod refused", "explain podgroup refused", "explain node refused"),
    *("explain resourceclaim refused", "shadow diff refused"),
)


async def test_every_command_that_asks_the_operator_prints_no_more_than_characters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "9999")  # no cell is folded
    async with port() as url:
        for asked in ASKED:
            for form in FORMS:
                status, printed, said = await command(*asked.split(), "-o", form, "--url", url)
                assert status in {0, 1}, (asked, form, said)
                assert "Traceback" not in said
                assert printed.strip(), (asked, form)
                judge(printed, is_table=form in {"table", "wide", "name"})
                judge(said, is_table=True)


async def test_a_refusal_is_one_line_of_characters() -> None:
    async with port() as url:
        for asked in REFUSED:
            status, printed, said = await command(*asked.split(), "--url", url)
            assert (status, printed) == (1, ""), (asked, said)
            judge(said, is_table=True)
            assert len(said.splitlines()) == 1
            assert "[/bold]:skull:" in said


@pytest.mark.skips_time
@pytest.mark.parametrize("name", ["WorkloadExplanation", "PodExplanation", "GroupExplanation"])
async def test_an_answer_that_differs_in_nothing_but_its_clocks_is_watched_once(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = SHOWN[name]
    answers = iter([answer_at(name, second) for second in range(5)])

    async def ask() -> Any:
        try:
            return next(answers)
        except StopIteration:
            raise asyncio.CancelledError from None

    with pytest.raises(asyncio.CancelledError):
        await show(ask, "table", shown, watch=True)
    printed = capsys.readouterr().out
    assert printed.count("FIRST") == 1
    assert printed.count("CHANGED") == 1


def answer_at(name: str, second: int) -> Any:
    """An answer whose clocks have moved on, and which has changed in the last second alone."""
    title = "CHANGED" if second == 4 else "FIRST"
    moment = f"2026-01-01T00:00:0{second}Z"
    answer = filled(SHOWN[name].kind, "same")
    for each in within(answer):
        if "recomputedAt" in each:
            each["recomputedAt"] = moment
        if "roomIsKeptSeconds" in each:
            each["roomIsKeptSeconds"] = 60 - second
    titles = {"WorkloadExplanation": "workload", "PodExplanation": "pod"}
    answer[titles.get(name, "podGroup")] = title
    return answer


def within(value: Any) -> Iterator[dict[str, Any]]:
    """The objects in an answer, itself among them."""
    if isinstance(value, dict):
        yield value
    for each in value.values() if isinstance(value, dict) else value:
        if isinstance(each, (dict, list)):
            yield from within(each)


def test_errors_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    from stellwerk_cli.cli import main  # noqa: PLC0415

    with redirect_stderr(errors := io.StringIO()):
        assert main(["explain", f"{HOSTILE} x"]) == 2
    judge(errors.getvalue(), is_table=True)
    capsys.readouterr()
