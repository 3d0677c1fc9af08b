"""`stellwerk what-if --recording`: what another profile would have decided otherwise."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from stellwerk.journal.entries import (
    GroupBegun,
    Head,
    InitialState,
    SnapshotWritten,
    WatchEvent,
    encode,
)
from stellwerk.journal.reader import open_journal
from stellwerk.journal.zstandard import framing
from stellwerk.profiles.spec.profile import KIND
from stellwerk_cli.cli import main
from tests.support.in_process import make_profile
from tests.support.recorded_kinds import RECORDINGS

EMBEDDED = RECORDINGS / "embedded-cluster.journal"
GANGS = RECORDINGS / "gangs.journal"
PACKING = [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}]


def profile(directory: Path, scheduler_name: str, **spec: Any) -> str:
    file = directory / "profile.yaml"
    file.write_text(yaml.safe_dump(make_profile("new", scheduler_name, **spec)))
    return str(file)


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main(["what-if", *arguments, "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


def test_the_differences_are_named_with_scores_and_the_plugin_that_made_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = profile(tmp_path, "stellwerk", pluginConfig=PACKING)
    answer = ask(capsys, "--profile", new, "--recording", str(EMBEDDED))
    assert answer["compared"] == answer["decisions"] == 229
    assert 0 < answer["differing"] == len(answer["differences"])
    scored = [each for each in answer["differences"] if each["total"] is not None]
    assert all(each["total"] < each["shadowTotal"] for each in scored)
    assert "NodeResourcesFit" in {each["plugin"] for each in scored}


def test_the_same_profile_decides_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(capsys, "--profile", profile(tmp_path, "stellwerk"), "--recording", str(EMBEDDED))
    assert (answer["compared"], answer["differing"], answer["failed"]) == (229, 0, 0)


def test_only_the_newest_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = profile(tmp_path, "stellwerk", pluginConfig=PACKING)
    whole = ask(capsys, "--profile", new, "--recording", str(EMBEDDED))
    newest = ask(capsys, "--profile", new, "--recording", str(EMBEDDED), "--last", "30")
    assert newest["compared"] == 30
    assert newest["differences"] == whole["differences"][: newest["differing"]]


def test_decisions_on_groups_are_compared_member_by_member(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gangs = str(GANGS)
    recorded = {
        entry.scheduler_name: entry
        for entry in open_journal(GANGS)
        if isinstance(entry, GroupBegun)
    }
    (name,) = recorded
    *_, manifest = (
        entry.obj
        for entry in open_journal(GANGS)
        if isinstance(entry, WatchEvent) and entry.kind == "SchedulerProfile"
        if entry.obj["spec"]["schedulerName"] == name
    )
    spec = {key: value for key, value in manifest["spec"].items() if key != "schedulerName"}
    same = ask(capsys, "--profile", profile(tmp_path, name, **spec), "--recording", gangs)
    assert same["groups"] > 0
    assert (same["differing"], same["failed"]) == (0, 0)
    packing = profile(tmp_path, name, **{**spec, "pluginConfig": PACKING})
    packed = ask(capsys, "--profile", packing, "--recording", gangs)
    assert (packed["groups"], packed["compared"]) == (same["groups"], same["compared"])
    of_groups = [each for each in packed["differences"] if each.get("group")]
    assert of_groups
    assert all(each["node"] != each["shadowNode"] for each in of_groups)
    assert main(["what-if", "--profile", packing, "--recording", gangs]) == 0
    assert "compared decisions are on groups of pods" in capsys.readouterr().out


def from_outside(file: Path) -> Path:
    """The same recording without what was decided, as `stellwerk record` makes one."""
    kept = (Head, WatchEvent, SnapshotWritten, InitialState)
    lines = [encode(each) for each in open_journal(EMBEDDED) if isinstance(each, kept)]
    file.write_bytes(framing()(b"".join(lines)))
    return file


def test_bindings_of_another_scheduler_are_compared_with_what_the_profile_would_choose(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outside = str(from_outside(tmp_path / "outside"))
    same = ask(capsys, "--profile", profile(tmp_path, "mine"), "--recording", outside)
    assert (same["compared"], same["failed"], same["shadowOf"]) == (107, 0, "mine")
    new = profile(tmp_path, "mine", pluginConfig=PACKING)
    packed = ask(capsys, "--profile", new, "--recording", outside)
    assert same["differing"] < packed["differing"] == len(packed["differences"])
    newest = ask(capsys, "--profile", new, "--recording", outside, "--last", "30")
    assert newest["compared"] == 30
    assert newest["differences"] == packed["differences"][: newest["differing"]]
    assert main(["what-if", "--profile", new, "--recording", outside]) == 0
    assert "compared with the bindings of another scheduler" in capsys.readouterr().err


def test_the_profiles_of_the_cluster_are_no_concern_of_the_one_that_is_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    lines = [*open_journal(from_outside(tmp_path / "outside"))]
    made = {"metadata": {"name": "theirs", "uid": "u"}, "spec": {"schedulerName": "mine"}}
    other = WatchEvent(0.0, KIND, "ADDED", made)
    file = tmp_path / "theirs"
    file.write_bytes(framing()(b"".join(map(encode, [lines[0], other, *lines[1:]]))))
    asked = ["--profile", profile(tmp_path, "mine"), "--recording", str(file)]
    assert ask(capsys, *asked)["compared"] == 107
    assert [each.getMessage() for each in caplog.records if each.levelname == "ERROR"] == []


def test_a_recording_without_a_decision_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "empty"
    file.write_bytes(framing()(encode(next(iter(open_journal(EMBEDDED))))))
    asked = ["what-if", "--profile", profile(tmp_path, "mine"), "--recording", str(file)]
    assert main(asked) == 2
    assert "the recording holds no decision" in capsys.readouterr().err


def test_a_cut_journal_is_compared_up_to_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(EMBEDDED.read_bytes()[:-10])
    new = profile(tmp_path, "stellwerk")
    assert main(["what-if", "--profile", new, "--recording", str(cut)]) == 0
    assert "compared up to here" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--recording needs a --profile"),
        (["--profile", "{new}", "--drain", "n1"], "--drain asks the operator"),
        (["--profile", "{new}"], "no decision of schedulerName other in it; there are those of"),
        (["--profile", "/nowhere.yaml"], "cannot read /nowhere.yaml"),
    ],
)
def test_what_does_not_go_together_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    new = profile(tmp_path, "other")
    given = [each.format(new=new) for each in arguments]
    assert main(["what-if", *given, "--recording", str(EMBEDDED)]) == 2
    assert said in capsys.readouterr().err
