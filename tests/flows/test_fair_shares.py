"""Foreign code that is slow harms the pods of its own profile: in skipped time, so exact."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, running
from tests.support.scripted_plugins import Script, installed
from tests.support.skipped_time import run_skipping, run_skipping_over_sockets

SLOW_PODS = 100
QUICK_PODS = 150
PLUGIN_SECONDS = 0.4
SHARE = 0.2
WINDOW_SECONDS = 10.0


@pytest.fixture
def script() -> Iterator[Script]:
    with installed() as script:
        yield script


def play(flow: Callable[[InProcess], Awaitable[None]], *, sockets: bool = False) -> None:
    """Run a flow beside a profile `quick`, on nodes with room for all."""

    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("quick"))
            world.apply(*(make_node(f"n{number}", cpu="100", pods="500") for number in range(3)))
            await flow(world)

    (run_skipping_over_sockets if sockets else run_skipping)(run)


async def delays_of_quick_pods(world: InProcess, every_seconds: float = 0.2) -> list[float]:
    """From the creation of each of some pods, one after the other, to its binding."""
    delays = []
    bound_at: dict[str, float] = {}
    bind = world.client.bind

    async def noted(namespace: str, name: str, uid: str, node_name: str) -> None:
        bound_at[name] = world.clock.monotonic()
        await bind(namespace, name, uid, node_name)

    world.client.bind = noted  # type: ignore[method-assign]
    for number in range(QUICK_PODS):
        name = f"quick-{number}"
        created_at = world.clock.monotonic()
        world.apply(make_pod(name, scheduler_name="quick"))
        await eventually(lambda name=name: world.node_of(name), seconds=600.0)  # type: ignore[misc]
        delays.append(bound_at[name] - created_at)
        await asyncio.sleep(max(0.0, created_at + every_seconds - world.clock.monotonic()))
    return delays


def sleeping(world: InProcess, seconds: float) -> Callable[..., Any]:
    """A Score that sleeps, as far as the clock can tell."""

    def score(_: Any, __: Any, nodes: Any) -> Any:
        world.clock.advance(seconds)
        return np.zeros(len(nodes), np.int64)

    return score


def test_a_sleep_in_score_costs_other_profiles_a_fifth_of_the_time(script: Script) -> None:
    async def flow(world: InProcess) -> None:
        script.answers["First.score"] = sleeping(world, PLUGIN_SECONDS)
        world.apply(make_profile("slow", plugins={"score": {"enabled": [{"name": "First"}]}}))
        world.apply(*(make_pod(f"s{each}", scheduler_name="slow") for each in range(SLOW_PODS)))
        began_at = world.clock.monotonic()
        delays = await delays_of_quick_pods(world)
        seconds = world.clock.monotonic() - began_at
        # The first one finds the whole share unspent, and the others queued before it.
        assert delays[0] <= SHARE * WINDOW_SECONDS + PLUGIN_SECONDS + 0.05
        assert np.percentile(delays[1:], 99) <= PLUGIN_SECONDS + 0.05
        slept = PLUGIN_SECONDS * sum("First.score" in call for call in script.calls)
        assert slept <= SHARE * (seconds + WINDOW_SECONDS) + PLUGIN_SECONDS
        assert slept >= SHARE * (seconds - WINDOW_SECONDS)  # it gets its share
        waiting = [each for each in range(SLOW_PODS) if not world.node_of(f"s{each}")]
        message = (
            'plugin "First" is too slow: with the other foreign plugins and extenders of slow it '
            "took more than 20 % of the last 10 s of scheduling"
        )
        assert {world.condition(f"s{each}") for each in waiting} == {("Slow", message)}
        script.answers["First.score"] = sleeping(world, 0.0)
        await asyncio.sleep(30)
        assert all(world.node_of(f"s{each}") for each in range(SLOW_PODS))

    play(flow)


def test_a_profile_that_serves_alone_is_not_set_back(script: Script) -> None:
    async def flow(world: InProcess) -> None:
        script.answers["First.score"] = sleeping(world, PLUGIN_SECONDS)
        world.apply(make_profile("slow", plugins={"score": {"enabled": [{"name": "First"}]}}))
        world.delete("SchedulerProfile", "quick")
        world.apply(*(make_pod(f"s{each}", scheduler_name="slow") for each in range(20)))
        await eventually(lambda: all(world.node_of(f"s{each}") for each in range(20)), 600.0)
        assert all(world.condition(f"s{each}") is None for each in range(20))

    play(flow)


@asynccontextmanager
async def dripping_extender() -> AsyncIterator[tuple[str, list[str]]]:
    """An extender that answers a blank every tenth of a second, and what it was asked."""
    asked: list[str] = []

    async def handle(request: web.Request) -> web.StreamResponse:
        asked.append(request.path)
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b" ")
            await asyncio.sleep(0.1)
        return response

    application = web.Application()
    application.router.add_post("/{verb}", handle)
    server = TestServer(application)
    await server.start_server()
    yield str(server.make_url("")).rstrip("/"), asked
    await server.close()


@pytest.mark.parametrize("ignorable", [False, True])
def test_a_dripping_extender_is_asked_once_in_ten_seconds(*, ignorable: bool) -> None:
    async def flow(world: InProcess) -> None:
        async with dripping_extender() as (url, asked):
            extender = {
                "urlPrefix": url,
                "filterVerb": "filter",
                "nodeCacheCapable": True,
                "ignorable": ignorable,
            }
            world.apply(make_profile("slow", extenders=[extender]))
            world.apply(*(make_pod(f"s{each}", scheduler_name="slow") for each in range(20)))
            began_at = world.clock.monotonic()
            delays = await delays_of_quick_pods(world)
            seconds = world.clock.monotonic() - began_at
            assert delays[0] <= 3 * 0.5 + 0.1
            assert np.percentile(delays[1:], 99) <= 0.5 + 0.1
            assert 3 <= len(asked) <= 3 + 1 + seconds / 10
            names = [f"s{each}" for each in range(20)]
            if ignorable:
                assert all(map(world.node_of, names))
                return
            conditions = {world.condition(name) for name in names}
            paused = f'extender "{url}" timed out 3 times in a row; it is called once every 10 s'
            assert all(each and each[0] == "SchedulerError" for each in conditions)
            assert any(each and each[1].startswith(paused) for each in conditions)

    play(flow, sockets=True)
