"""What the fence costs a binding: everything it adds, with leader election and without, in turns.

Run as `python -m tests.benchmarks.bench_fence`. CPU time of one core; the best of many rounds.
"""

import time
from collections.abc import Callable

from stellwerk.client.fence import Fence, open_fence
from stellwerk.clock import SuspendAwareClock

CALLS = 20_000
ROUNDS = 50


def guarding() -> Fence:
    """A fence as the holder of a lease has it."""
    fence = Fence(SuspendAwareClock().monotonic, guarding=True, margin_seconds=5)
    fence.extend(SuspendAwareClock().monotonic() + 3600)
    return fence


def pass_binding(fence: Fence) -> None:
    """All that a binding and its event ask of the fence."""
    fence.check("bind")
    fence.begin()
    fence.within_lease(30.0)
    fence.check("bind")
    fence.end(answered=True)
    fence.admits_event("Normal")


def pass_nothing(_: Fence) -> None:
    """The call alone."""


def microseconds(passing: Callable[[Fence], None], fence: Fence) -> float:
    """CPU time of one call."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for _ in range(CALLS):
            passing(fence)
        best = min(best, time.process_time() - started)
    return best / CALLS * 1e6


def main() -> None:
    """Print what a binding pays."""
    empty = microseconds(pass_nothing, open_fence())
    for text, fence in (("without", open_fence()), ("with", guarding())):
        print(f"{text} leader election: {microseconds(pass_binding, fence) - empty:.2f} µs a pod")


if __name__ == "__main__":
    main()
