"""Cuts off a plugin from outside Stellwerk that does not return.

Given to the frameworks by `app`. An interval timer raises inside a synchronous call, and inside
each step of an asynchronous one, as soon as Python code runs again; waiting is limited by the event
loop. Code that never returns to Python cannot be reached: then the event loop stands still, the
liveness probe is not answered, and the kubelet restarts the process. What calls take of the event
loop is put to the account of their profile. Invariant: outside a guarded call the timer neither
runs nor raises.
"""

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from types import FrameType
from typing import Any, Final, Generic, TypeVar

from typing_extensions import override

from stellwerk.framework.plugin_isolation import PluginGuard
from stellwerk.framework.time_budget import TimeBudget
from stellwerk.framework.types import PluginFailure

DEFAULT_LIMIT_SECONDS: Final = 0.5
"""Time limit of a call, `--plugin-timeout` of `stellwerk run`: the event loop stands still for as
long."""
MIN_INIT_SECONDS: Final = 5.0
"""Minimum time limit for a plugin's constructor. It runs once and may import large packages."""
_INIT: Final = "Init"
"""The name of the constructor among the extension points."""
DEFAULT_WAIT_SECONDS: Final = 600.0
"""Time limit of an asynchronous call with all its waiting, as VolumeBinding's
`bindTimeoutSeconds`."""
REPEAT_SECONDS: Final = 0.1
"""Pause after which the timer raises again, because a plugin may swallow what is raised in it."""

Answer = TypeVar("Answer")


class _CutOff(BaseException):
    """Raised inside a plugin; no Exception, so that `except Exception` in a loop lets it pass."""


class TimerGuard(PluginGuard):
    """An interval timer; guards nothing outside the main thread, where no signal arrives."""

    def __init__(
        self,
        limit_seconds: float = DEFAULT_LIMIT_SECONDS,
        wait_seconds: float = DEFAULT_WAIT_SECONDS,
        budget: TimeBudget | None = None,
    ) -> None:
        """Limit the time of a call, and of an asynchronous call with all its waiting."""
        self._limit_seconds = limit_seconds
        self._wait_seconds = wait_seconds
        self._budget = budget
        self._inside = False

    @property
    def guards(self) -> bool:
        """True: a call made here is guarded.

        One within a guarded call is not: a plugin that calls others (through the Handle) answers
        for their time. Neither is one in another thread, which holds up no event loop.
        """
        return not self._inside and threading.current_thread() is threading.main_thread()

    def install(self) -> None:
        """Take SIGALRM; to be called once, in the main thread."""
        signal.signal(signal.SIGALRM, self._on_alarm)

    @override
    def of_profile(self, scheduler_name: str) -> PluginGuard:
        return self if self._budget is None else _Accounted(self, self._budget, scheduler_name)

    @override
    def exhausted(self) -> bool:
        return False

    @override
    def call(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer:
        if not self.guards:
            return call()
        limit_seconds = self._limit_seconds
        if point == _INIT:
            limit_seconds = max(limit_seconds, MIN_INIT_SECONDS)
        try:
            self._inside = True
            signal.setitimer(signal.ITIMER_REAL, limit_seconds, REPEAT_SECONDS)
            try:
                return call()
            finally:
                self._disarm()
        except _CutOff:
            self._disarm()
            raise self._too_long(plugin, point, limit_seconds) from None

    @override
    async def wait(self, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self.wait_with(self, plugin, point, call)

    async def wait_with(
        self, guard: PluginGuard, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        """Make a call whose every step goes through another guard, and wait for what it answers.

        Raises:
            PluginFailure: it did not finish in time.
        """
        awaitable = guard.call(plugin, point, call)
        deadline = asyncio.timeout(self._wait_seconds)
        try:
            async with deadline:
                return await _Steps(guard, plugin, point, awaitable)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise self._too_long(plugin, point, self._wait_seconds) from None

    def _disarm(self) -> None:
        self._inside = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, _: int, __: FrameType | None) -> None:
        if self._inside:
            raise _CutOff

    def _too_long(self, plugin: str, point: str, seconds: float) -> PluginFailure:
        return PluginFailure(plugin, point, f"did not return within {seconds:g} s")


class _Accounted(PluginGuard):
    """Puts what calls take to a profile's account."""

    def __init__(self, timer: TimerGuard, budget: TimeBudget, scheduler_name: str) -> None:
        self._timer = timer
        self._budget = budget
        self._scheduler_name = scheduler_name

    @override
    def of_profile(self, scheduler_name: str) -> PluginGuard:
        return self._timer.of_profile(scheduler_name)

    @override
    def exhausted(self) -> bool:
        return bool(self._budget.exceeded(self._scheduler_name))

    @override
    def call(self, plugin: str, point: str, call: Callable[[], Answer]) -> Answer:
        if point == _INIT or not self._timer.guards:
            return self._timer.call(plugin, point, call)
        started_seconds = self._budget.now()
        try:
            return self._timer.call(plugin, point, call)
        finally:
            seconds = self._budget.now() - started_seconds
            self._budget.spent(self._scheduler_name, f'plugin "{plugin}"', seconds)

    @override
    async def wait(self, plugin: str, point: str, call: Callable[[], Awaitable[Answer]]) -> Answer:
        return await self._timer.wait_with(self, plugin, point, call)


class _Steps(Generic[Answer]):
    """An awaitable whose every step, from one wait to the next, is a guarded call."""

    def __init__(
        self, guard: PluginGuard, plugin: str, point: str, awaitable: Awaitable[Answer]
    ) -> None:
        self._guard = guard
        self._plugin = plugin
        self._point = point
        self._awaitable = awaitable

    def __await__(self) -> Generator[Any, Any, Answer]:
        steps = self._awaitable.__await__()
        step: Callable[[], Any] = lambda: next(steps)  # noqa: E731 one of three, chosen below
        while True:
            try:
                waited_for = self._guard.call(self._plugin, self._point, step)
            except StopIteration as finished:
                answer: Answer = finished.value
                return answer
            try:
                sent = yield waited_for
            except BaseException as thrown:  # noqa: BLE001 handed on to the plugin
                step = partial(steps.throw, thrown)
            else:
                step = partial(steps.send, sent)
