"""docs/gangs.md: what the page tells its reader to type works."""

import sys
from pathlib import Path

import pytest

from tests.support.kubectls import newest, program_of
from tests.support.repository import ROOT
from tests.support.shell_steps import Command, sections, shell

PROGRAMS = Path(sys.executable).parent
SECTIONS = sections(ROOT / "docs" / "gangs.md")


@pytest.mark.long
async def test_a_reader_can_follow_the_walk_through(tmp_path: Path) -> None:
    assert set(SECTIONS) == {"A walk through"}
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    programs = (program_of(newest()), PROGRAMS / "stellwerk")
    async with shell(tmp_path, {}, *programs) as opened:
        for step in SECTIONS["A walk through"]:
            assert isinstance(step, Command)
            await opened.take(step)
