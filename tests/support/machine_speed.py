"""How fast and how busy this machine is just now, for tests that bound what something takes.

Invariant: additions are measured in CPU time of the calling thread, so that a bound in additions
holds on a slow machine and on a busy one as it does elsewhere.
"""

import time
from pathlib import Path
from typing import Final

_ADDITIONS: Final = 200_000
_ROUNDS: Final = 5


def addition_seconds() -> float:
    """The CPU time of one addition in a loop of Python: some 40 ns."""
    return min(_pass_seconds() for _ in range(_ROUNDS)) / _ADDITIONS


def without_cpu_seconds(pid: int | str = "self") -> float:
    """How long the first thread of a process was ready to run and had no CPU, since its start."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _pass_seconds() -> float:
    total, began = 0, time.thread_time()
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began
