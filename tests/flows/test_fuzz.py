"""Changed bytes at every reader: no signal, no error of ours, no input that takes a second."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

SEED = 27
"""One run goes where the last one went, on a fast machine no further; `make soak-hostile` takes
another seed each time."""


async def fuzzed(directory: Path, seconds: float, seed: int, rounds: int) -> tuple[int, str]:
    """The exit status of a run, and what it said."""
    last = directory / "last"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.fuzzing", "--seconds", str(seconds)),
        *("--seed", str(seed), "--last", str(last), "--rounds", str(rounds)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    told, _ = await asyncio.wait_for(process.communicate(), seconds + 120)
    return int(process.returncode or 0), f"{told.decode()} last: {last.read_text('utf-8')}"


def judge(status: int, told: str) -> dict[str, int]:
    """How many inputs each target was given, in a run without a finding."""
    assert status == 0, told
    given: dict[str, int] = json.loads(told.partition("inputs ")[2].partition("\n")[0])
    return given


async def test_a_few_changed_bytes_harm_no_reader(tmp_path: Path) -> None:
    given = judge(*await fuzzed(tmp_path, 1, SEED, 100))
    assert len(given) == 18
    assert min(given.values()) > 0


@pytest.mark.long
async def test_changed_bytes_harm_no_reader_for_a_minute(tmp_path: Path) -> None:
    given = judge(*await fuzzed(tmp_path, 60, SEED + 1, 4000))
    assert min(given.values()) > 50
