"""What hostile objects leave in the memory of a process, as the kernel counts it."""

import sys
from subprocess import run

import pytest

from tests.support.repository import ROOT

FLAT_MIB = 32.0
"""How far the resident memory may go beyond that after the third repetition: an allocator's slack,
of a few parsed objects. A repetition makes several hundred MiB of them in all."""


@pytest.mark.long
def test_the_resident_memory_is_flat_from_the_third_repetition_on() -> None:
    child = run(
        [sys.executable, "-m", "tests.support.hostile_memory", "6", "200"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}"},
    )
    resident_mib = [float(line) for line in child.stdout.split()]
    assert len(resident_mib) == 6
    assert max(resident_mib[3:]) <= resident_mib[2] + FLAT_MIB, resident_mib
