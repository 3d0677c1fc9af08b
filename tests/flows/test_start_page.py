"""The pages for newcomers: what docs/start.md and its tutorial tell their readers to type works."""

import sys
import time
from pathlib import Path

import pytest

from tests.support.kubectls import newest, program_of
from tests.support.processes import command
from tests.support.repository import ROOT
from tests.support.shell_steps import Command, sections, shell

PROGRAMS = Path(sys.executable).parent
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


async def follow(document: Path, directory: Path) -> float:
    """Type every command of a page; return the seconds that they took."""
    begun_seconds = time.monotonic()
    try:
        async with shell(directory, {}, program_of(newest()), PROGRAMS / "stellwerk") as opened:
            for steps in sections(document).values():
                for step in steps:
                    assert isinstance(step, Command)
                    await opened.take(step)
    finally:
        # After a failed step: the cluster in the background would outlive the test.
        await command("down", "--kubeconfig", str(directory / "stellwerk.kubeconfig"))
    return time.monotonic() - begun_seconds


async def test_five_minutes_are_enough_for_the_first_page(tmp_path: Path) -> None:
    seconds = await follow(ROOT / "docs" / "start.md", tmp_path)
    print(f"docs/start.md took {seconds:.1f} s")  # noqa: T201 the figure of the page
    assert seconds < 300


@pytest.mark.long
@pytest.mark.parametrize("tutorial", TUTORIALS, ids=lambda path: path.stem)
async def test_a_tutorial_can_be_followed(tutorial: Path, tmp_path: Path) -> None:
    await follow(tutorial, tmp_path)
