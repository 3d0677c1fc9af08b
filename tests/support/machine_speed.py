"""How fast and how busy this machine is just now, for tests that bound what something takes.

Invariant: additions and pieces of work are measured in CPU time of the calling thread, so that a
bound in them holds on a slow machine and on a busy one as it does elsewhere.
"""

import time
from pathlib import Path
from typing import Final

import numpy as np

_ADDITIONS: Final = 200_000
_COMPARED_COLUMNS: Final = 60
_COLUMN_ROWS: Final = 5_000
_OBJECTS: Final = 4_000
_ROUNDS: Final = 5


def addition_seconds() -> float:
    """The CPU time of one addition in a loop of Python: some 40 ns."""
    return min(_pass_seconds() for _ in range(_ROUNDS)) / _ADDITIONS


def piece_of_work_seconds() -> float:
    """The CPU time of a millisecond's work: columns of 5,000 rows are compared, objects made.

    Where other machines share the processor's caches, these take longer, and additions do not.
    """
    return min(_piece_seconds() for _ in range(_ROUNDS))


def without_cpu_seconds(pid: int | str = "self") -> float:
    """How long the first thread of a process was ready to run and had no CPU, since its start."""
    return int(Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9


def _pass_seconds() -> float:
    total, began = 0, time.thread_time()
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began


def _piece_seconds() -> float:
    column = np.arange(_COLUMN_ROWS)
    rows, made = column[::-1].copy(), dict[str, tuple[int]]()
    began = time.thread_time()
    for bound in range(_COMPARED_COLUMNS):
        between = (column > bound) & (column < _COLUMN_ROWS - bound)
        between[rows].sum()
    for number in range(_OBJECTS):
        made[str(number)] = (number,)
    return time.thread_time() - began
