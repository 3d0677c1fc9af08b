"""The wheel carries everything: in a clean environment, far from this repository, the demo runs."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.repository import ROOT

OPTIONS = ("--quiet", "--disable-pip-version-check")


def run(*command: str | Path, directory: Path) -> str:
    """What a command prints that must succeed, without this process's Python paths."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        cwd=directory,
        timeout=300,
        env={"PATH": "/usr/bin:/bin", "HOME": str(directory)},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make wheel` makes."""
    target = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "wheel", *OPTIONS, "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", target, ROOT, directory=target)
    (made,) = target.glob("*.whl")
    return made


def test_every_file_of_the_packages_is_in_the_wheel(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(ROOT / "operator"))
        for path in (ROOT / "operator").glob("stellwerk*/**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources - packed == set()


@pytest.mark.long
@pytest.mark.timeout(600)
def test_installed_in_a_clean_environment_it_runs_the_demo(wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "clean", directory=tmp_path)
    programs = tmp_path / "clean" / "bin"
    # Indexes are those of this machine's pip.
    pip = subprocess.run(
        [programs / "python", "-m", "pip", "install", *OPTIONS, wheel],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert pip.returncode == 0, pip.stderr
    assert "pods placed" in run(programs / "stellwerk", "demo", directory=tmp_path)
