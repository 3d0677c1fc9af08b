"""What the command line understands, and how it refuses the rest."""

from pathlib import Path

import pytest

from stellwerk.cli import USAGE_ERROR, build_parser, main


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        pytest.param("300", 300.0, id="seconds"),
        pytest.param("0.5", 0.5, id="half a second"),
        pytest.param("90s", 90.0, id="with their unit"),
        pytest.param("250ms", 0.25, id="milliseconds"),
        pytest.param("1m30s", 90.0, id="in two units"),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    options = build_parser().parse_args(["run", "--plugin-timeout", text])
    assert options.plugin_timeout == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5x", "nan", "inf", "0", "-1s", "1e400s"])
def test_what_is_no_duration_is_a_usage_error(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", "--plugin-timeout", text])
    assert ended.value.code == USAGE_ERROR
    assert "--plugin-timeout" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["decide", "convert"])
def test_a_file_that_is_not_there_is_one_line_and_status_2(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "missing"
    assert main([command, str(missing)]) == USAGE_ERROR
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert str(missing) in printed.err
