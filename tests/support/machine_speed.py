"""How fast this machine is just now, for tests that bound what something costs.

Invariant: only CPU time of the calling thread is measured, so that a bound in additions holds on a
slow machine and on a busy one as it does elsewhere.
"""

import time
from typing import Final

_ADDITIONS: Final = 200_000
_ROUNDS: Final = 5


def addition_seconds() -> float:
    """The CPU time of one addition in a loop of Python: some 40 ns."""
    return min(_pass_seconds() for _ in range(_ROUNDS)) / _ADDITIONS


def _pass_seconds() -> float:
    total, began = 0, time.thread_time()
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began
