"""`stellwerk decide`, as far as its options go."""

import json
from pathlib import Path

import pytest

from stellwerk_cli.cli import main
from tests.support.builders import make_node, make_pod


def test_a_gate_without_effect_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = tmp_path / "case.json"
    case.write_text(json.dumps({"id": "c", "nodes": [make_node("n1")], "pod": make_pod("p")}))
    gates = "SchedulerPopFromBackoffQ=false,DRAExtendedResource=false"
    assert main(["decide", "--feature-gates", gates, str(case)]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["selected"] == ["n1"]
    assert printed.err == (
        "stellwerk: feature gate SchedulerPopFromBackoffQ=false has no effect: Stellwerk keeps it "
        "on\n"
    )


def test_a_mistake_in_an_object_names_the_file_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pod.yaml"
    file.write_text("kind: Pod\nmetadata: {name: p}\nspec: {container: []}\n")
    assert main(["decide", str(file)]) == 2
    assert capsys.readouterr().err == f'stellwerk: {file}, Pod p: unknown field "spec.container"\n'
