"""What is printed for pipes and for programs."""

import io
import json
import re
from typing import Any

import orjson
import pytest
import yaml

from stellwerk.answers.answer import codec
from stellwerk_cli.commands.listings import shown_lists
from stellwerk_cli.commands.output import API_VERSION, show_written
from stellwerk_cli.commands.printer import Printer
from stellwerk_cli.commands.shadow import shown_shadow
from stellwerk_cli.commands.what_if_table import WHAT_IF
from tests.support.recorded_answers import STORIES, recorded

HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\u202egnp"


@pytest.mark.parametrize("story", STORIES)
def test_a_pipe_gets_every_row_in_one_line(
    story: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`| cat` and `| grep` see what a terminal of endless width would show."""
    monkeypatch.delenv("COLUMNS", raising=False)
    shown: dict[str, Any] = {"/what-if": WHAT_IF, "/shadow": shown_shadow(), **shown_lists()}
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


def lengthened(answer: Any) -> Any:
    """The answer with names of pods and nodes that are longer than any terminal is wide."""
    text = json.dumps(answer)
    return json.loads(re.sub(r'"(node|pod|name)": "([^"]+)"', r'"\1": "\2' + "x" * 300 + '"', text))


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_json_and_yaml_escape_what_a_terminal_would_obey(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = {"message": HOSTILE, "plain": "ü 漢", "\U000e0001": "\x85"}
    show_written(answer, form, shown_lists()["/queue"])
    written = capsys.readouterr().out
    assert [each for each in written if not each.isprintable() and each != "\n"] == []
    read = orjson.loads if form == "json" else yaml.safe_load
    assert read(written) == {"apiVersion": API_VERSION, "kind": "QueuePage", **answer}
