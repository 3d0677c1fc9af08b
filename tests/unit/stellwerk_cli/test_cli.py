"""What the command line understands, and how it refuses the rest."""

import argparse
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from stellwerk.app import RunOptions
from stellwerk_cli import cli
from stellwerk_cli.cli import UNREACHABLE, USAGE_ERROR, build_parser, main
from stellwerk_cli.commands.output import write_for_programs
from stellwerk_cli.commands.printer import console
from stellwerk_kube.errors import SchedulerError


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


def test_the_limits_without_flags_are_those_that_docs_reliability_names() -> None:
    options, inside = build_parser().parse_args(["run"]), RunOptions()
    given = (options.plugin_timeout, options.foreign_time_share, options.audit_period)
    assert given == (0.5, 0.2, 300.0)
    assert given == (inside.plugin_limit_seconds, inside.foreign_share, inside.audit_seconds)
    assert options.max_pod_complexity == inside.max_pod_complexity == 2_000


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


def test_what_a_library_writes_to_standard_output_is_no_part_of_an_answer() -> None:
    """`os.write` stands for a library in C, and begins as the command does."""
    script = (
        "import os, sys\n"
        "from stellwerk_cli import cli\n"
        "from stellwerk_cli.commands import version\n"
        "def chatty(options, run=version.run):\n"
        "    os.write(1, b'Running a solver\\n')\n"
        "    os.system('echo from a process')\n"
        "    status = run(options)\n"
        "    os.write(1, b'Solved\\n')\n"
        "    return status\n"
        "version.run = chatty\n"
        "status = cli.main(['version', '--client', '-o', 'json'])\n"
        "print('after it')\n"
        "sys.exit(status)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    answer, _, after = done.stdout.rpartition("after it")
    assert json.loads(answer)["clientVersion"]
    assert after == "\n"
    assert done.stderr == "Running a solver\nfrom a process\nSolved\n"


def test_leader_election_has_the_flags_and_defaults_of_kube_scheduler() -> None:
    options = vars(build_parser().parse_args(["run"]))
    assert {name: value for name, value in options.items() if name.startswith("leader_elect")} == {
        "leader_elect": False,
        "leader_elect_lease_duration": 15.0,
        "leader_elect_renew_deadline": 10.0,
        "leader_elect_retry_period": 2.0,
        "leader_elect_resource_lock": "leases",
        "leader_elect_resource_name": "kube-scheduler",
        "leader_elect_resource_namespace": "kube-system",
    }


@pytest.mark.parametrize(
    ("arguments", "elects"),
    [
        pytest.param(["--leader-elect"], True, id="on"),
        pytest.param(["--leader-elect=true"], True, id="on in so many words"),
        pytest.param(["--leader-elect=false"], False, id="off"),
    ],
)
def test_leader_election_is_a_flag_as_in_go(arguments: list[str], *, elects: bool) -> None:
    assert build_parser().parse_args(["run", *arguments]).leader_elect is elects


@pytest.mark.parametrize(
    "flag", ["--leader-elect=perhaps", "--leader-elect-resource-lock=endpoints"]
)
def test_other_values_of_leader_election_are_usage_errors(flag: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["run", flag])
    assert ended.value.code == USAGE_ERROR


def test_no_parser_takes_the_beginning_of_an_option_for_it() -> None:
    parsers = [build_parser()]
    for parser in parsers:
        assert not parser.allow_abbrev, parser.prog
        for action in vars(parser)["_actions"]:
            if isinstance(action.choices, dict):
                parsers += action.choices.values()
    assert {"stellwerk plan defrag", "stellwerk cluster fail"} <= {each.prog for each in parsers}


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "defrag", "--kubeconfig", "K", "--free", "nodes=1", "--cordon", "--app"],
        ["simulate", "--prof", "default"],
    ],
)
def test_the_beginning_of_an_option_is_a_usage_error(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == USAGE_ERROR
    assert "unrecognized arguments: --" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("up --bogus", "stellwerk up: unrecognized arguments: --bogus; see 'stellwerk up --help'"),
        (
            "plan defrag c.yaml --free nodes=1 --cordn",
            (
                'stellwerk plan defrag: unrecognized arguments: --cordn; did you mean "--cordon"?; '
                "see 'stellwerk plan defrag --help'"
            ),
        ),
        (
            "plan",
            (
                "stellwerk plan: the following arguments are required: PLAN; "
                "see 'stellwerk plan --help'"
            ),
        ),
        (
            "shadow list x",
            (
                "stellwerk shadow: argument what: invalid choice: 'list' (choose from 'diff'); "
                "see 'stellwerk shadow --help'"
            ),
        ),
    ],
)
def test_a_usage_error_is_one_line_of_the_command_that_it_is_about(
    arguments: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments.split())
    assert ended.value.code == USAGE_ERROR
    assert capsys.readouterr() == ("", f"{line}\n")


