"""Whatever stands in a file, a command that reads it answers, or refuses it in one line."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

SEED = 42
"""One run goes where the last one went."""


async def fuzzed(directory: Path, rounds: int, seed: int) -> dict[str, int]:
    """How many files each command was given, in a run without a finding."""
    last = directory / "last"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.flows.file_fuzzing", "--rounds", f"{rounds}"),
        *("--seed", f"{seed}", "--last", str(last)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, told.decode(errors="replace")
    given: dict[str, int] = json.loads(told.decode().rpartition("inputs ")[2])
    return given


async def test_each_command_takes_files_as_they_should_be_and_a_few_odd_ones(
    tmp_path: Path,
) -> None:
    given = await fuzzed(tmp_path, 1, SEED)
    assert len(given) == 17
    assert min(given.values()) > 1


@pytest.mark.long
async def test_each_command_takes_hundreds_of_odd_files(tmp_path: Path) -> None:
    given = await fuzzed(tmp_path, 40, SEED + 1)
    assert min(given.values()) > 30
