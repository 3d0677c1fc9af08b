"""Tasks that are run together end together, in order."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from stellwerk.supervision import ENDED_AT_ONCE, Ending, run_together
from stellwerk_kube.errors import LeaseLostError, SchedulerError


class Runs:
    """Coroutines that note their end."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    async def endless(self, name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append(name)

    async def failing(self, error: Exception) -> None:
        await asyncio.sleep(0)
        raise error


async def test_when_told_to_stop_all_are_ended_in_their_order() -> None:
    stop, runs = asyncio.Event(), Runs()
    together = asyncio.create_task(
        run_together(stop, scheduler=runs.endless("scheduler"), watches=runs.endless("watches"))
    )
    await asyncio.sleep(0)
    stop.set()
    await together
    assert runs.ended == ["scheduler", "watches"]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        pytest.param(LeaseLostError("lost the lease"), "lost the lease", id="an error of ours"),
        pytest.param(
            KeyError("uid"), "the task \"watches\" ended: KeyError: 'uid'", id="any other"
        ),
    ],
)
async def test_what_one_raises_ends_the_others_and_is_one_line(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    runs = Runs()
    with pytest.raises(SchedulerError) as raised:
        await run_together(
            asyncio.Event(), scheduler=runs.endless("scheduler"), watches=runs.failing(error)
        )
    assert str(raised.value) == said
    assert runs.ended == ["scheduler"]
    assert ("Traceback" in caplog.text) == (not isinstance(error, SchedulerError))


async def test_a_cancellation_ends_all_of_them() -> None:
    runs = Runs()
    together = asyncio.create_task(
        run_together(asyncio.Event(), scheduler=runs.endless("scheduler"))
    )
    await asyncio.sleep(0)
    together.cancel()
    with pytest.raises(asyncio.CancelledError):
        await together
    assert runs.ended == ["scheduler"]


async def _over() -> None:
    """Ends without a word."""


async def _cancelled() -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("early", [_over, _cancelled])
async def test_a_task_that_ends_unasked_does_not_end_the_process_silently(
    early: Callable[[], Coroutine[Any, Any, None]],
) -> None:
    runs = Runs()
    with pytest.raises(SchedulerError, match='the task "watches" ended unexpectedly'):
        await run_together(asyncio.Event(), scheduler=runs.endless("scheduler"), watches=early())
    assert runs.ended == ["scheduler"]


def test_a_second_signal_ends_the_process_at_once() -> None:
    statuses: list[int] = []
    ending = Ending(statuses.append)
    ending.on_signal()
    assert ending.stop.is_set()
    assert not statuses
    ending.on_signal()
    assert statuses == [ENDED_AT_ONCE]
