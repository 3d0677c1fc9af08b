"""The look for kinds that an API server may not have."""

import asyncio
import logging
from typing import TYPE_CHECKING, cast

import kopf
import pytest
from typing_extensions import override

from stellwerk.handlers.availability import Availability
from stellwerk.handlers.delivery import Delivery
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk.handlers.watching import KindWatchers, check_kopf
from stellwerk.metrics import Metrics
from tests.support.memory_client import MemoryClient

if TYPE_CHECKING:
    from stellwerk.framework.watch_handlers import WatchHandlers

OPTIONAL = [watched for watched in WATCHED if watched.may_be_absent]


class FailsAtFirst(Availability):
    """The first look at a kind fails by a fault of ours."""

    def __init__(self) -> None:
        super().__init__(MemoryClient())
        self.looked: list[str] = []

    @override
    async def is_there(self, delivery: Delivery) -> bool:
        self.looked.append(delivery.watched.plural)
        if len(self.looked) == 1:
            raise KeyError("groupVersion")
        return False


async def test_a_look_that_fails_ends_no_other(caplog: pytest.LogCaptureFixture) -> None:
    availability, metrics = FailsAtFirst(), Metrics()
    unused = cast("WatchHandlers", None)
    deliveries = [Delivery(watched, unused, metrics, lambda *_: None) for watched in OPTIONAL]
    watchers = KindWatchers(
        kopf.OperatorRegistry(), deliveries, availability, MemoryClient(), metrics, lambda: 0.0
    )
    with caplog.at_level(logging.WARNING), pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await watchers.find_kinds(kopf.OperatorSettings())
    assert availability.looked == [watched.plural for watched in OPTIONAL]
    assert len(availability.looked) > 1
    assert [f"looking for {OPTIONAL[0].plural} failed" in line for line in caplog.messages] == [
        True
    ]


def test_the_installed_kopf_has_every_private_part_that_is_used() -> None:
    """Also run on the newest kopf (`make test-newest`): its message names the part that is gone."""
    check_kopf()
