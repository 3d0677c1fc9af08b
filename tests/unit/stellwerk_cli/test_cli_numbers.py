"""Every number on the command line has a range, and a refusal names the option and the range."""

import re
import shlex
from pathlib import Path

import pytest

from stellwerk.answers.what_if import MAX_SUPPOSED_NODES, MAX_TEMPLATE_PODS
from stellwerk.models.number_options import NumberOption
from stellwerk_cli.cli import USAGE_ERROR, main
from stellwerk_cli.commands.what_if import MAX_COUNT, MAX_COUNTED_PODS
from tests.support.command_line import Argument, arguments

ABSURD = ("-1", "-1s", "0", "1e30", "nan", "inf", "-inf", str(10**400), "")
NO_NUMBERS = {
    "Path",
    "_known_release",
    "_selector",
    "absolute",
    "operator_name",
    "scheduler_gates",
    "truth",
    "url_prefix",
}
"""The types of options whose values are no numbers."""
TEXTS = {
    *(
        "--add-nodes",
        "--compare",
        "--config",
        "--container",
        "--context",
        "--controllers",
        "--deployment",
    ),
    *(
        "--delete",
        "--devices",
        "--disable-admission-plugins",
        "--drain",
        "--enable-admission-plugins",
    ),
    *(
        "--etcd-metrics",
        "--executor",
        "--feature-gates",
        "--filename",
        "--for",
        "--gpu-resource",
        "--kubeconfig",
    ),
    *("--kubernetes-version", "--leader-elect-resource-name", "--leader-elect-resource-namespace"),
    *("--lease", "--match", "--namespace", "--node", "--plugin", "--pod", "--profile"),
    *(
        "--profile-history-namespace",
        "--relabel",
        "--runtime-config",
        "--scheduler",
        "--set",
        "--sort-by",
    ),
    *("--taint", "--until", "file", "files", "name", "node", "pod", "what", "words"),
}
"""Options and arguments that are texts: names, files, and values that mean something elsewhere."""
NUMBERS_IN_TEXTS = {
    ("cluster", "--nodes"): (("{}", {"0"}),),
    ("up", "--nodes"): (("{}", {"0"}),),
    ("plan defrag", "--free"): (("nodes={}", set[str]()), ("gpus={}", set[str]())),
    ("what-if", "--pod"): (("web={}", set[str]()),),
    ("what-if", "--scale"): (("deployment/default/web={}", {"0"}),),
    ("run", "--bind-address"): (("127.0.0.1:{}", {"0"}), (":{}", {"0"})),
    **{
        (command, "--url"): (("http://127.0.0.1:{}", {""}),)
        for command in (
            *("explain pod a", "queue -A", "decisions", "nodes", "devices", "dump", "doctor"),
            *("page", "shadow diff a", "observe report", "what-if --drain n"),
        )
    },
}
"""A number is part of these texts: the command with what it needs, the option, the texts, and
which of the absurd values each may have (a URL without a port has the one of its scheme)."""
MAY_BE_ZERO = {"0"}


def number_of(argument: Argument) -> NumberOption | None:
    """The type of an argument that is a number; None: it is none."""
    kind: object = argument.action.type
    return kind if isinstance(kind, NumberOption) else None


NUMBERS = [(each, kind) for each in arguments() if (kind := number_of(each)) is not None]


def sensible(argument: Argument) -> set[str]:
    """The values among the absurd ones that this option may have."""
    if str(argument) == "plan defrag --max-priority":
        return {"-1", "0"}  # pods have negative priorities
    zero = {
        "cluster pod --exit-code",
        "record --for",
        "run --audit-period",
        *(f"{command} --port" for command in ("cluster", "page", "up")),
        "up --operator-port",
        "up --page-port",
    }
    return MAY_BE_ZERO if str(argument) in zero else set()


def test_every_argument_is_a_number_with_a_range_or_known_to_be_none() -> None:
    unknown = []
    for each in arguments():
        kind = each.action.type
        if number_of(each) is not None or each.action.choices:
            continue
        if kind is None:
            in_text = (each.command, each.name) in {
                (" ".join(command.split()[: len(each.command.split())]), option)
                for command, option in NUMBERS_IN_TEXTS
            }
            known = in_text or each.name in TEXTS
        else:
            known = getattr(kind, "__name__", "") in NO_NUMBERS
        if not known:
            unknown.append(f"{each}: {kind}")
    assert not unknown


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that ends with status 2 and one line; returns the line."""
    try:
        status: int | str | None = main(words)
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    assert (status, printed.out) == (USAGE_ERROR, ""), printed
    assert printed.err.count("\n") == 1, printed
    assert len(printed.err) < 400, printed
    return printed.err


@pytest.mark.parametrize(("argument", "kind"), NUMBERS, ids=[str(each) for each, _ in NUMBERS])
def test_a_number_out_of_range_is_one_line_with_the_option_and_its_range(
    argument: Argument, kind: NumberOption, capsys: pytest.CaptureFixture[str]
) -> None:
    range_text = kind.range_text
    assert re.search(r"[0-9]", range_text)
    for value in ABSURD:
        if value in sensible(argument):
            kind(value)  # and is taken
            continue
        joined, apart = [f"{argument.name}={value}"], [argument.name, value]
        for words in (joined, apart) if value.startswith("-") else (joined,):
            line = refused([*argument.command.split(), *words], capsys)
            assert argument.name in line
            assert range_text in line


@pytest.mark.parametrize(("command", "option"), NUMBERS_IN_TEXTS, ids=str)
def test_a_number_within_a_text_is_refused_with_the_option_and_its_range(
    command: str,
    option: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for text, taken in NUMBERS_IN_TEXTS[command, option]:
        for value in (each for each in ABSURD if each not in taken):
            line = refused([*shlex.split(command), f"{option}={text.format(value)}"], capsys)
            assert option in line
            assert re.search(r"from [01] to [0-9]+", line), line


def test_as_many_nodes_may_be_asked_for_as_the_operator_takes() -> None:
    assert MAX_COUNT == MAX_SUPPOSED_NODES
    assert MAX_COUNTED_PODS == MAX_TEMPLATE_PODS