def test_an_address_without_a_scheme_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "pod", "x", "--url", "127.0.0.1:1"]) == USAGE_ERROR
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "stellwerk: --url 127.0.0.1:1: expected http://HOST:PORT or https://HOST:PORT"


@pytest.mark.parametrize("command", ["explain pod x", "what-if --drain n", "shadow diff x", "page"])
def test_a_port_that_does_not_answer_is_status_3(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # Nothing listens on the port of tcpmux.
    assert main([*command.split(), "--url", "http://127.0.0.1:1"]) == UNREACHABLE
    assert capsys.readouterr().err.startswith("stellwerk: no answer from http://127.0.0.1:1/")


def _commands() -> dict[str, argparse.ArgumentParser]:
    (found,) = (
        action.choices
        for action in vars(build_parser())["_actions"]
        if isinstance(action.choices, dict)
    )
    return dict(found)


@pytest.mark.parametrize("name", sorted(_commands()))
def test_help_fits_80_columns(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(["help", name])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: stellwerk {name} ")
    assert max(len(line) for line in text.splitlines()) <= 80


def test_help_names_no_constant_of_the_code(capsys: pytest.CaptureFixture[str]) -> None:
    questions = [*([each] for each in _commands()), ["plan", "profile"], ["plan", "fit"]]
    for words in questions:
        with pytest.raises(SystemExit):
            main(["help", *words])
    assert not re.findall(r"\{_\w+\}|\b_[A-Z]\w+", capsys.readouterr().out)


@pytest.mark.parametrize("name", sorted(set(_commands()) - {"help"}))
def test_the_examples_of_help_are_commands_that_parse(name: str) -> None:
    epilog = _commands()[name].epilog
    assert epilog is not None
    head, *examples = epilog.splitlines()
    assert head == "examples:"
    assert examples
    for each in examples:
        assert each.startswith(f"  stellwerk {name}")
        build_parser().parse_args(each.split()[1:])


def test_who_asks_for_all_pods_is_told_of_the_queue(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "pods"]) == USAGE_ERROR
    said = capsys.readouterr().err
    assert "expected one name of a pod; `stellwerk queue` lists the pods" in said


def test_the_help_of_an_action_is_that_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["help", "plan", "defrag"])
    assert capsys.readouterr().out.startswith("usage: stellwerk plan defrag ")


def test_the_command_line_imports_nothing_heavy_before_a_command_runs() -> None:
    heavy = ("aiohttp", "numpy", "pydantic", "yaml", "orjson", "rich")
    program = f"import sys, stellwerk_cli.cli; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == b"[]\n"


def _parsers(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    found = [parser]
    for action in parser._actions:  # noqa: SLF001 argparse tells it nowhere else
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 as above
            for each in action.choices.values():
                found += _parsers(each)
    return found


def test_an_option_that_is_given_again_adds_up_or_is_refused() -> None:
    refused = 0
    for parser in _parsers(build_parser()):
        for option in parser._actions:  # noqa: SLF001 as above
            if not option.option_strings or option.nargs in {0, "?"}:
                continue
            adds_up = isinstance(option, argparse._AppendAction)  # noqa: SLF001 as above
            once = type(option).__name__ == "_Once"
            assert adds_up or once, f"{parser.prog} {option.option_strings}"
            refused += once
    assert refused > 100


def test_the_second_value_is_not_taken_in_silence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["explain", "pod", "a", "-n", "one", "-n", "two"])
    assert ended.value.code == USAGE_ERROR
    assert "-n/--namespace: is given twice" in capsys.readouterr().err


