"""When an extender that does not answer is left alone."""

from stellwerk.client.extender import CircuitBreaker
from stellwerk_kube.clock import VirtualClock


def test_three_timeouts_in_a_row_leave_one_call_in_ten_seconds() -> None:
    clock = VirtualClock()
    pause = CircuitBreaker(clock)
    for _ in range(3):
        assert pause.admits()
        pause.timed_out()
    assert not pause.admits()
    clock.advance(9.9)
    assert not pause.admits()
    clock.advance(0.2)
    assert [pause.admits(), pause.admits()] == [True, False]
    pause.timed_out()
    assert not pause.admits()
    clock.advance(10)
    assert [pause.admits(), pause.admits()] == [True, False]


def test_a_probe_that_is_answered_ends_the_pause() -> None:
    clock = VirtualClock()
    pause = CircuitBreaker(clock)
    for _ in range(3):
        pause.timed_out()
    clock.advance(10)
    assert pause.admits()
    pause.ended()
    assert [pause.admits(), pause.admits()] == [True, True]


def test_an_answer_in_between_begins_the_row_anew() -> None:
    pause = CircuitBreaker(VirtualClock())
    for _ in range(5):
        pause.timed_out()
        pause.timed_out()
        pause.ended()
    assert pause.admits()
