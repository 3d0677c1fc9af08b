"""An event loop without sockets in which nobody waits: idle time is skipped at once.

Flows that run in process use it, with one clock for the loop and for everything that takes a Clock:
an hour of tolerationSeconds passes in milliseconds, in the same order every time. Invariant: the
clock moves only while no callback is ready, and never beyond the next timer.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from typing_extensions import override

from stellwerk.clock import VirtualClock

Result = TypeVar("Result")


class StalledError(AssertionError):
    """Everybody waits and no timer is left: the flow would hang for ever."""


class _SkippingSelector(selectors.SelectSelector):
    """Looks for input without waiting; the time that it was to wait passes on the clock."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            if timeout is None:
                raise StalledError
            self._clock.advance(max(0.0, timeout))
        return ready


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_SkippingSelector(clock))
        self._clock = clock

    @override
    def time(self) -> float:
        return self._clock.monotonic()


def run_skipping(flow: Callable[[VirtualClock], Coroutine[Any, Any, Result]]) -> Result:
    """Run a flow to its end; it is given the clock of its loop."""
    clock = VirtualClock()
    with asyncio.Runner(loop_factory=lambda: _SkippingLoop(clock)) as runner:
        return runner.run(flow(clock))
