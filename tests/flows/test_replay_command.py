"""`stellwerk simulate --replay`: what it prints, and how it ends, whatever it reads."""

from pathlib import Path

import orjson
import pytest
import yaml

from stellwerk.journal.zstandard import framing
from stellwerk_cli.cli import main
from stellwerk_kube.compatibility import PATCHES_BEFORE_THEY_COUNTED, older_meanings
from tests.support.builders import make_node, make_pod
from tests.support.in_process import make_profile
from tests.support.recorded_kinds import RECORDINGS

HEAD = ["H", {"format": 2, "startedAt": "2026-01-01T00:00:00Z"}]


def written(directory: Path, *lines: object) -> str:
    file = directory / "journal"
    text = b"".join(orjson.dumps(line) + b"\n" for line in lines)
    file.write_bytes(framing()(text))
    return str(file)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        pytest.param([], "the journal is empty", id="nothing"),
        pytest.param([["S"]], "does not begin with a head", id="no head"),
        pytest.param([["H", {"format": 7, "version": "9.1"}]], "was written by 9.1", id="later"),
        pytest.param([HEAD, ["E", 1, "Pod", "ADDED", 5]], "line 2: obj of an entry", id="type"),
        pytest.param([HEAD, ["D", 1, {}, [], {}, 1]], "line 2: uid of an entry", id="uid"),
        pytest.param([HEAD, {"a": 1}], "line 2: not an entry", id="no entry"),
    ],
)
def test_what_is_no_journal_is_one_line_and_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[object], said: str
) -> None:
    assert main(["simulate", "--replay", written(tmp_path, *lines)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), said in err) == ("", 1, True), err


def test_malformed_objects_are_skipped_as_the_operator_skips_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    specs: list[object] = [5, [], {"nodeName": {}}, {"containers": 1}, {"schedulerName": {}}]
    events = [
        ["E", 1, kind, "ADDED", {"metadata": metadata, "spec": spec, "status": spec}]
        for kind in ("Pod", "Node", "PodGroup", "PersistentVolume", "SchedulerProfile", "Namespace")
        for spec in specs
    ]
    others = [["F", 2, "u"], ["N", 2, "u", "n"], ["K", "X", {"metadata": metadata}], ["T", 1]]
    journal = written(tmp_path, HEAD, *events, *others)
    assert main(["simulate", "--replay", journal]) == 0
    assert capsys.readouterr().out == "the journal holds no decision and no binding\n"
    profile = tmp_path / "profile.yaml"
    profile.write_text(yaml.safe_dump(make_profile("p")))
    assert main(["simulate", "--replay", journal, "--profile", str(profile)]) == 2
    assert "no pod arrives in it" in capsys.readouterr().err


def test_a_ready_profile_decides_the_pods_of_a_recording(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recording = str(RECORDINGS / "preemption.journal")
    assert main(["simulate", "--replay", recording, "--profile", "best-fit"]) == 0
    printed = capsys.readouterr()
    assert "best-fit" in printed.out
    assert "no pod asks for schedulerName best-fit" in printed.err
    assert main(["simulate", "--replay", recording, "--profile", "best-fti"]) == 2
    said = 'there is no such profile; did you mean "best-fit"?; ready profiles are default, random'
    assert said in capsys.readouterr().err


def test_groups_are_counted_and_their_members_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    gangs = str(RECORDINGS / "gangs.journal")
    assert main(["simulate", "--replay", gangs]) == 0
    printed = capsys.readouterr()
    assert "of them on groups" in printed.out
    assert printed.err.splitlines() == [
        "stellwerk: decisions follow Kubernetes 1.36.2",
        (
            "stellwerk: as the recorder of the journal knew them, "
            f"{', '.join(older_meanings(PATCHES_BEFORE_THEY_COUNTED))}"
        ),
    ]
    assert "1.36 means 1.36.2, 1.37 means 1.37.0, auto is without " in printed.err
    assert main(["simulate", "--replay", gangs, "--until", "mixed-3"]) == 0
    assert "default/mixed-3 is bound on n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: SchedulerProfile\nspec: 5", "spec"),
        ("kind: SchedulerProfile\nspec: {}", "spec.schedulerName: required"),
        ("kind: SchedulerProfile\nspec: {shadowOf: x}", "a shadow schedules no pods"),
        ("kind: Pod", "a Pod is not a SchedulerProfile"),
    ],
)
def test_a_profile_that_cannot_be_used_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    profile, gangs = tmp_path / "profile.yaml", str(RECORDINGS / "gangs.journal")
    profile.write_text(text)
    assert main(["simulate", "--replay", gangs, "--profile", str(profile)]) == 2
    err = capsys.readouterr().err
    assert (err.count("\n"), said in err) == (1, True), err


def of_another_scheduler(tmp_path: Path) -> str:
    """A recording from outside: a pod of the default scheduler comes, and is bound."""
    profile = make_profile("default", "default-scheduler")
    pod = make_pod("r1", cpu="1")
    bound = make_pod("r1", cpu="1", node_name="b")
    nodes = [make_node(name, cpu=cpu) for name, cpu in (("a", "2"), ("b", "8"))]
    events = [
        *(["E", 1, "Node", "ADDED", node] for node in nodes),
        ["E", 1, "SchedulerProfile", "ADDED", profile],
        ["E", 2, "Pod", "ADDED", pod],
        ["E", 3, "Pod", "MODIFIED", bound],
    ]
    return written(tmp_path, HEAD, *events)


def test_a_binding_of_another_scheduler_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = of_another_scheduler(tmp_path)
    assert main(["simulate", "--replay", journal, "--until", "default/r1"]) == 0
    out = capsys.readouterr().out
    assert "default/r1 is waiting" in out
    assert "another scheduler bound it to b then" in out
    assert "It would get " in out


def test_a_profile_that_no_pod_asks_for_decides_them_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = of_another_scheduler(tmp_path)
    profile = tmp_path / "packing.yaml"
    profile.write_text(yaml.safe_dump(make_profile("packing")))
    assert main(["simulate", "--replay", journal, "--profile", str(profile), "-o", "json"]) == 0
    written_out = capsys.readouterr()
    answer = orjson.loads(written_out.out)
    assert [(each["placed"], each["arrived"]) for each in answer["profiles"]] == [(1, 1), (1, 1)]
    assert "no pod asks for schedulerName packing" in written_out.err
