"""A line of the log: text or JSON, one line each, with the attempt it belongs to."""

import json
import logging
from collections.abc import Iterator
from contextvars import copy_context
from typing import Any

import pytest

from stellwerk import logs
from stellwerk.logs import ATTEMPT, JsonFormatter, TextFormatter, attempt_id


def record(message: str, *args: object, **more: Any) -> logging.LogRecord:
    logger = logging.getLogger("stellwerk.test")
    return logger.makeRecord(
        logger.name, logging.INFO, "file.py", 1, message, args, None, extra=more
    )


@pytest.fixture
def root_level() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    before = root.level
    yield root
    root.setLevel(before)


def in_attempt(number: int, form: logging.Formatter, message: logging.LogRecord) -> str:
    def run() -> str:
        ATTEMPT.set(number)
        return form.format(message)

    return copy_context().run(run)


def test_a_line_of_an_attempt_names_it_in_both_formats() -> None:
    text = in_attempt(7, TextFormatter(), record("%s is bound", "default/web"))
    assert text.endswith(f"INFO    stellwerk.test: default/web is bound [attempt {attempt_id(7)}]")
    line = json.loads(in_attempt(7, JsonFormatter(), record("bound")))
    assert line["attempt"] == attempt_id(7)


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()])
def test_a_line_stays_one_line_and_moves_no_terminal(form: logging.Formatter) -> None:
    hostile = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\n\u202egnp\u2028y\x7f\ud800"
    line = form.format(record("pod %s waits", hostile))
    assert line.isprintable()
    if isinstance(form, JsonFormatter):
        assert json.loads(line)["message"] == f"pod {hostile} waits"


def test_a_line_of_no_attempt_names_none() -> None:
    assert TextFormatter().format(record("synced")).endswith("stellwerk.test: synced")
    assert "attempt" not in json.loads(JsonFormatter().format(record("synced")))


def test_json_has_what_a_call_adds_and_nothing_of_pythons_own() -> None:
    line = json.loads(JsonFormatter().format(record("%d nodes", 3, pod="default/web", feasible=3)))
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "stellwerk.test",
        "message": "3 nodes",
        "pod": "default/web",
        "feasible": 3,
    }


def test_a_message_cannot_forge_a_line() -> None:
    forged = record("plugin said: %s", "no\n2026-01-01 ERROR all is lost\r\x1b[31m")
    text = TextFormatter().format(forged)
    assert "\n" not in text
    assert "\x1b" not in text
    assert "no\\n2026-01-01 ERROR all is lost\\r\\x1b[31m" in text
    assert JsonFormatter().format(forged).count("\n") == 0


@pytest.mark.parametrize("form", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_a_traceback_is_kept(form: logging.Formatter) -> None:
    failed = record("failed")
    try:
        int("why")
    except ValueError as error:
        failed.exc_info = (type(error), error, error.__traceback__)
    assert "ValueError: invalid literal" in form.format(failed)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        pytest.param("trace", "trace", id="our word"),
        pytest.param(" Debug\n", "debug", id="as curl sends it"),
        pytest.param("2", "info", id="kube-scheduler's default"),
        pytest.param("4", "debug", id="kube-scheduler's debug"),
        pytest.param("10", "trace", id="kube-scheduler's most"),
        pytest.param("9" * 50, "trace", id="more than that"),
    ],
)
def test_the_level_is_changed(root_level: logging.Logger, text: str, name: str) -> None:
    assert logs.set_level(text) == name
    assert logs.level() == name
    assert root_level.level == logs.LEVELS[name]


@pytest.mark.parametrize("text", ["", "loud", "-1", "²", "4.5"])
def test_what_is_no_level_changes_nothing(root_level: logging.Logger, text: str) -> None:
    root_level.setLevel(logging.WARNING)
    with pytest.raises(ValueError, match="trace, debug, info, warning, error"):
        logs.set_level(text)
    assert logs.level() == "warning"
