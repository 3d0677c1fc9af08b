"""Recordings as workloads: pods come and go as they did, wherever they are placed now."""

from pathlib import Path
from typing import Any

import pytest

from stellwerk.journal.entries import Entry, Head, WatchEvent, encode
from stellwerk.journal.zstandard import framing
from stellwerk_cli.cli import main
from stellwerk_kube.errors import ConfigurationError
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.sources import read_recording
from tests.support.builders import make_node, make_pod
from tests.support.repository import ROOT

COMMITTED = ROOT / "tests" / "data" / "recordings" / "embedded-cluster.journal"


def seen(seconds: float, obj: JsonObject, event_type: str | None = "ADDED") -> WatchEvent:
    return WatchEvent(seconds, obj["kind"], event_type, obj)


def recording(path: Path, *events: WatchEvent) -> Path:
    file = path / "x.journal"
    entries: list[Entry] = [Head("test", "2026-01-01T00:00:00Z"), *events]
    file.write_bytes(framing()(b"".join(encode(entry) for entry in entries)))
    return file


def pod(name: str, uid: str = "", **fields: Any) -> JsonObject:
    return make_pod(name, cpu="3", uid=uid or name, **fields)


def a_day(path: Path) -> Path:
    """One node; pods that one after the other run on it, the last ones to the end."""
    first, again = pod("web"), pod("web", uid="again")
    job = pod("job")
    done = {**job, "status": {"phase": "Succeeded"}}
    node = make_node("n1", cpu="4")
    return recording(
        path,
        seen(5.0, node, None),
        seen(5.0, {"kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 7}, None),
        seen(10.0, first),
        seen(12.0, pod("web", node_name="n1"), "MODIFIED"),
        seen(42.0, pod("web", node_name="n1"), "DELETED"),
        seen(43.0, job),
        seen(44.0, pod("job", node_name="n1"), "MODIFIED"),
        seen(50.0, done, "MODIFIED"),
        seen(51.0, done, "DELETED"),
        seen(60.0, again),
        seen(61.0, node, "DELETED"),
    )


def test_lives_of_pods(tmp_path: Path) -> None:
    recorded = read_recording(a_day(tmp_path))
    assert [
        (each.name, each.arrives_seconds, each.runs_seconds) for each in recorded.trace_pods()
    ] == [("default/web", 0, 30), ("default/job", 33, 6), ("default/web#2", 50, None)]
    assert [node.name for node in recorded.trace_nodes()] == ["n1"]
    assert [kind for kind, _, _ in recorded.others] == ["PriorityClass"]


@pytest.mark.parametrize(
    ("arguments", "placed"),
    [
        pytest.param(("--arrivals", "trace"), "3", id="with departures"),
        pytest.param(("--arrivals", "fast"), "1", id="as fast as possible"),
    ],
)
def test_a_recording_is_simulated(
    arguments: tuple[str, str], placed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(a_day(tmp_path))
    command = ["simulate", "--nodes", file, "--pods", file, "--profile", "default", "--jobs", "1"]
    assert main([*command, *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == "stellwerk: decisions follow Kubernetes 1.37.1\n"
    assert printed.out.splitlines()[1].split()[:4] == ["default", "42", "3", placed]


def test_a_recording_of_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    file = str(COMMITTED)
    command = ["simulate", "--nodes", file, "--pods", file, "--arrivals", "trace", "--jobs", "1"]
    assert main([*command, "--compare", "default", "best-fit", "--on-failure", "queue"]) == 0
    assert "nodes in use" in capsys.readouterr().out


def test_what_is_damaged_is_said_and_the_rest_is_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = a_day(tmp_path)
    file.write_bytes(file.read_bytes() + b"torn")
    command = ["simulate", "--nodes", str(file), "--pods", str(file), "--profile", "default"]
    assert main([*command, "--jobs", "1"]) == 0
    assert "read up to here: " in capsys.readouterr().err


def test_a_recording_without_pods_is_named(tmp_path: Path) -> None:
    recorded = read_recording(recording(tmp_path, seen(1.0, make_node("n"))))
    with pytest.raises(ConfigurationError, match=r"x\.journal: there is no Pod"):
        recorded.trace_pods()
