"""An event loop without waiting: idle time is skipped at once.

Flows use it, in process or over loopback sockets, with one clock for the loop and for everything
that takes a Clock: an hour of tolerationSeconds passes in milliseconds, in the same order every
time. Invariant: the clock moves only while no callback is ready, and never beyond the next timer.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from typing_extensions import override

from stellwerk_kube.clock import Clock, SystemClock, VirtualClock

Result = TypeVar("Result")

_ARRIVAL_SECONDS = 0.002
"""Real time that something on its way between two sockets of this process may take."""


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


class _SocketSelector(_SkippingSelector):
    """Gives what this process has sent to itself, and its threads, the time to arrive."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.threads_busy = 0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or self.threads_busy:
            # No timer, or an answer that time must not run ahead of: nothing is there to skip.
            return selectors.SelectSelector.select(self, timeout)
        ready = selectors.SelectSelector.select(self, min(timeout, _ARRIVAL_SECONDS))
        return ready or super().select(timeout)


class _SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock, selector: _SkippingSelector) -> None:
        super().__init__(selector)
        self.clock = clock

    @override
    def time(self) -> float:
        return self.clock.monotonic()


class _SocketLoop(_SkippingLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._sockets = _SocketSelector(clock)
        super().__init__(clock, self._sockets)

    @override
    def run_in_executor(  # type: ignore[override]  # whatever it is, it is handed on
        self, executor: Any, func: Any, *args: Any
    ) -> Any:
        future = super().run_in_executor(executor, func, *args)
        self._sockets.threads_busy += 1
        future.add_done_callback(self._thread_done)
        return future

    @override
    def close(self) -> None:
        """Close what the skipped time left no moment to close: the ends of broken connections."""
        if not self.is_closed():
            transports = self._transports  # type: ignore[attr-defined]  # of selector loops
            for transport in [*transports.values()]:
                transport.abort()
            self.run_until_complete(asyncio.sleep(_ARRIVAL_SECONDS))
        super().close()

    @override
    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Wait for the threads without a limit: skipped time would run out before they end."""
        await super().shutdown_default_executor()

    def _thread_done(self, _: object) -> None:
        self._sockets.threads_busy -= 1


def skips_time() -> bool:
    """Whether the running loop is one of these."""
    return isinstance(asyncio.get_running_loop(), _SkippingLoop)


def clock_of_loop() -> Clock:
    """The clock that goes with the running loop."""
    loop = asyncio.get_running_loop()
    return loop.clock if isinstance(loop, _SkippingLoop) else SystemClock()


def skipping_loop() -> asyncio.AbstractEventLoop:
    """A loop for a test that is marked with `skips_time`, over loopback or without sockets."""
    return _SocketLoop(VirtualClock())


def run_skipping(
    flow: Callable[[VirtualClock], Coroutine[Any, Any, Result]], clock: VirtualClock | None = None
) -> Result:
    """Run a flow without sockets to its end; it is given the clock of its loop."""
    clock = clock or VirtualClock()
    return _run(_SkippingLoop(clock, _SkippingSelector(clock)), flow(clock))


def run_skipping_over_sockets(
    flow: Callable[[VirtualClock], Coroutine[Any, Any, Result]],
) -> Result:
    """Run a flow that talks to itself over loopback; time stands still while anything arrives."""
    clock = VirtualClock()
    return _run(_SocketLoop(clock), flow(clock))


def _run(loop: asyncio.AbstractEventLoop, flow: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(flow)
