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


def decide(case: dict[str, Any], *path: Path) -> subprocess.CompletedProcess[str]:
    search = os.pathsep.join(map(str, (*path, ROOT / "operator")))
    return subprocess.run(
        [sys.executable, "-m", "stellwerk", "decide", "-"],
        input=json.dumps(case),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": search},
    )


def case_of(plugin: str, lights: dict[str, str | None], **args: Any) -> dict[str, Any]:
    profile = yaml.safe_load((PACKAGE / "profile.yaml").read_text())["spec"]
    profile["plugins"] = {"score": {"enabled": [{"name": plugin, "weight": 5}]}}
    profile["pluginConfig"] = [{"name": plugin, "args": args}]
    del profile["schedulerName"]
    nodes = [
        make_node(name, labels={} if value is None else {LABEL: value})
        for name, value in lights.items()
    ]
    return {"id": "lights", "profile": profile, "nodes": nodes, "pod": make_pod("web", cpu="1")}


def scores(result: subprocess.CompletedProcess[str], plugin: str) -> dict[str, tuple[int, int]]:
    assert result.returncode == 0, result.stderr
    table = json.loads(result.stdout)["scores"][plugin]
    return {node: (row["raw"], row["normalized"]) for node, row in table.items()}


PLUGINS = ["BlinkingLightScorer", "BlinkingLightScorerPerNode"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_node_with_the_most_lights_gets_100(installed: Path, plugin: str) -> None:
    lights = {"n1": "4", "n2": "16", "n3": None, "n4": "many"}
    result = decide(case_of(plugin, lights), installed)
    assert scores(result, plugin) == {
        "n1": (4, 25),
        "n2": (16, 100),
        "n3": (0, 0),
        "n4": (0, 0),
    }
    assert json.loads(result.stdout)["selected"] == ["n2"]


@pytest.mark.parametrize("plugin", PLUGINS)
def test_no_lights_anywhere_divide_by_nothing(installed: Path, plugin: str) -> None:
    result = decide(case_of(plugin, {"n1": "0", "n2": None}), installed)
    assert scores(result, plugin) == {"n1": (0, 0), "n2": (0, 0)}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_arguments_reach_the_plugin_by_its_own_model(installed: Path, plugin: str) -> None:
    case = case_of(plugin, {"n1": "4", "n2": "11"}, brokenLights=1)
    assert scores(decide(case, installed), plugin) == {"n1": (3, 30), "n2": (10, 100)}


def test_arguments_that_the_model_refuses_are_named_by_field(installed: Path) -> None:
    result = decide(case_of(PLUGINS[0], {"n1": "4"}, brokenLights=-1), installed)
    assert result.returncode == 2
    assert "spec.pluginConfig[0].args.brokenLights" in result.stderr


def test_the_profile_beside_it_is_one(installed: Path) -> None:
    case = case_of(PLUGINS[0], {"n1": "4", "n2": "11"})
    profile = yaml.safe_load((PACKAGE / "profile.yaml").read_text())["spec"]
    case["profile"] = {key: value for key, value in profile.items() if key != "schedulerName"}
    assert scores(decide(case, installed), PLUGINS[0]) == {"n1": (3, 30), "n2": (10, 100)}


def test_without_the_package_the_plugin_is_unknown() -> None:
    result = decide(case_of(PLUGINS[0], {"n1": "4"}))
    assert result.returncode == 2
    assert 'unknown plugin "BlinkingLightScorer"' in result.stderr
