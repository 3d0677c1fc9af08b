"""A line that is there while something takes long, on a terminal alone."""

import io
import time

import pytest

from stellwerk_cli import progress_line as waiting_line
from stellwerk_cli.progress_line import line_after, waiting_for


def test_nothing_is_written_where_there_is_no_terminal() -> None:
    output = io.StringIO()
    with waiting_for("x", output):
        pass
    assert output.getvalue() == ""


def test_a_line_comes_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_line, "LINE_SECONDS", 0.01)
    output = io.StringIO()
    output.isatty = lambda: True  # type: ignore[method-assign]
    with waiting_for("starting", output):
        while "starting" not in output.getvalue():
            time.sleep(0.005)
    assert output.getvalue().endswith("\r\x1b[K")


def test_what_is_quick_leaves_no_trace() -> None:
    output = io.StringIO()
    output.isatty = lambda: True  # type: ignore[method-assign]
    with waiting_for("starting", output):
        pass
    assert output.getvalue() == ""


def test_a_bar_comes_later() -> None:
    assert line_after("x", 1.5) == "x …"
    assert line_after("x", 4.0).startswith("x [")
    assert line_after("x", 4.0) != line_after("x", 5.0)
