"""A file of a template and a count: `decide`, `simulate` and `plan fit` count its pods."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from stellwerk.world.decide import decide
from stellwerk.world.equal_pods import EqualPodRuns
from stellwerk_cli.cli import main
from tests.support.builders import make_node, make_pod

TYPE = {"node.kubernetes.io/instance-type": "m5"}
NODE = {"kind": "Node", **make_node("n1", cpu="64", pods="200", labels=TYPE)}
SHAPE = {"kind": "Node", **make_node("big", cpu="64", pods="200")}
COUNT = 1200


def counted(name: str = "work", **fields: Any) -> dict[str, Any]:
    pod = make_pod(name, cpu="500m", **fields)
    del pod["status"], pod["metadata"]["uid"]
    return {"template": pod, "count": COUNT}


def written(path: Path, *documents: object) -> str:
    path.write_text(yaml.safe_dump_all(documents))
    return str(path)


def answered(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "-o", "json"]) == 0
    return orjson.loads(capsys.readouterr().out)


EXPECTED = {
    "template": "default/Job/work",
    "pods": COUNT,
    "placed": 128,
    "unplaced": COUNT - 128,
    "nodes": 1,
    "byNode": [{"node": "n1", "pods": 128}],
    "byKind": [{"kind": "m5", "nodes": 1, "pods": 128}],
}


def test_decide_counts_by_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "c.yaml", NODE, counted(), {"kind": "Pod", **make_pod("one")})
    assert main(["decide", file]) == 0
    single, many = map(orjson.loads, capsys.readouterr().out.splitlines())
    assert (single["id"], single["selected"]) == ("default/one", ["n1"])
    assert many.items() >= EXPECTED.items()
    assert many["reasons"][0]["pods"] == COUNT - 128
    assert main(["decide", file, "-o", "table"]) == 0
    text = capsys.readouterr().out
    assert "default/job/work: 128 of 1,200 pods get a node" in text
    assert "1,072 pods get no node: 0/1 nodes are available: 1 Insufficient cpu" in text


def test_decide_refuses_more_than_one_answer_covers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "c.yaml", NODE, {**counted(), "count": 10**9})
    assert main(["decide", file]) == 2
    assert "1,000,000,000 pods; one answer covers at most 15,000" in capsys.readouterr().err


def test_simulations_count_by_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "c.yaml", NODE, counted())
    (run,) = answered(capsys, "simulate", "-f", file)["runs"]
    assert (run["placed"], run["leftOut"], run["pods"]) == (128, COUNT - 128, [])
    (found,) = run["templates"]
    assert found.items() >= EXPECTED.items()


def test_plans_count_by_template(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = written(tmp_path / "pods.yaml", counted())
    shapes = written(tmp_path / "shapes.yaml", SHAPE)
    plan = answered(capsys, "plan", "fit", "--for", pods, "--shapes", shapes)
    assert (plan["nodes"], plan["placed"]) == ({"big": 10}, COUNT)
    (found,) = plan["templates"]
    assert found["byKind"] == [{"kind": "big", "nodes": 10, "pods": COUNT}]
    nowhere = written(tmp_path / "pods.yaml", counted(nodeSelector={"disk": "ssd"}))
    plan = answered(capsys, "plan", "fit", "--for", nowhere, "--shapes", shapes)
    assert plan["homeless"] == {}
    (found,) = plan["templates"]
    assert [each["pods"] for each in found["reasons"]] == [COUNT]


@pytest.mark.parametrize("command", ["decide", "simulate -f"])
def test_a_malformed_count_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "c.yaml", NODE, {**counted(), "count": "many"})
    assert main([*command.split(), file]) == 2
    assert "count: a number from 0 on is expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="plain"),
        pytest.param({"labels": {"app": "a"}, "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname",
             "whenUnsatisfiable": "ScheduleAnyway",
             "labelSelector": {"matchLabels": {"app": "a"}}}]}, id="spread"),
    ],
)  # fmt: skip
def test_a_simulation_in_runs_is_the_one_without(
    fields: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    nodes = [{"kind": "Node", **make_node(f"n{each}", cpu="8")} for each in range(5)]
    documents = [{**counted(**fields), "count": 60}, {**counted("other"), "count": 40}]
    file = written(tmp_path / "c.yaml", *nodes, *documents)
    in_runs = answered(capsys, "simulate", "-f", file)
    monkeypatch.setattr(
        EqualPodRuns, "decide", lambda self, pod, profile: decide(self._world, pod, profile)
    )
    assert answered(capsys, "simulate", "-f", file) == in_runs
    assert sum(run["placed"] for run in in_runs["runs"]) > 60
