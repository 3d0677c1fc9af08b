"""The example package, installed by pip and found by its entry points in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import make_node, make_pod
from tests.support.processes import command
from tests.support.repository import ROOT

PACKAGE = ROOT / "docs" / "examples" / "blinking-light-scorer"
LABEL = "example.com/blinking-lights"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package in it, as pip leaves it there."""
    target = tmp_path_factory.mktemp("site")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    alone = ["--no-build-isolation", "--no-deps", "--no-index", "--target", str(target)]
    done = subprocess.run(
        [*pip, *alone, str(PACKAGE)], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    return target


def decide(*cases: dict[str, Any], path: Path) -> subprocess.CompletedProcess[str]:
    """Decide cases in one process, with the packages of a directory."""
    search = os.pathsep.join(map(str, (path, ROOT / "operator")))
    return subprocess.run(
        [sys.executable, "-m", "stellwerk_cli", "decide", "-"],
        input="\n".join(map(json.dumps, cases)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": search},
    )


def case_of(name: str, plugin: str, lights: dict[str, str | None], **args: Any) -> dict[str, Any]:
    profile = own_profile()
    profile["plugins"] = {"score": {"enabled": [{"name": plugin, "weight": 5}]}}
    profile["pluginConfig"] = [{"name": plugin, "args": args}]
    nodes = [
        make_node(node, labels={} if value is None else {LABEL: value})
        for node, value in lights.items()
    ]
    pod = make_pod("web", cpu="1")
    return {"id": f"{name} {plugin}", "profile": profile, "nodes": nodes, "pod": pod}


def own_profile() -> dict[str, Any]:
    """The profile that lies beside the package."""
    spec = yaml.safe_load((PACKAGE / "profile.yaml").read_text())["spec"]
    return {key: value for key, value in spec.items() if key != "schedulerName"}


PLUGINS = ["BlinkingLightScorer", "BlinkingLightScorerPerNode"]
MOST: dict[str, str | None] = {"n1": "4", "n2": "16", "n3": None, "n4": "many"}
TWO: dict[str, str | None] = {"n1": "4", "n2": "11"}


@pytest.fixture(scope="module")
def decided(installed: Path) -> dict[str, Any]:
    """By the names of the cases, what is decided; all in one process."""
    cases = [{**case_of("own", PLUGINS[0], TWO), "profile": own_profile()}]
    for plugin in PLUGINS:
        cases += [
            case_of("most", plugin, MOST),
            case_of("none", plugin, {"n1": "0", "n2": None}),
            case_of("broken", plugin, TWO, brokenLights=1),
        ]
    result = decide(*cases, path=installed)
    assert result.returncode == 0, result.stderr
    return {answer["id"]: answer for answer in map(json.loads, result.stdout.splitlines())}


def scores(answer: dict[str, Any], plugin: str) -> dict[str, tuple[int, int]]:
    table = answer["scores"][plugin]
    return {node: (row["raw"], row["normalized"]) for node, row in table.items()}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_node_with_the_most_lights_gets_100(decided: dict[str, Any], plugin: str) -> None:
    answer = decided[f"most {plugin}"]
    assert scores(answer, plugin) == {
        "n1": (4, 25),
        "n2": (16, 100),
        "n3": (0, 0),
        "n4": (0, 0),
    }
    assert answer["selected"] == ["n2"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_lights_anywhere_divide_by_nothing(decided: dict[str, Any], plugin: str) -> None:
    assert scores(decided[f"none {plugin}"], plugin) == {"n1": (0, 0), "n2": (0, 0)}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_arguments_reach_the_plugin_by_its_own_model(decided: dict[str, Any], plugin: str) -> None:
    assert scores(decided[f"broken {plugin}"], plugin) == {"n1": (3, 30), "n2": (10, 100)}


def test_arguments_that_the_model_refuses_are_named_by_field(installed: Path) -> None:
    result = decide(case_of("bad", PLUGINS[0], {"n1": "4"}, brokenLights=-1), path=installed)
    assert result.returncode == 2
    assert "spec.pluginConfig[0].args.brokenLights" in result.stderr


def test_the_profile_beside_it_is_one(decided: dict[str, Any]) -> None:
    assert scores(decided[f"own {PLUGINS[0]}"], PLUGINS[0]) == {"n1": (3, 30), "n2": (10, 100)}


async def test_without_the_package_the_plugin_is_unknown(tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.write_text(json.dumps(case_of("unknown", PLUGINS[0], {"n1": "4"})))
    status, _, said = await command("decide", str(case))
    assert status == 2
    assert 'unknown plugin "BlinkingLightScorer"' in said
