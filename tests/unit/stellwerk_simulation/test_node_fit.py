"""`stellwerk plan fit`: shapes, prices, and what fits none of them."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from stellwerk.cli import main
from stellwerk_simulation.manifests import HOURLY_PRICE
from tests.support.builders import make_node, make_pod


def shape(name: str, cpu: str, price: str, **fields: Any) -> dict[str, Any]:
    node = make_node(name, cpu=cpu, memory="64Gi", **fields)
    node["metadata"]["annotations"] = {HOURLY_PRICE: price}
    return node


def written(path: Path, objects: list[dict[str, Any]], kind: str) -> str:
    path.write_text(yaml.safe_dump_all([{**each, "kind": kind} for each in objects]))
    return str(path)


def planned(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    pods: list[dict[str, Any]],
    shapes: list[dict[str, Any]],
) -> dict[str, Any]:
    arguments = ["--for", written(tmp_path / "pods.yaml", pods, "Pod"), "-o", "json"]
    arguments += ["--shapes", written(tmp_path / "shapes.yaml", shapes, "Node")]
    assert main(["plan", "fit", *arguments]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_the_cheapest_mix_of_shapes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod(f"p{number}", cpu="3") for number in range(6)]
    found = planned(tmp_path, capsys, pods, [shape("small", "4", "1.1"), shape("large", "12", "4")])
    assert found["nodes"] == {"small": 6}
    assert found["cost"] == pytest.approx(6.6)
    assert found["bound"] <= found["cost"]
    assert found["placed"] == 6


def test_room_in_sum_is_not_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # In sum three nodes would do; of such pods each takes one.
    pods = [make_pod(f"p{number}", cpu="3") for number in range(4)]
    assert planned(tmp_path, capsys, pods, [shape("n", "4", "1")])["nodes"] == {"n": 4}


def test_a_selector_decides_which_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = [make_pod("a", cpu="1"), make_pod("b", cpu="1")]
    pods[0]["spec"]["nodeSelector"] = {"disk": "ssd"}
    shapes = [shape("plain", "1", "1"), shape("fast", "1", "3", labels={"disk": "ssd"})]
    assert planned(tmp_path, capsys, pods, shapes)["nodes"] == {"plain": 1, "fast": 1}


def test_pods_that_fit_no_shape_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = [make_pod("huge", cpu="90"), make_pod("small", cpu="1")]
    found = planned(tmp_path, capsys, pods, [shape("n", "4", "1")])
    assert found["homeless"] == ["default/huge"]
    assert found["nodes"] == {"n": 1}


def test_pods_that_have_a_node_do_not_wait(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("there", node_name="n")], "Pod")
    shapes = written(tmp_path / "s.yaml", [shape("n", "4", "1")], "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", shapes]) == 2
    assert "there is no Pod" in capsys.readouterr().err


def test_the_plan_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = written(tmp_path / "p.yaml", [make_pod("a", cpu="2"), make_pod("b", cpu="90")], "Pod")
    shapes = written(tmp_path / "s.yaml", [shape("n", "4", "1.5")], "Node")
    assert main(["plan", "fit", "--for", pods, "--shapes", shapes]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split() == ["n", "1", "1.50", "1.50"]
    assert out[-1].startswith("1 pods fit no shape")
