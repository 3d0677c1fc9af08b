"""`python -m tests.support.jumping_clock run …`: the operator on a machine whose clock jumps.

The time of day leaps by up to an hour in either direction every few seconds; monotonic time, which
no administrator can set, goes on. The seed is JUMPING_CLOCK_SEED. With JUMPING_CLOCK_STEP it does
not leap, but goes wrong by so many seconds in each second: 1 makes it run twice as fast, -1 stops
it.
"""

import os
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime

from stellwerk_cli.cli import main
from stellwerk_kube import clock

PERIOD_SECONDS = 3.0
STEP = "JUMPING_CLOCK_STEP"
_LONGEST_JUMP_SECONDS = 3600.0


def jumping(real: Callable[[], float], seed: int) -> Callable[[], float]:
    """A time of day that leaps."""

    def now() -> float:
        period = int(time.monotonic() / PERIOD_SECONDS)
        jump = random.Random(f"{seed} {period}").uniform(-1, 1)
        return real() + _LONGEST_JUMP_SECONDS * jump

    return now


def stepping(real: Callable[[], float], step_seconds: float) -> Callable[[], float]:
    """A time of day that is set by a step once in a second."""
    began = time.monotonic()
    return lambda: real() + step_seconds * int(time.monotonic() - began)


def install(seed: int, step_seconds: float = 0.0) -> None:
    """Let the whole process live by that time."""
    now = stepping(time.time, step_seconds) if step_seconds else jumping(time.time, seed)
    time.time = now
    setattr(clock.SystemClock, "now", lambda _: datetime.fromtimestamp(now(), UTC))  # noqa: B010 mypy sees a method


if __name__ == "__main__":
    install(int(os.environ.get("JUMPING_CLOCK_SEED", "0")), float(os.environ.get(STEP, "0")))
    sys.exit(main())
