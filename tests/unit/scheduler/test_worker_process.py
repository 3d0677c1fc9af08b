"""Work in a process of its own: handed over, looked at, replaced where the process died."""

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from stellwerk.framework.worker import NoWorker
from stellwerk.scheduler.worker_process import WorkerProcess
from tests.support.running_operator import until


@pytest.fixture
def worker() -> Iterator[WorkerProcess]:
    worker = WorkerProcess()
    yield worker
    worker.close()


async def test_work_is_done_in_another_process(worker: WorkerProcess) -> None:
    outcome = worker.compute(os.getpid)
    await until(outcome.ready)
    assert outcome.result() != os.getpid()


async def test_what_the_work_raises_is_the_result(worker: WorkerProcess) -> None:
    outcome = worker.compute(partial(int, "many"))
    await until(outcome.ready)
    with pytest.raises(ValueError, match="many"):
        outcome.result()


async def test_a_process_that_died_is_replaced(worker: WorkerProcess) -> None:
    first = worker.compute(os.getpid)
    await until(first.ready)
    os.kill(first.result(), signal.SIGKILL)
    lost = worker.compute(partial(int, "1"))
    await until(lost.ready)
    again = worker.compute(partial(int, "2"))
    await until(again.ready)
    assert again.result() == 2


def test_without_a_background_nothing_is_ever_ready() -> None:
    outcome = NoWorker().compute(os.getpid)
    assert not outcome.ready()
    with pytest.raises(LookupError):
        outcome.result()
