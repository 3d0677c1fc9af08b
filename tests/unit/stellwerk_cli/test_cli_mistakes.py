"""The exit status of sixty mistakes, each one line on standard error and no traceback."""

import shlex
from pathlib import Path

import pytest

from stellwerk_cli.cli import main

USAGE, UNREACHABLE = 2, 3
MISTAKES = [
    # what is no command, option or value
    ("bogus", USAGE),
    ("explain", USAGE),
    ("explain pod", USAGE),
    ("explain widget x", USAGE),
    ("explain pod a b", USAGE),
    ("explain pod a -o xml", USAGE),
    ("explain pod a --bogus", USAGE),
    ("explain pod a --watc", USAGE),
    ("explain pod a/b/c", USAGE),
    ("explain pod /a", USAGE),
    ("explain deployment/", USAGE),
    ("explain node a b", USAGE),
    ("queue extra", USAGE),
    ("queue --output=csv", USAGE),
    ("queue -n a -n b", USAGE),
    ("nodes -A", USAGE),
    ("what-if --count 0", USAGE),
    ("what-if --count many", USAGE),
    ("what-if --drain", USAGE),
    ("what-if --relabel", USAGE),
    ("what-if --relabel n1 x --url http://127.0.0.1:1", USAGE),
    ("what-if --taint n1 a=b:Never --url http://127.0.0.1:1", USAGE),
    ("what-if --delete web --url http://127.0.0.1:1", USAGE),
    ("what-if --scale deployment/web=many --url http://127.0.0.1:1", USAGE),
    ("what-if --recording f --profile p --scale deployment/web=1", USAGE),
    ("what-if --last 5", USAGE),
    ("what-if --recording f", USAGE),
    ("what-if --set spec.x=1", USAGE),
    ("what-if --profile a --profile b", USAGE),
    ("shadow diff", USAGE),
    ("shadow show x", USAGE),
    ("promote", USAGE),
    ("profile", USAGE),
    ("profile rollback", USAGE),
    ("profile rollback x --to first", USAGE),
    ("profile history x -o table -o json", USAGE),
    ("plan", USAGE),
    ("plan fit", USAGE),
    ("plan fit --for pending", USAGE),
    ("plan fit --for pending --shapes s --seconds 0", USAGE),
    ("plan defrag --free pods=1", USAGE),
    ("plan defrag f --free nodes=1 --dry-run", USAGE),
    ("plan defrag f --free nodes=1 --app", USAGE),
    ("plan profile", USAGE),
    ("simulate --seed x", USAGE),
    ("simulate --until a/b", USAGE),
    ("simulate --nodes absent.yaml", USAGE),
    ("simulate --nodes absent.csv --pods absent.csv", USAGE),
    ("simulate --replay absent.journal --html x.html", USAGE),
    ("simulate --arrivals never", USAGE),
    ("decide absent.yaml", USAGE),
    ("decide a --kubeconfig b", USAGE),
    ("decide a --compatibility 1.20", USAGE),
    ("convert", USAGE),
    ("convert absent.yaml", USAGE),
    ("record", USAGE),
    ("record x.journal --for soon", USAGE),
    ("run --bogus", USAGE),
    ("run --plugin-timeout never", USAGE),
    ("cluster --nodes absent.yaml", USAGE),
    ("cluster --nodes=-3", USAGE),
    ("cluster --nodes 99999999", USAGE),
    ("cluster --port 70000", USAGE),
    ("up --page-port x", USAGE),
    ("demo now", USAGE),
    ("completion tcsh", USAGE),
    ("version --server", USAGE),
    # a kubeconfig that is not there, an address that is none
    ("explain pod a --kubeconfig absent", USAGE),
    ("explain pod a --url 127.0.0.1:1", USAGE),
    ("explain pod a --lease x --url ''", USAGE),
    # nothing answers
    ("explain pod a -n default --url http://127.0.0.1:1", UNREACHABLE),
    ("queue -A --url http://127.0.0.1:1", UNREACHABLE),
    ("nodes --url http://127.0.0.1:1", UNREACHABLE),
    ("what-if --drain n --url http://127.0.0.1:1", UNREACHABLE),
    ("shadow diff x --url http://127.0.0.1:1", UNREACHABLE),
]


@pytest.mark.parametrize(("line", "status"), MISTAKES, ids=str)
def test_a_mistake_has_its_status_and_one_line(
    line: str,
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    try:
        ended = main(shlex.split(line))
    except SystemExit as left:
        ended = int(left.code or 0)
    written = capsys.readouterr()
    assert (ended, written.out) == (status, ""), written.err
    assert written.err.count("\n") == 1, written.err
    assert list(tmp_path.iterdir()) == []


def test_there_are_sixty() -> None:
    assert len(MISTAKES) >= 60


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("wat-if", 'did you mean "what-if"?'),
        ("help wat-if", 'did you mean "what-if"?'),
        ("--versio", 'did you mean "--version"?'),
        ("profile histroy x", 'did you mean "history"?'),
        ("bench --workload basics", 'did you mean "basic"?'),
        ("queue -o jsn", 'did you mean "json"?'),
        ("explain pod a --outptu json", 'did you mean "--output"?'),
        ("explain pod a --verbos", "did you mean --log-level=debug?"),
        ("queue --format json", "did you mean --output?"),
    ],
)
def test_a_word_that_is_nearly_one_is_told_which(
    line: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(line))
    assert ended.value.code == USAGE
    assert meant in capsys.readouterr().err


@pytest.mark.parametrize("line", ["bogus", "completion tcsh", "convert --format x"])
def test_a_word_that_is_near_to_none_is_told_none(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(shlex.split(line))
    assert "did you mean" not in capsys.readouterr().err
