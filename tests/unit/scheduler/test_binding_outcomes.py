"""A pod counts on its node until the API has said that it is not there."""

import asyncio
import copy
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import patch

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.scheduler.binding_outcomes import CONFIRMATION_SECONDS, OVERDUE_CHECK_SECONDS
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import OutcomeUnknown, Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

FOUND_SECONDS = CONFIRMATION_SECONDS + 2 * OVERDUE_CHECK_SECONDS
PODS = "/api/v1/namespaces/default/pods"


def play(flow: Callable[[InProcess], Awaitable[None]]) -> None:
    """One node for one pod, while nothing is wrong."""

    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("default-scheduler"), make_node("n1", cpu="1"))
            await flow(world)

    run_skipping(run)


def silently_bound(world: InProcess, name: str, node_name: str | None) -> None:
    """Write into the store what no event shows."""
    stored = copy.deepcopy(world.pod(name))
    stored["spec"]["nodeName"] = node_name
    stored["metadata"]["resourceVersion"] = "1000"
    world.client.objects[f"{PODS}/{name}"] = stored


def event_of(world: InProcess, name: str, node_name: str | None) -> JsonObject:
    obj = copy.deepcopy(world.pod(name))
    obj["spec"]["nodeName"] = node_name
    obj["metadata"]["resourceVersion"] += "0"
    return obj


@pytest.mark.parametrize("applied", [True, False])
def test_a_binding_whose_answer_is_lost_keeps_its_room_until_the_api_says(*, applied: bool) -> None:
    async def flow(world: InProcess) -> None:
        reads: list[str] = []

        async def bind(_: str, name: str, _uid: str, node_name: str) -> None:
            if applied:
                silently_bound(world, name, node_name)
            raise OutcomeUnknown(f"bind {name}", None, "Timeout", "no answer in time")

        read = world.client.get

        async def get(path: str) -> JsonObject:
            if "?" in path:
                return await read(path)
            reads.append(path)
            raise Unavailable(f"get {path}", None, "Timeout", "no answer in time")

        with patch.object(world.client, "bind", bind), patch.object(world.client, "get", get):
            world.apply(make_pod("first", cpu="1"))
            uid = world.pod("first")["metadata"]["uid"]
            await eventually(lambda: len(reads) > 5, 60)
            world.apply(make_pod("second", cpu="1"))
            await quiet()
            assert uid in world.cache.assumed_pods
            assert world.queue.pending()["unschedulable"] == 1
            found = await world.operator.audit.run()
            assert found.unknown_bindings == {"default/first"}
        await eventually(lambda: uid not in world.cache.assumed_pods, 30)
        assert (world.cache.pod(uid) is not None) is applied
        await eventually(lambda: world.node_of("first") or world.node_of("second"), 30)
        assert bool(world.node_of("first")) is not bool(world.node_of("second"))

    play(flow)


def test_a_binding_that_was_answered_and_not_applied_is_made_again() -> None:
    async def flow(world: InProcess) -> None:
        async def accept(*_: str) -> None:
            """Answers as if it had been applied."""

        with patch.object(world.client, "bind", accept):
            world.apply(make_pod("web", cpu="1"))
            uid = world.pod("web")["metadata"]["uid"]
            await eventually(lambda: world.operator.bindings.unconfirmed)
            accepted_seconds = world.clock.monotonic()
            found = await world.operator.audit.run()
            assert found.misplaced_pods == {"default/web"}
            assert uid in world.cache.assumed_pods
        await eventually(lambda: uid not in world.cache.assumed_pods, 60)
        assert world.clock.monotonic() - accepted_seconds <= FOUND_SECONDS
        assert world.queue.place(uid) is Place.ERROR_BACKOFF
        await eventually(lambda: world.node_of("web"), 30)

    play(flow)


def test_a_bound_pod_that_the_api_has_unbound_is_scheduled_again() -> None:
    async def flow(world: InProcess) -> None:
        world.apply(make_pod("web", cpu="1"))
        await eventually(lambda: world.node_of("web"))
        obj = world.pod("web")
        del obj["spec"]["nodeName"]
        world.apply(make_node("n2", cpu="1"))
        world.apply(obj)
        await eventually(lambda: world.node_of("web"), 30)
        assert len(list(world.cache.pods())) == 1

    play(flow)


def test_an_old_event_that_shows_a_bound_pod_unbound_gives_no_room_away() -> None:
    async def flow(world: InProcess) -> None:
        world.apply(make_pod("web", cpu="1"))
        await eventually(lambda: world.node_of("web"))
        uid = world.pod("web")["metadata"]["uid"]
        world.operator.handlers.on_pod("MODIFIED", event_of(world, "web", None))
        assert world.operator.bindings.doubted
        await eventually(lambda: not world.operator.bindings.doubted, 30)
        counted = world.cache.pod(uid)
        assert counted is not None
        assert counted.node_name == "n1"
        assert uid not in world.queue.entries

    play(flow)


def test_many_are_read_in_one_list() -> None:
    async def flow(world: InProcess) -> None:
        asked: list[str] = []
        get = world.client.get

        async def counted(path: str) -> Any:
            asked.append(path)
            await asyncio.sleep(0.01)  # an answer takes a while
            return await get(path)

        async def bind(_: str, name: str, _uid: str, node_name: str) -> None:
            silently_bound(world, name, node_name)
            raise OutcomeUnknown(f"bind {name}", None, "Timeout", "no answer in time")

        world.apply(make_node("large", cpu="64"))
        with patch.object(world.client, "get", counted), patch.object(world.client, "bind", bind):
            world.apply(*(make_pod(f"p{number}", cpu="1") for number in range(40)))
            await eventually(lambda: not world.cache.assumed_pods and not world.queue.entries, 30)
        assert len(asked) < 40
        assert f"{PODS}?limit=500" in asked

    play(flow)
