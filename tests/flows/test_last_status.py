"""The status of a profile that is being written when the process ends."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from stellwerk.profiles import status_writer
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import NotLeader
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import open_virtual_cluster

if TYPE_CHECKING:
    from stellwerk.scheduler.api_dispatcher import APIDispatcher


class SlowClient:
    """An API server that takes its time for a status, as a dispatcher's client."""

    def __init__(self, seconds: float, refusal: Exception | None = None) -> None:
        self.client = self
        self.ended = list[str]()
        self._seconds = seconds
        self._refusal = refusal

    async def patch(self, _: str, body: Mapping[str, Any]) -> JsonObject:
        try:
            await asyncio.sleep(self._seconds)
        except asyncio.CancelledError:
            self.ended.append("cut off")
            raise
        self.ended.append("answered")
        if self._refusal is not None:
            raise self._refusal
        return {"metadata": {}, **body}


@pytest.mark.parametrize(
    ("seconds", "refusal", "ended"),
    [
        pytest.param(0.5, None, "answered", id="it is answered"),
        pytest.param(0.5, NotLeader("patch"), "answered", id="it is refused"),
        pytest.param(30.0, None, "cut off", id="no answer comes in time"),
    ],
)
def test_the_end_waits_for_the_answer_to_a_status_that_was_begun(
    seconds: float, refusal: Exception | None, ended: str
) -> None:
    async def flow(clock: VirtualClock) -> tuple[list[str], float]:
        async with open_virtual_cluster(clock, [make_node("a")]) as world:
            slow = SlowClient(seconds, refusal)
            for entry in world.operator.loader.entries.values():
                entry.obj = {**entry.obj, "status": {}}
            dispatcher = cast("APIDispatcher", slow)
            writer = replace(world.operator.profile_status, dispatcher=dispatcher)
            task = asyncio.create_task(writer.run())
            await asyncio.sleep(0.1)
            cancelled_seconds = clock.monotonic()
            task.cancel()
            await asyncio.wait({task})
            took_seconds = clock.monotonic() - cancelled_seconds
            await asyncio.sleep(0)
            return slow.ended, took_seconds

    statuses, took_seconds = run_skipping(flow)
    assert statuses == [ended]
    assert took_seconds <= status_writer.MAX_LAST_WRITE_SECONDS
