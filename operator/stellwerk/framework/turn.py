"""Work of an attempt that may take longer than the loop can be held.

Costly filters give theirs to `completes`; what is left the scheduling coroutine goes on with in
slices. Invariant: an attempt whose work is unfinished has decided nothing; it is made anew when
the work is done.
"""

from collections.abc import Callable, Iterator

from stellwerk.framework.cycle_state import CycleState


def completes(state: CycleState, work: Iterator[None], now_seconds: Callable[[], float]) -> bool:
    """Do work until it is done or the attempt's turn is over; returns whether it is done.

    What is left is in the state then; it goes on from step to step, with results where it began.
    """
    until_seconds = now_seconds() + (state.turn_seconds or 0.0)
    for _ in work:
        if state.turn_seconds is not None and now_seconds() > until_seconds:
            state.unfinished = work
            return False
    return True
