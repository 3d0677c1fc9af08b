"""What counts as a right ending of a process under faults."""

from signal import SIGKILL, SIGTERM, SIGUSR2, Signals

import pytest

from tests.support.endings import Life

LOST = "stellwerk: lost the lease stellwerk/stellwerk: not renewed in time\n"


@pytest.mark.parametrize(
    ("signals", "was_live", "status", "said", "right"),
    [
        pytest.param([], True, 1, LOST, True, id="a leader that was not on the processor in time"),
        pytest.param([], True, 1, "Traceback", False, id="a crash"),
        pytest.param([], True, 0, "", False, id="an end without being asked"),
        pytest.param([], True, -SIGKILL, "", False, id="killed by something else"),
        pytest.param([], False, -SIGUSR2, "", False, id="a signal that it does not know yet"),
        pytest.param([SIGKILL], True, -SIGKILL, "", True, id="killed"),
        pytest.param([SIGTERM], True, 0, "", True, id="told to end"),
        pytest.param([SIGTERM], True, 1, LOST, True, id="told to end, too late for the lease"),
        pytest.param([SIGTERM], True, 1, "Traceback", False, id="told to end, and crashed"),
        pytest.param([SIGTERM], False, -SIGTERM, "", True, id="told before it listened"),
        pytest.param([SIGTERM], True, -SIGTERM, "", False, id="told when it should listen"),
        pytest.param([SIGTERM], True, 143, "", False, id="at once after one signal"),
        pytest.param([SIGTERM, SIGTERM], True, 143, "", True, id="at once after two"),
        pytest.param([SIGTERM, SIGKILL], True, 0, "", True, id="ended before it was killed"),
    ],
)
def test_an_ending(
    *, signals: list[Signals], was_live: bool, status: int, said: str, right: bool
) -> None:
    assert Life(was_live, signals).is_right(status, said) is right
