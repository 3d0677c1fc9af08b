"""What the steps of `make e2e` share: the cluster, the installation, and the table at the end."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.site import MADE_HERE, NAMESPACE, Installation, Refusal, Release, Site, open_site

_WIDTH = 80
"""Columns for the names of the steps; the longest has a few less."""


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The cluster, with a namespace for the steps; without one that may be used nothing runs."""
    try:
        found = open_site(tmp_path_factory.mktemp("e2e"), os.environ)
    except Refusal as refusal:
        pytest.exit(f"make e2e: {refusal}", returncode=2)
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    metadata = {"name": NAMESPACE, "labels": privileged}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
    found.apply(namespace)
    try:
        yield found
    finally:
        found.delete(namespace)
        label = "--selector=" + ",".join(f"{key}={value}" for key, value in MADE_HERE.items())
        kinds = "persistentvolumes,storageclasses,priorityclasses"
        found.run("delete", kinds, label, "--timeout=60s")


@pytest.fixture(scope="session")
def installation(site: Site) -> Iterator[Installation]:
    """Stellwerk, installed for the first step that asks, and away after the last one."""
    made = (Release if os.environ.get("E2E_HELM") == "1" else Installation)(site)
    try:
        made.install()
        yield made
    finally:
        if not made.is_gone:
            made.uninstall()


@pytest.fixture
def real_nodes(site: Site, request: pytest.FixtureRequest) -> None:
    """Skip a step that needs containers, with the reason of its marker, if nodes are hollow."""
    marker = request.node.get_closest_marker("needs_containers")
    if site.is_hollow and marker is not None:
        pytest.skip(f"hollow nodes {marker.args[0]}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print each step with its time, installation and namespaces with the step that needed them."""
    seconds: dict[str, float] = {}
    outcomes: dict[str, str] = {}
    for outcome, reports in terminalreporter.stats.items():
        for each in reports:
            if not isinstance(each, pytest.TestReport):
                continue
            step = each.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
            seconds[step] = seconds.get(step, 0.0) + each.duration
            reason = each.longrepr[2] if isinstance(each.longrepr, tuple) else ""
            if outcome:
                outcomes[step] = f"{outcome} {reason.removeprefix('Skipped')}".strip()
    terminalreporter.section("steps")
    for step, taken in seconds.items():
        outcome = outcomes.get(step, "")
        terminalreporter.write_line(f"{step[:_WIDTH]:{_WIDTH}} {taken:6.1f} s  {outcome}")
    terminalreporter.write_line(f"{'all of them':{_WIDTH}} {sum(seconds.values()):6.1f} s")
