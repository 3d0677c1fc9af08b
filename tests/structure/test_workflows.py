"""The workflows: what they call is there, and nothing is released that is not green.

`make workflows` has actionlint look at them; here is what it does not know.
"""

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.support.repository import ROOT

FOLDER = ROOT / ".github" / "workflows"
MINORS_OF_KUBERNETES = 3


def workflow(name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((FOLDER / name).read_text())
    return found


def triggers(name: str) -> dict[str, Any]:
    """What starts a workflow: `on`, which YAML 1.1 reads as true."""
    found: dict[str, Any] = workflow(name)[True]
    return found


def commands(job: dict[str, Any]) -> str:
    return "\n".join(step.get("run", "") for step in job["steps"])


def test_every_change_is_checked_on_each_python_that_the_package_names() -> None:
    assert {"push", "pull_request", "workflow_call"} <= triggers("ci.yml").keys()
    job = workflow("ci.yml")["jobs"]["check"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r":: (3\.\d+)$", "\n".join(project["classifiers"]), re.MULTILINE)
    assert job["strategy"]["matrix"]["python"] == named
    assert " check " in f"{commands(job)} "


def test_the_steps_run_on_three_minors_both_ways_and_in_kube_schedulers_place() -> None:
    job = workflow("ci.yml")["jobs"]["e2e"]
    versions = job["strategy"]["matrix"]["kubernetes"]
    assert len({each.split(".")[1] for each in versions}) == MINORS_OF_KUBERNETES
    runs = [line for line in commands(job).splitlines() if line.startswith("make e2e ")]
    assert any("E2E_TAKE_OVER=1" in line for line in runs)
    assert any("E2E_HELM=1" in line for line in runs)
    assert all("E2E_CONTEXT=" in line and "IMAGE=" in line for line in runs)
    config = next(step["with"]["config"] for step in job["steps"] if "kind-action" in str(step))
    nodes = yaml.safe_load((ROOT / config).read_text())["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane", "worker", "worker"]


def test_a_release_waits_for_all_of_it() -> None:
    jobs = workflow("release.yml")["jobs"]
    assert jobs["ci"]["uses"] == "./.github/workflows/ci.yml"
    assert jobs["build"]["needs"] == "ci"


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yml")))
def test_a_workflow_calls_targets_that_there_are_and_is_given_no_right_by_default(
    name: str,
) -> None:
    found = workflow(name)
    assert found["permissions"] == {}
    assert all("permissions" in job for job in found["jobs"].values())
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    steps = "\n".join(commands(job) for job in found["jobs"].values() if "steps" in job)
    called = re.findall(r"\bmake ([a-z][^\n|&;]*)", steps)
    words = [word for call in called for word in call.split() if "=" not in word]
    assert words
    assert set(words) - targets == set()
