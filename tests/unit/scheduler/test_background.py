"""Work in a process of its own: handed over, looked at, replaced where the process died."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from stellwerk.framework.background import NoBackground
from stellwerk.scheduler.background import ProcessBackground
from tests.support.running_operator import until


@pytest.fixture
def background() -> Iterator[ProcessBackground]:
    background = ProcessBackground()
    yield background
    background.close()


async def test_work_is_done_in_another_process(background: ProcessBackground) -> None:
    outcome = background.compute(os.getpid)
    await until(outcome.ready)
    assert outcome.result() != os.getpid()


async def test_what_the_work_raises_is_the_result(background: ProcessBackground) -> None:
    outcome = background.compute(partial(int, "many"))
    await until(outcome.ready)
    with pytest.raises(ValueError, match="many"):
        outcome.result()


async def test_a_process_that_died_is_replaced(background: ProcessBackground) -> None:
    first = background.compute(os.getpid)
    await until(first.ready)
    os.kill(first.result(), signal.SIGKILL)
    lost = background.compute(partial(int, "1"))
    await until(lost.ready)
    again = background.compute(partial(int, "2"))
    await until(again.ready)
    assert again.result() == 2


def test_without_a_background_nothing_is_ever_ready() -> None:
    outcome = NoBackground().compute(os.getpid)
    assert not outcome.ready()
    with pytest.raises(LookupError):
        outcome.result()
