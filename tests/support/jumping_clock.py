"""`python -m tests.support.jumping_clock run …`: the operator on a machine whose clock jumps.

The time of day leaps by up to an hour in either direction every few seconds; monotonic time, which
no administrator can set, goes on. The seed is JUMPING_CLOCK_SEED.
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
_LONGEST_JUMP_SECONDS = 3600.0


def jumping(real: Callable[[], float], seed: int) -> Callable[[], float]:
    """A time of day that leaps."""

    def now() -> float:
        period = int(time.monotonic() / PERIOD_SECONDS)
        jump = random.Random(f"{seed} {period}").uniform(-1, 1)
        return real() + _LONGEST_JUMP_SECONDS * jump

    return now


def install(seed: int) -> None:
    """Let the whole process live by that time."""
    now = jumping(time.time, seed)
    time.time = now
    setattr(clock.SystemClock, "now", lambda _: datetime.fromtimestamp(now(), UTC))  # noqa: B010 mypy sees a method


if __name__ == "__main__":
    install(int(os.environ.get("JUMPING_CLOCK_SEED", "0")))
    sys.exit(main())
