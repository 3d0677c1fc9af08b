"""The dump as an answer of the port: in steps, within its limits, with one comparison for many."""

import asyncio
from typing import Any
from unittest.mock import patch

import pytest

from stellwerk.explain.steps import OutOfTime, finished
from stellwerk.scheduler.observers import debugger as module
from stellwerk.scheduler.observers.audit import Discrepancies
from stellwerk.scheduler.observers.debugger import Debugger
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Unavailable
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping


def play(flow: Any) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("default-scheduler"), make_node("n1", cpu="4"))
            world.apply(make_pod("bound", cpu="1"), make_pod("huge", cpu="99"))
            await eventually(lambda: world.node_of("bound"))
            await quiet()
            await flow(world, world.operator.debugger)

    run_skipping(run)


def test_the_answer_has_the_lines_of_the_log() -> None:
    async def flow(_: InProcess, debugger: Debugger) -> None:
        answer = finished(debugger.answer(await debugger.compare()))
        assert answer.comparison == "cache compared with the API: no discrepancies"
        assert (answer.compared, answer.differences, answer.stopped) == (True, [], None)
        assert [*answer.items] == [*debugger.dump()]
        assert "  default/bound: requests cpu=1000" in answer.items

    play(flow)


def test_differences_are_counted_and_the_first_ones_named() -> None:
    async def flow(_: InProcess, debugger: Debugger) -> None:
        names = frozenset(f"default/lost-{number:04}" for number in range(1000))
        comparison = await debugger.compare()
        found = Discrepancies(pods_only_in_api=names)
        answer = finished(debugger.answer(module.Comparison(comparison.at, found)))
        (difference,) = answer.differences
        assert answer.comparison == "cache compared with the API: 1000 missed pods"
        assert (difference.kind, difference.count) == ("missed pods", 1000)
        assert [*difference.names][:1] == ["default/lost-0000"]
        assert len(difference.names) == module.MAX_DIFFERENT_NAMES

    play(flow)


def test_requests_share_a_comparison_and_get_a_new_one_after_a_while() -> None:
    async def flow(world: InProcess, debugger: Debugger) -> None:
        calls, run = 0, type(world.operator.audit).run

        async def counted(audit: Any) -> Discrepancies:
            nonlocal calls
            calls += 1
            return await run(audit)

        with patch.object(type(world.operator.audit), "run", counted):
            await asyncio.gather(*(debugger.compare() for _ in range(20)))
            await debugger.compare()
            assert calls == 1
            await asyncio.sleep(module.MIN_SECONDS_BETWEEN_COMPARISONS)
            await debugger.compare()
            assert calls == 2

    play(flow)


def test_a_client_that_leaves_takes_the_comparison_from_no_other_one() -> None:
    async def flow(world: InProcess, debugger: Debugger) -> None:
        go_on = asyncio.Event()

        async def held(_: Any) -> Discrepancies:
            await go_on.wait()
            return Discrepancies()

        with patch.object(type(world.operator.audit), "run", held):
            leaving = asyncio.create_task(debugger.compare())
            staying = asyncio.create_task(debugger.compare())
            await quiet()
            leaving.cancel()
            await asyncio.wait({leaving})
            go_on.set()
            assert (await staying).found == Discrepancies()

    play(flow)


@pytest.mark.parametrize("is_silent", [False, True])
def test_an_api_server_that_is_away_leaves_the_lines(*, is_silent: bool) -> None:
    async def flow(world: InProcess, debugger: Debugger) -> None:
        async def away(*_: object, **__: object) -> None:
            if is_silent:
                await asyncio.Event().wait()
            raise Unavailable("list /api/v1/nodes", 503, "ServiceUnavailable", "not now")

        with patch.object(world.client, "get", away):
            answer = finished(debugger.answer(await debugger.compare()))
        assert not answer.compared
        why = "within 30 s" if is_silent else "cannot list /api/v1/nodes: 503"
        assert why in answer.comparison
        assert answer.items

    play(flow)


def test_a_dump_ends_at_its_limit_and_where_its_time_is_up() -> None:
    async def flow(_: InProcess, debugger: Debugger) -> None:
        comparison = await debugger.compare()
        with patch.object(module, "MAX_DUMP_BYTES", 200):
            short = finished(debugger.answer(comparison))
        assert short.stopped == "the dump is cut off here, at 0 MiB"
        assert sum(map(len, short.items)) < 200
        with patch.object(module, "_LINES_PER_STEP", 1):
            steps = debugger.answer(comparison)
            next(steps)
            with pytest.raises(StopIteration) as ended:
                steps.throw(OutOfTime("the answer ends here"))
        assert (len(ended.value.value.items), ended.value.value.stopped) == (
            1,
            "the answer ends here",
        )

    play(flow)


def test_the_cache_may_change_between_two_lines() -> None:
    async def flow(world: InProcess, debugger: Debugger) -> None:
        lines = debugger.dump()
        next(lines)
        world.apply(make_node("n2", cpu="4"), make_pod("new", cpu="1"))
        world.operator.handlers.on_node("DELETED", make_node("n1", cpu="4"))
        await quiet()
        assert any("default/huge" in line for line in lines)

    play(flow)
