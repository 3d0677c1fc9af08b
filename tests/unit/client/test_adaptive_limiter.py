"""The limiter under a virtual clock: what it lets through, and how it moves."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stellwerk.client.adaptive_limiter import AdaptiveLimiter
from stellwerk_kube.clock import VirtualClock


async def exchange(
    limiter: AdaptiveLimiter, clock: VirtualClock, seconds: float, *, overloaded: bool = False
) -> None:
    """Fill the limit with requests that all take the same time."""
    started = clock.monotonic()
    width = limiter.limit
    for _ in range(width):
        await limiter.acquire()
    clock.advance(seconds)
    for _ in range(width):
        limiter.release(started, overloaded=overloaded)


async def test_never_more_in_flight_than_the_limit() -> None:
    limiter = AdaptiveLimiter(VirtualClock(), initial=4, minimum=1)
    tasks = [asyncio.create_task(limiter.acquire()) for _ in range(10)]
    await asyncio.sleep(0)
    assert limiter.in_flight == 4
    assert sum(task.done() for task in tasks) == 4
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_waiters_are_served_in_order() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=1, minimum=1, maximum=1)
    served: list[int] = []

    async def request(number: int) -> None:
        await limiter.acquire()
        served.append(number)
        limiter.release(clock.monotonic(), overloaded=False)

    await limiter.acquire()
    tasks = [asyncio.create_task(request(number)) for number in range(5)]
    await asyncio.sleep(0)
    limiter.release(clock.monotonic(), overloaded=False)
    await asyncio.gather(*tasks)
    assert served == [0, 1, 2, 3, 4]
    assert limiter.in_flight == 0


async def test_while_others_wait_one_passes_for_every_64_of_them() -> None:
    clock = VirtualClock()
    first = AdaptiveLimiter(clock, initial=1, minimum=1, maximum=1)
    second = AdaptiveLimiter(clock, initial=4, minimum=1, yields_to=first)
    await first.acquire()
    assert second.limit == 4, "no request waits"
    busy = [asyncio.create_task(first.acquire()) for _ in range(65)]
    await asyncio.sleep(0)
    yielding = [asyncio.create_task(second.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    assert second.in_flight == 1
    second.release(clock.monotonic(), overloaded=False)
    for _ in range(63):
        first.release(clock.monotonic(), overloaded=False)
        await asyncio.sleep(0)
    assert second.in_flight == 0
    first.release(clock.monotonic(), overloaded=False)
    await asyncio.sleep(0)
    assert second.in_flight == 1
    first.release(clock.monotonic(), overloaded=False)
    await asyncio.gather(*busy, *yielding)
    assert second.in_flight == 2, "no request waits any more"


async def test_quick_answers_at_the_limit_widen_it() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=8, minimum=2, maximum=64)
    for _ in range(20):
        await exchange(limiter, clock, 0.002)
    assert limiter.limit > 16


async def test_an_idle_limit_stays() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=8, minimum=2, maximum=64)
    for _ in range(100):
        await limiter.acquire()
        clock.advance(0.002)
        limiter.release(clock.monotonic() - 0.002, overloaded=False)
    assert limiter.limit == 8


async def test_throttling_narrows_once_per_round_trip() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=100, minimum=2)
    await exchange(limiter, clock, 0.002, overloaded=True)
    assert limiter.limit == 70


async def test_late_answers_narrow_the_limit() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=32, minimum=4)
    for _ in range(5):
        await exchange(limiter, clock, 0.002)
    before = limiter.limit
    for _ in range(20):
        await exchange(limiter, clock, 0.2)
    assert limiter.limit < before / 2


async def test_what_yields_gives_way_as_soon_as_a_binding_would_wait_for_it() -> None:
    clock = VirtualClock()
    first = AdaptiveLimiter(clock, initial=32, minimum=4)
    second = AdaptiveLimiter(clock, initial=32, minimum=2, yields_to=first, late_seconds=0.01)
    for limiter in (first, second):
        await exchange(limiter, clock, 0.002)
    for _ in range(60):
        await exchange(first, clock, 0.03)
        await exchange(second, clock, 0.03)
    assert second.limit == 2
    assert first.limit > 32, "for bindings, 30 ms are no reason to send fewer"


async def test_late_answers_that_delay_no_binding_hold_nothing_back_up_to_a_limit() -> None:
    clock = VirtualClock()
    first = AdaptiveLimiter(clock, initial=32, minimum=4)
    second = AdaptiveLimiter(
        clock, initial=4, minimum=2, yields_to=first, alone=16, late_seconds=0.01
    )
    for limiter in (first, second):
        await exchange(limiter, clock, 0.002)
    for _ in range(60):
        await exchange(second, clock, 0.03)
    assert second.limit in range(12, 17)
    await first.acquire()
    for _ in range(60):
        await exchange(second, clock, 0.03)
    assert second.limit == 2, "a binding is in flight"
    first.release(clock.monotonic(), overloaded=False)
    for _ in range(60):
        await exchange(second, clock, 0.03, overloaded=True)
    assert second.limit == 2, "the server refuses for load"


async def test_what_was_never_quick_is_compared_with_the_best_of_those_it_yields_to() -> None:
    clock = VirtualClock()
    first = AdaptiveLimiter(clock, initial=4, minimum=4)
    second = AdaptiveLimiter(clock, initial=32, minimum=2, yields_to=first, late_seconds=0.01)
    await exchange(first, clock, 0.002)
    for _ in range(60):
        await exchange(second, clock, 0.03)
    assert second.limit == 2


async def test_what_the_server_could_do_a_minute_ago_is_forgotten() -> None:
    clock = VirtualClock()
    first = AdaptiveLimiter(clock, initial=4, minimum=4)
    second = AdaptiveLimiter(clock, initial=8, minimum=2, yields_to=first, late_seconds=0.01)
    await exchange(first, clock, 0.002)
    clock.advance(61)
    for _ in range(40):
        await exchange(second, clock, 0.03)
    assert second.limit > 8


async def test_limit_stays_within_its_bounds() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=4, minimum=2, maximum=6)
    for _ in range(50):
        await exchange(limiter, clock, 0.001)
    assert limiter.limit == 6
    for _ in range(50):
        await exchange(limiter, clock, 0.001, overloaded=True)
    assert limiter.limit == 2


async def test_a_cancelled_waiter_costs_no_slot() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=1, minimum=1, maximum=1)
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.gather(waiter, return_exceptions=True)
    limiter.release(clock.monotonic(), overloaded=False)
    assert limiter.in_flight == 0


async def test_a_slot_freed_before_a_cancelled_waiter_has_noticed_is_not_lost() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=1, minimum=1, maximum=1)
    await limiter.acquire()
    waiter = asyncio.create_task(limiter.acquire())
    await asyncio.sleep(0)
    waiter.cancel()
    limiter.release(clock.monotonic(), overloaded=False)
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await asyncio.wait_for(limiter.acquire(), timeout=60)
    assert limiter.in_flight == 1


async def test_a_waiter_cancelled_while_being_served_passes_its_slot_on() -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=1, minimum=1, maximum=1)
    await limiter.acquire()
    first, second = (asyncio.create_task(limiter.acquire()) for _ in range(2))
    await asyncio.sleep(0)
    limiter.release(clock.monotonic(), overloaded=False)  # the slot is the first waiter's now
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await asyncio.wait_for(second, timeout=60)
    assert limiter.in_flight == 1


@given(
    st.lists(st.tuples(st.floats(0.0001, 0.5), st.booleans()), max_size=200),
    st.integers(0, 2**32),
)
def test_whatever_the_answers_the_limit_holds_and_every_request_is_served(
    answers: list[tuple[float, bool]], seed: int
) -> None:
    clock = VirtualClock()
    limiter = AdaptiveLimiter(clock, initial=4, minimum=2, maximum=8)
    served = 0

    async def request(seconds: float, *, overloaded: bool) -> None:
        nonlocal served
        await limiter.acquire()
        assert limiter.in_flight <= 8
        started = clock.monotonic()
        clock.advance(seconds)
        for _ in range(order.randrange(3)):
            await asyncio.sleep(0)
        limiter.release(started, overloaded=overloaded)
        served += 1

    async def all_requests() -> None:
        await asyncio.gather(*(request(time, overloaded=bad) for time, bad in answers))

    order = random.Random(seed)
    asyncio.run(all_requests())
    assert served == len(answers)
    assert limiter.in_flight == 0
    assert 2 <= limiter.limit <= 8


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 4), st.booleans()), max_size=200),
    st.integers(0, 2**32),
)
def test_a_limiter_that_yields_is_served_too_whatever_is_cancelled(
    requests: list[tuple[bool, int, bool]], seed: int
) -> None:
    clock, order = VirtualClock(), random.Random(seed)
    first = AdaptiveLimiter(clock, initial=2, minimum=1, maximum=4)
    second = AdaptiveLimiter(clock, initial=2, minimum=1, maximum=4, yields_to=first)

    async def request(limiter: AdaptiveLimiter, pauses: int) -> None:
        await limiter.acquire()
        try:
            for _ in range(pauses):
                await asyncio.sleep(0)
        finally:
            limiter.release(clock.monotonic(), overloaded=False)

    async def all_requests() -> None:
        cancelled: list[asyncio.Task[None]] = []
        others: list[asyncio.Task[None]] = []
        for is_first, pauses, is_cancelled in requests:
            task = asyncio.create_task(request(first if is_first else second, pauses))
            (cancelled if is_cancelled else others).append(task)
            if order.random() < 0.3:
                await asyncio.sleep(0)
                if cancelled:
                    order.choice(cancelled).cancel()
        for task in cancelled:
            task.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(*others)
        await asyncio.gather(*cancelled, return_exceptions=True)

    asyncio.run(all_requests())
    assert first.in_flight == second.in_flight == 0


def test_bounds_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="not in order"):
        AdaptiveLimiter(VirtualClock(), initial=1, minimum=2)


async def test_what_waits_can_be_dropped_and_takes_no_slot() -> None:
    limiter = AdaptiveLimiter(VirtualClock(), initial=1, minimum=1, maximum=1)
    await limiter.acquire()
    waiting = [asyncio.create_task(limiter.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    limiter.drop_waiting(lambda: ValueError("dropped"))
    waiting[0].cancel()  # in the same turn: it is both
    outcomes = await asyncio.gather(*waiting, return_exceptions=True)
    assert [type(each) for each in outcomes] == [asyncio.CancelledError, ValueError, ValueError]
    assert limiter.in_flight == 1
    limiter.release(0.0, overloaded=False)
    await limiter.acquire()