def test_no_parser_takes_an_abbreviation_and_each_help_has_80_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for parser in _parsers(build_parser()):
        assert not parser.allow_abbrev
        text = parser.format_help()
        for line in text.splitlines():
            assert len(line) <= 80 or line.startswith("  stellwerk "), f"{parser.prog}: {line}"


def test_every_command_has_examples_whose_options_exist() -> None:
    parser = build_parser()
    for words in _examples(parser):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "exit", _no_exit)
            parser.parse_args(words)


def _examples(parser: argparse.ArgumentParser) -> list[list[str]]:
    found = []
    for each in _parsers(parser):
        lines = (each.epilog or "").splitlines()
        found += [shlex.split(line)[1:] for line in lines if line.startswith("  stellwerk ")]
        assert each.epilog or each.prog in {"stellwerk", "stellwerk help"}, each.prog
    assert len(found) > 30
    return found


def _no_exit(status: int = 0) -> None:
    pytest.fail(f"an example is a usage error: {status}")


HOSTILE = "x\x1b]0;title\x07\x1b[2J\x9b31m\r\u202egnp\u2028y\x7f"


def test_nothing_that_a_terminal_would_obey_leaves_a_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(_: argparse.Namespace) -> int:
        print(f"a pod named {HOSTILE}")  # noqa: T201 as commands do
        print(f"a warning about {HOSTILE}", file=sys.stderr)  # noqa: T201 as commands do
        sys.stdout.writelines([HOSTILE, "\n", HOSTILE])
        sys.stderr.write(f"{HOSTILE}\n")
        console().print(HOSTILE, markup=False)
        write_for_programs({"name": HOSTILE}, "json", "Kind")
        write_for_programs({"name": HOSTILE}, "yaml", "Kind")
        raise SchedulerError(f"no such pod: {HOSTILE}")

    command = argparse.Namespace(command=run, log_level="info", log_format="text", file_limits=1)
    parser = argparse.Namespace(parse_args=lambda _: command)
    monkeypatch.setattr(cli, "build_parser", lambda: parser)
    assert main([]) == 1
    written = capsys.readouterr()
    for text in (written.out, written.err):
        assert text.count("title") >= 3
        assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize("words", [[], ["--help"], ["help"]])
def test_the_program_alone_lists_its_commands_in_groups(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    groups = re.findall(r"^([a-z ]+):\n((?:  .*\n)+)", printed, re.MULTILINE)
    assert [title for title, _ in groups][:3] == [
        "look at a cluster",
        "predict a change",
        "try it on this machine",
    ]
    listed = [re.findall(r"^  (\S+)", text, re.MULTILINE) for _, text in groups]
    assert listed[0][:2] == ["explain", "queue"]
    every = [name for group in listed for name in group]
    assert sorted(every) == sorted([*cli._COMMANDS, "help"])  # noqa: SLF001 all of them


@pytest.mark.parametrize("name", sorted(cli._COMMANDS))  # noqa: SLF001 every command that there is
def test_arguments_that_are_refused_move_no_terminal(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([name, f"--{HOSTILE}", HOSTILE, HOSTILE, HOSTILE])
    written = capsys.readouterr()
    assert "title" in written.err
    assert all(line.isprintable() for line in (written.out + written.err).split("\n"))


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(line.split(), id=line)
        for line in (
            "explain pod p --kubeconfig FILE",
            "queue --kubeconfig FILE",
            "decisions --kubeconfig FILE",
            "nodes --kubeconfig FILE",
            "what-if --pod FILE --kubeconfig FILE",
            "shadow status p --kubeconfig FILE",
            "promote p --kubeconfig FILE",
            "profile history p --kubeconfig FILE",
            "record --kubeconfig FILE",
            "version --kubeconfig FILE",
            "run --kubeconfig FILE",
            "decide FILE",
            "convert FILE",
            "simulate --nodes FILE --pods FILE",
            "plan --pods FILE",
        )
    ],
)
def test_hostile_files_move_no_terminal(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / f"{HOSTILE}.yaml"
    file.write_text(json.dumps({"apiVersion": HOSTILE, "kind": HOSTILE, "metadata": HOSTILE}))
    try:
        status = main([str(file) if each == "FILE" else each for each in arguments])
    except SystemExit as ended:
        status = int(ended.code or 0)
    written = capsys.readouterr()
    assert status
    assert written.err
    assert all(line.isprintable() for line in (written.out + written.err).split("\n"))
