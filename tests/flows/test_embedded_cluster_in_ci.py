"""docs/embedded-cluster-in-ci.md: its fixture and test run as written, and so do its commands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.kubectls import newest, program_of
from tests.support.repository import ROOT
from tests.support.shell_steps import Command, sections, shell

PAGE = ROOT / "docs" / "embedded-cluster-in-ci.md"
STELLWERK = Path(sys.executable).parent / "stellwerk"

pytestmark = pytest.mark.long


def test_the_fixture_and_the_test_of_the_page_pass(tmp_path: Path) -> None:
    fixture, test = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    (tmp_path / "conftest.py").write_text(fixture)
    (tmp_path / "test_web.py").write_text(test)
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "kubectl").symlink_to(program_of(newest()))
    (programs / "stellwerk").symlink_to(STELLWERK)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"],
        cwd=tmp_path,
        env={"PATH": f"{programs}:{os.defpath}", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


async def test_the_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    async with shell(tmp_path, {}, program_of(newest()), STELLWERK) as opened:
        for steps in sections(PAGE).values():
            for step in steps:
                assert isinstance(step, Command)
                await opened.take(step)
