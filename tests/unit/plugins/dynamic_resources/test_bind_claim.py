"""Many pods on one claim: one writes, and takes the others along."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest
from typing_extensions import override

from stellwerk.plugins.dynamic_resources.bind_claim import (
    MAX_CONSUMERS,
    ClaimLostError,
    ClaimReservations,
    path_of,
)
from stellwerk.scheduler.api_dispatcher import KeyedLocks
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, Forbidden, Unavailable
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.resource_claim import reserved_for
from tests.support.memory_client import MemoryClient
from tests.support.skipped_time import run_skipping

if TYPE_CHECKING:
    from stellwerk.framework.services import Handle

WRITE_SECONDS = 0.01


class SlowClient(MemoryClient):
    """Takes its time for each write, like an API server with a disk."""

    lost = 0
    """So many answers are lost on their way."""
    written = 0

    @override
    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        await asyncio.sleep(WRITE_SECONDS / 2)
        stored = await super().replace(path.removesuffix("/status"), body)
        self.written += 1
        if self.lost:
            self.lost -= 1
            raise Unavailable(f"replace {path}", 0, "", "connection reset")
        await asyncio.sleep(WRITE_SECONDS / 2)
        return stored


@dataclass
class Story:
    """A claim with devices, and pods that are to be added to it."""

    clock: VirtualClock
    client: SlowClient
    reservations: ClaimReservations
    claim: JsonObject

    def adding(self, name: str) -> asyncio.Task[JsonObject]:
        consumer = {"resource": "pods", "name": name, "uid": f"uid-{name}"}
        return asyncio.create_task(self.reservations.add(self.claim, consumer))

    def reserved(self) -> list[str]:
        return [each["name"] for each in reserved_for(self.client.objects[path_of(self.claim)])]


@dataclass
class LocksOnly:
    """As much of a handle as reservations need."""

    client: SlowClient
    one_at_a_time: Callable[[str], Any]


def play(story: Callable[[Story], Awaitable[None]]) -> None:
    async def run(clock: VirtualClock) -> None:
        client = SlowClient()
        handle = cast("Handle", LocksOnly(client, KeyedLocks().one_at_a_time))
        claim = {
            "metadata": {"name": "shared", "namespace": "default", "uid": "c"},
            "status": {"allocation": {"devices": {"results": []}}},
        }
        stored = client.put(path_of(claim), claim)
        await story(Story(clock, client, ClaimReservations(handle), stored))

    run_skipping(run)


def test_as_many_pods_as_a_claim_takes_are_added_in_two_writes() -> None:
    async def story(it: Story) -> None:
        names = [f"p{number}" for number in range(MAX_CONSUMERS)]
        began = it.clock.monotonic()
        answers = await asyncio.gather(*map(it.adding, names))
        assert sorted(it.reserved()) == sorted(names)
        assert it.client.written <= 2
        assert it.clock.monotonic() - began <= 3 * WRITE_SECONDS
        assert all(len(reserved_for(each)) >= 1 for each in answers)

    play(story)


def test_one_pod_more_is_told_that_the_claim_is_full() -> None:
    async def story(it: Story) -> None:
        names = [f"p{number}" for number in range(MAX_CONSUMERS + 3)]
        answers = await asyncio.gather(*map(it.adding, names), return_exceptions=True)
        refused = [str(each) for each in answers if isinstance(each, ClaimLostError)]
        full = "claim default/shared is reserved for 256 pods, and the API takes no more"
        assert refused == [full] * 3
        assert len(it.reserved()) == MAX_CONSUMERS
        written = it.client.written
        with pytest.raises(ClaimLostError, match="256 pods"):
            await it.adding("late")
        assert it.client.written == written

    play(story)


def test_a_lost_answer_is_read_back_before_anything_else_is_written() -> None:
    async def story(it: Story) -> None:
        it.client.lost = 1
        names = [f"p{number}" for number in range(9)]
        await asyncio.gather(*map(it.adding, names))
        assert sorted(it.reserved()) == names
        assert it.client.written <= 2

    play(story)


def test_whoever_writes_may_be_cancelled_at_any_moment() -> None:
    async def story(it: Story) -> None:
        first = it.adding("first")
        others = [it.adding(f"p{number}") for number in range(9)]
        # Its write has arrived, its answer has not.
        await asyncio.sleep(0.7 * WRITE_SECONDS)
        first.cancel()
        await asyncio.gather(*others)
        assert {f"p{number}" for number in range(9)} <= set(it.reserved())
        assert len(it.reserved()) == len(set(it.reserved()))

    play(story)


def test_each_pod_has_its_own_refusal() -> None:
    async def story(it: Story) -> None:
        path = path_of(it.claim)
        it.client.failures[path] = Forbidden(f"replace {path}", 403, "Forbidden", "not you")
        answers = await asyncio.gather(*map(it.adding, ("a", "b", "c")), return_exceptions=True)
        assert [isinstance(each, ApiError) for each in answers] == [True, False, False]
        # What could not be written for the first is for it to say; it is not added by the others.
        assert sorted(it.reserved()) == ["b", "c"]

    play(story)


def test_a_claim_that_was_given_back_takes_nobody() -> None:
    async def story(it: Story) -> None:
        gone = {**it.claim, "status": {}}
        it.client.put(path_of(it.claim), gone)
        with pytest.raises(ClaimLostError, match="deallocated elsewhere"):
            await it.adding("a")

    play(story)
