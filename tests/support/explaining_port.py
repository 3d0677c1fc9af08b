"""The operator's port over HTTP, with an operator in process behind it.

Invariant: the port answers as that of `stellwerk run` does, without credentials.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import aiohttp

from stellwerk.framework.handle import RandomNumbers
from stellwerk.metrics import Metrics
from stellwerk.serving.explanations import (
    ANSWER_SLICE_SECONDS,
    MAX_COMPUTING_SECONDS,
    ExplanationRoutes,
)
from stellwerk.serving.exposition import exposition
from stellwerk.serving.http import HttpServer, Probes
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, owned
from tests.support.device_cases import case
from tests.support.in_process import InProcess, make_profile, quiet, running

TAINT = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


class ExplainingPort:
    """The operator's port with a cluster behind it."""

    def __init__(self, url: str, world: InProcess, session: aiohttp.ClientSession) -> None:
        self.url = url
        self._session = session
        self.world = world
        self.leader: str | None = None

    async def get(self, path: str) -> tuple[int, Any]:
        async with self._session.get(self.url + path) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        async with self._session.post(self.url + path, json=body) as response:
            is_json = response.content_type == "application/json"
            return response.status, await (response.json() if is_json else response.text())


@asynccontextmanager
async def explaining_port(
    numbers: Callable[[int | None], RandomNumbers] = Random,
    computed_seconds: float = MAX_COMPUTING_SECONDS,
) -> AsyncIterator[ExplainingPort]:
    """`numbers` break ties."""
    async with running(numbers=numbers) as world, aiohttp.ClientSession() as session:
        answers = ExplainingPort("", world, session)
        routes = ExplanationRoutes(
            world.operator.explanations,
            lambda: answers.leader,
            world.operator.debugger,
            slice_seconds=min(ANSWER_SLICE_SECONDS, computed_seconds),
            computed_seconds=computed_seconds,
        )
        server = HttpServer(
            Probes(), lambda: exposition(Metrics()), lambda: iter(()), routes=routes.table
        )
        number = await server.start("127.0.0.1:0")
        answers.url = f"http://127.0.0.1:{number}"
        try:
            yield answers
        finally:
            await server.close()


async def two_nodes(answers: ExplainingPort) -> None:
    """A free node, a tainted one, a bound pod, one that is too large, one of no profile."""
    world = answers.world
    world.apply(make_profile("stellwerk"))
    world.apply(make_node("small", cpu="2"), make_node("tainted", cpu="8", taints=[TAINT]))
    world.apply(owned(make_pod("web", cpu="1", scheduler_name="stellwerk")))
    world.apply(make_pod("large", cpu="4", scheduler_name="stellwerk"))
    world.apply(make_pod("other", cpu="1", scheduler_name="stelwerk"))
    await quiet(100)


def with_devices(answers: ExplainingPort, *claims: JsonObject, devices: list[JsonObject]) -> None:
    """Two nodes, of which `a` has devices, and claims."""
    written = case(*claims, devices=devices)
    answers.world.apply(*written["nodes"])
    for kind, plural in (
        ("DeviceClass", "deviceclasses"),
        ("ResourceSlice", "resourceslices"),
        ("ResourceClaim", "resourceclaims"),
    ):
        for each in written[plural]:
            answers.world.operator.handlers.on_object(kind, None, each)
