"""Whether a kind can be watched, where the API server does not say."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.framework.offline import Offline
from stellwerk.handlers.availability import Availability
from stellwerk.handlers.watched_kinds import WATCHED
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError, api_error
from stellwerk_kube.json_values import JsonObject
from tests.support.skipped_time import run_skipping

PODS = WATCHED[0]


class Refusing(Offline):
    """An API server that does not know its client (any more), for so many requests."""

    def __init__(self, times: int) -> None:
        self.left = times
        self.refused = 0

    @override
    async def get(self, path: str) -> JsonObject:
        if self.left:
            self.left -= 1
            self.refused += 1
            raise self.refusal()
        return {"resources": [{"name": "pods"}]}

    @override
    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        return {"status": {"allowed": True}}

    @staticmethod
    def refusal() -> ApiError:
        return api_error("GET /api/v1", 401, "Unauthorized", "Unauthorized")


def test_refused_credentials_are_tried_again_and_not_named_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    client = Refusing(25)

    async def flow(_: VirtualClock) -> None:
        with caplog.at_level(logging.WARNING):
            assert await Availability(client).obstacle(PODS) is None

    run_skipping(flow)
    assert client.refused == 25
    assert len(caplog.records) == 3


def test_an_answer_in_between_makes_the_next_refusal_news(caplog: pytest.LogCaptureFixture) -> None:
    client = Refusing(2)

    async def flow(_: VirtualClock) -> None:
        for _attempt in range(2):
            assert await Availability(client).obstacle(PODS) is None
            client.left = 2

    run_skipping(flow)
    assert len(caplog.records) == 2
