"""`stellwerk plan profile`: what it prints is a profile that does what the ready one does."""

from pathlib import Path

import pytest

from stellwerk.cli import main
from tests.support.repository import ROOT

DATA = ROOT / "tests" / "data" / "simulation"
PODS = str(DATA / "pods.csv")


@pytest.mark.parametrize("name", ["fgd", "best-fit"])
def test_what_is_printed_schedules_as_the_ready_profile(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "profile", name, "--for", PODS]) == 0
    path = tmp_path / f"{name}.yaml"
    path.write_text(capsys.readouterr().out)
    trace = ("--nodes", str(DATA / "nodes.csv"), "--pods", PODS, "--inflate", "1.3")
    assert main(["simulate", *trace, "--jobs", "1", "--profile", name, "--profile", str(path)]) == 0
    _, ready, printed = capsys.readouterr().out.splitlines()[:3]
    assert ready.split()[1:] == printed.split()[1:]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("bestfit", "--for", PODS), 'no ready profile bestfit; did you mean "best-fit"?\n'),
        (("fgd",), "no kubeconfig at missing: name one with --kubeconfig"),
        (("fgd", "--for", PODS, "--kubeconfig", "x"), "either by --for FILE or by a --kubeconfig"),
        (("fgd", "--for", "absent.csv"), "cannot read absent.csv: No such file or directory"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...],
    problem: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KUBECONFIG", "missing")
    assert main(["plan", "profile", *arguments]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1
