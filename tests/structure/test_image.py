"""The Dockerfile: linted, pinned, and with nothing in its last stage that is not needed to run."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stellwerk import __version__
from tests.support.image_steps import Build, instructions
from tests.support.repository import ROOT

LAST = max(each.stage for each in instructions())


def of_last_stage(name: str) -> list[str]:
    return [each.text for each in instructions() if (each.stage, each.name) == (LAST, name)]


def test_hadolint_has_no_complaint(require_tool: Callable[[str], str]) -> None:
    done = subprocess.run(
        [require_tool("hadolint"), ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_bases_are_one_argument_with_a_full_version() -> None:
    arguments = [each.text for each in instructions() if each.name == "ARG"]
    (argument,) = [each for each in arguments if not each.startswith("VERSION=")]
    assert re.fullmatch(r"BASE=python:\d+\.\d+\.\d+-slim-\w+(@sha256:[0-9a-f]{64})?", argument)
    bases = [each.text.split()[0] for each in instructions() if each.name == "FROM"]
    assert bases == ["${BASE}"] * (LAST + 1)


def test_the_image_says_what_it_is_in_labels_of_oci() -> None:
    (label,) = of_last_stage("LABEL")
    labels = dict(re.findall(r'org\.opencontainers\.image\.(\w+)="([^"]+)"', label))
    assert set(labels) >= {"title", "description", "version", "licenses", "url", "source"}
    assert labels["version"] == "${VERSION}"
    assert of_last_stage("ARG") == [f"VERSION={__version__}"]


def test_the_image_runs_as_a_numbered_user_and_installs_nothing() -> None:
    assert of_last_stage("USER") == ["65532:65532"]
    assert all(" install" not in text for text in of_last_stage("RUN"))
    assert any("uninstall" in text for text in of_last_stage("RUN"))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_steps_give_a_stellwerk_that_runs_the_demo(tmp_path: Path) -> None:
    Build(tmp_path / "image", Path(sys.executable)).run()
    program = tmp_path / "image" / "opt" / "stellwerk" / "bin" / "stellwerk"
    assert not (program.parent / "pip").exists()
    done = subprocess.run(
        [program, "demo"], capture_output=True, text=True, check=False, cwd=tmp_path, timeout=300
    )
    assert done.returncode == 0, done.stderr
