"""`.ci/release` in a clone: the version stands everywhere, or nothing is changed."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stellwerk import __version__
from tests.support.repository import ROOT

FILES = (
    "operator/stellwerk/__init__.py",
    "charts/stellwerk/Chart.yaml",
    "manifests/20-deployment.yaml",
    "manifests/static-pod/stellwerk.yaml",
    "README.md",
    "docs/operations.md",
    "Dockerfile",
    ".ci/krew/stellwerk.yaml",
    "CHANGELOG.md",
)
BESIDE = (".ci/artifacts", "LICENSE", ".gitignore", "pyproject.toml")


def git(clone: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    command = ("git", *names, *arguments)
    done = subprocess.run(command, cwd=clone, check=True, capture_output=True, text=True)
    return done.stdout


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for part in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{part}_NAME", "a")
        monkeypatch.setenv(f"GIT_{part}_EMAIL", "a@example.com")
    for name in (*FILES, *BESIDE):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "as it is")
    return tmp_path


def release(clone: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, str(ROOT / ".ci" / "release"), *arguments)
    return subprocess.run(command, cwd=clone, check=False, capture_output=True, text=True)


def test_a_release_has_its_version_everywhere_and_a_tag(clone: Path) -> None:
    done = release(clone, "7.8.9")
    assert (done.returncode, done.stderr) == (0, "")
    for name in FILES:
        text = (clone / name).read_text()
        assert "7.8.9" in text
        assert name == "CHANGELOG.md" or __version__ not in text
    log = (clone / "CHANGELOG.md").read_text()
    assert "## Unreleased\n\n## 7.8.9 – " in log
    assert git(clone, "tag", "--list") == "v7.8.9\n"
    assert git(clone, "status", "--porcelain") == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), ".ci/release VERSION\n"),
        (("7.8",), ".ci/release: '7.8' is no version as 1.2.3 or 1.2.3-rc.1\n"),
        (("v7.8.9",), ".ci/release: 'v7.8.9' is no version as 1.2.3 or 1.2.3-rc.1\n"),
        (("0.0.1",), ".ci/release: 0.0.1 is not newer than what is released\n"),
        (("7.8.9-rc.1",), ".ci/release: 7.8.9-rc.1 is not newer than what is released\n"),
    ],
)
def test_what_is_no_release_changes_nothing(
    clone: Path, arguments: tuple[str, ...], message: str
) -> None:
    git(clone, "tag", f"v{__version__}")
    git(clone, "tag", "v7.8.9-rc.1")
    done = release(clone, *arguments)
    assert (done.returncode, done.stderr) == (2, message)
    assert git(clone, "status", "--porcelain") == ""


def test_a_release_without_changes_is_refused(clone: Path) -> None:
    assert release(clone, "7.8.9").returncode == 0
    done = release(clone, "7.8.10")
    assert done.stderr == ".ci/release: CHANGELOG.md says nothing under Unreleased\n"


def test_what_is_not_committed_is_not_released(clone: Path) -> None:
    (clone / "README.md").write_text("changed")
    assert release(clone, "7.8.9").stderr == ".ci/release: something is not committed\n"


def test_a_release_that_fails_its_checks_leaves_nothing(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    done = release(clone, "7.8.9", sys.executable, "-c", "raise SystemExit(3)")
    assert done.returncode == 2
    assert done.stderr.endswith("status 3; nothing was released\n")
    assert done.stderr.count("\n") == 1
    assert git(clone, "rev-parse", "HEAD") == before
    assert git(clone, "tag", "--list") == ""
    assert git(clone, "status", "--porcelain") == ""


def test_a_release_whose_files_have_another_version_leaves_nothing(clone: Path) -> None:
    before = git(clone, "rev-parse", "HEAD")
    builds = """
import pathlib, zipfile
pathlib.Path("dist").mkdir(exist_ok=True)
with zipfile.ZipFile("dist/stellwerk-7.8.8-py3-none-any.whl", "w") as wheel:
    wheel.writestr("stellwerk-7.8.8.dist-info/METADATA", "Name: stellwerk\\nVersion: 7.8.8\\n")
pathlib.Path("dist/stellwerk-7.8.8.tar.gz").touch()
"""
    done = release(clone, "7.8.9", sys.executable, "-c", builds)
    expected = ".ci/release: stellwerk-7.8.8-py3-none-any.whl says 7.8.8\n"
    assert (done.returncode, done.stderr) == (2, expected)
    assert git(clone, "rev-parse", "HEAD") == before
    assert git(clone, "tag", "--list") == ""
    assert git(clone, "status", "--porcelain") == ""
