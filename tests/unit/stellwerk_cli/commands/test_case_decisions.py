"""`stellwerk decide`: results in order, and errors that name the line and the field."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from stellwerk_cli.commands.case_decisions import decide_lines
from stellwerk_kube.errors import ConfigurationError
from tests.support.builders import make_node, make_pod


def _case(case_id: str, **fields: Any) -> dict[str, Any]:
    return {"id": case_id, "nodes": [make_node("small")], "pod": make_pod("web"), **fields}


def _decided(path: Path, *, human: bool = False) -> str:
    output = io.StringIO()
    assert decide_lines(str(path), form="table" if human else "json", output=output) == 0
    return output.getvalue()


def test_bare_cases_and_wrapped_ones_are_decided_in_order(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(_case("a")) + "\n\n" + json.dumps({"case": _case("b")}) + "\n")
    results = [json.loads(line) for line in _decided(path).splitlines()]
    assert [(result["id"], result["selected"]) for result in results] == [
        ("a", ["small"]),
        ("b", ["small"]),
    ]


def test_a_table_marks_the_chosen_node_and_says_why_others_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    nodes = [make_node("small", cpu="100m"), make_node("large")]
    path.write_text(json.dumps(_case("a", nodes=nodes, pod=make_pod("web", cpu="1"))))
    first, *rows = _decided(path, human=True).splitlines()
    assert first == "a (decisions follow Kubernetes 1.36.2): large"
    assert rows[0].startswith("* large")
    assert rows[1] == "  small  NodeResourcesFit: Insufficient cpu"


def test_a_file_in_utf_16_is_decided(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_bytes(f"{json.dumps(_case('a'))}\n{json.dumps(_case('b'))}\n".encode("utf-16"))
    assert [json.loads(line)["id"] for line in _decided(path).splitlines()] == ["a", "b"]


def test_a_compressed_file_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(_case("a")).encode()))
    with pytest.raises(ConfigurationError, match=rf"^cannot read {path}: it is compressed with"):
        _decided(path)


def test_no_nodes_at_all(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(_case("a", nodes=[])))
    result = json.loads(_decided(path))
    assert result["message"] == "no nodes available to schedule pods"
    assert result["selected"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "line 1: not JSON", id="broken JSON"),
        pytest.param("[]", "line 1: not a case", id="not an object"),
        pytest.param('{"id": "a"}', "line 1: pod: required field is missing", id="no pod"),
        pytest.param(
            json.dumps(_case("a", podd={})), "line 1: podd: unknown field", id="unknown field"
        ),
        pytest.param(
            json.dumps(_case("a", nodes=[make_node("x", cpu="4 cores")])),
            "line 1: nodes[0]: ValueError '4 cores' is not a quantity",
            id="a quantity that is none",
        ),
        pytest.param(
            json.dumps(_case("a", profile={"plugins": {"score": {"enabled": [{"name": "Fit"}]}}})),
            "spec.plugins.score.enabled[0]",
            id="a profile with an unknown plugin",
        ),
    ],
)
def test_what_cannot_be_decided_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        _decided(path)
    assert message in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot read"):
        _decided(tmp_path / "missing")
