"""Plugins that do not return are cut off, and nothing else is."""

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from stellwerk.framework.time_budget import TimeBudget
from stellwerk.framework.types import PluginFailure
from stellwerk.profiles.plugin_guard import TimerGuard

LIMIT_SECONDS = 0.05


@pytest.fixture
def guard(request: pytest.FixtureRequest) -> Iterator[TimerGuard]:
    """With the limits that a test names; else it waits for minutes."""
    before = signal.getsignal(signal.SIGALRM)
    guard = TimerGuard(**{"limit_seconds": LIMIT_SECONDS, **getattr(request, "param", {})})
    guard.install()
    yield guard
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    signal.signal(signal.SIGALRM, before)


def loop_for_ever() -> None:
    while True:
        pass


def loop_catching_exceptions() -> None:
    while True:
        try:
            loop_for_ever()
        except Exception:  # noqa: BLE001, S112 as careless plugins do
            continue


def loop_catching_everything_thrice() -> None:
    for _ in range(3):
        with contextlib.suppress(BaseException):
            loop_for_ever()
    loop_for_ever()


@pytest.mark.parametrize(
    "call", [loop_for_ever, loop_catching_exceptions, loop_catching_everything_thrice]
)
def test_a_loop_without_end_is_ended(guard: TimerGuard, call: Any) -> None:
    with pytest.raises(PluginFailure) as raised:
        guard.call("Slow", "Filter", call)
    assert str(raised.value) == 'running Filter plugin "Slow": did not return within 0.05 s'


@pytest.mark.parametrize("guard", [{"limit_seconds": 0.5}], indirect=True)
def test_an_answer_in_time_is_the_answer(guard: TimerGuard) -> None:
    assert guard.call("Quick", "Filter", lambda: 7) == 7
    deadline = time.monotonic() + 0.75
    while time.monotonic() < deadline:
        """Outside a call nothing is cut off."""


def test_what_a_plugin_raises_is_not_touched(guard: TimerGuard) -> None:
    def raising() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        guard.call("Own", "Filter", raising)


def test_a_call_within_a_call_counts_as_the_outer_one(guard: TimerGuard) -> None:
    def outer() -> None:
        assert guard.call("Inner", "Filter", lambda: 1) == 1
        loop_for_ever()

    with pytest.raises(PluginFailure) as raised:
        guard.call("Outer", "PostFilter", outer)
    assert raised.value.plugin == "Outer"


async def test_a_step_that_does_not_return_is_ended(guard: TimerGuard) -> None:
    async def first_waits_then_loops() -> None:
        await asyncio.sleep(0.01)
        loop_for_ever()

    with pytest.raises(PluginFailure, match=r"did not return within 0\.05 s"):
        await guard.wait("Slow", "PreBind", first_waits_then_loops)


@pytest.mark.parametrize("guard", [{"wait_seconds": 0.2}], indirect=True)
async def test_waiting_has_a_limit_of_its_own(guard: TimerGuard) -> None:
    with pytest.raises(PluginFailure, match=r"did not return within 0\.2 s"):
        await guard.wait("Slow", "PreBind", asyncio.Event().wait)


async def test_waiting_longer_than_a_step_may_take_is_fine(guard: TimerGuard) -> None:
    async def patient() -> str:
        await asyncio.sleep(2 * LIMIT_SECONDS)
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.01)
        except TimeoutError:
            return "waited"
        return "not at all"

    assert await guard.wait("Patient", "PreBind", patient) == "waited"


async def test_a_timeout_of_the_plugins_own_is_its_own(guard: TimerGuard) -> None:
    async def impatient() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        await guard.wait("Impatient", "PreBind", impatient)


async def test_cancellation_reaches_the_plugin(guard: TimerGuard) -> None:
    waiting, cleaned = asyncio.Event(), asyncio.Event()

    async def cleaning() -> None:
        try:
            waiting.set()
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    task = asyncio.create_task(guard.wait("Clean", "PreBind", cleaning))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cleaned.is_set()


# --- the account of a profile ---------------------------------------------------------------------


class Ticking:
    """A clock that a plugin moves."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


async def test_calls_and_steps_are_put_to_the_account_and_waiting_is_not() -> None:
    clock = Ticking()
    budget = TimeBudget(clock.now)
    guard = TimerGuard(budget=budget).of_profile("a")
    guard.call("P", "Init", lambda: clock.sleep(9.0))
    guard.call("P", "Score", lambda: clock.sleep(1.0))

    async def later() -> None:
        clock.sleep(1.0)
        waiting = asyncio.create_task(asyncio.sleep(0))
        clock.sleep(0.0)
        await waiting

    await guard.wait("P", "Permit", later)
    assert budget.exceeded("a") == ""
    guard.call("P", "Score", lambda: clock.sleep(0.1))
    assert 'plugin "P" is too slow' in budget.exceeded("a")


async def test_what_happens_while_a_plugin_waits_is_not_its_time() -> None:
    clock = Ticking()
    budget = TimeBudget(clock.now)
    guard = TimerGuard(budget=budget).of_profile("a")
    waited_for = asyncio.Event()

    async def elsewhere() -> None:
        clock.sleep(60.0)
        waited_for.set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(guard.wait("P", "Permit", waited_for.wait))
        tasks.create_task(elsewhere())
    assert budget.exceeded("a") == ""


def test_a_call_within_a_call_is_counted_once() -> None:
    clock = Ticking()
    budget = TimeBudget(clock.now)
    guard = TimerGuard(budget=budget).of_profile("a")
    guard.call("P", "Filter", lambda: guard.call("Q", "Filter", lambda: clock.sleep(1.5)))
    assert budget.exceeded("a") == ""
