"""The audit finds whatever is lost, and SIGUSR2 writes what there is."""

import asyncio
import logging
from typing import Any

import pytest

from stellwerk.backend.queued_pod import ActiveItem, Place
from stellwerk.models.pod import parse_pod
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
            world.apply(make_pod("others", scheduler_name="other"))
            await eventually(lambda: world.node_of("bound"))
            await quiet()
            await flow(world)

    run_skipping(run)


def test_nothing_is_lost_when_all_is_well() -> None:
    async def flow(world: InProcess) -> None:
        assert not await world.operator.audit.run()

    play(flow)


def test_what_the_watch_has_yet_to_show_is_no_discrepancy() -> None:
    async def flow(world: InProcess) -> None:
        path = "/api/v1/nodes/late"
        node = world.client.objects[path] = make_node("late")
        looking = asyncio.create_task(world.operator.audit.run())
        await quiet()
        world.operator.handlers.on_node("ADDED", node)
        assert not await looking

    play(flow)


def _uid(world: InProcess, name: str) -> str:
    uid: str = world.pod(name)["metadata"]["uid"]
    return uid


def miss_a_node(world: InProcess) -> None:
    world.cache.remove_node("n1")


def keep_a_node(world: InProcess) -> None:
    del world.client.objects["/api/v1/nodes/n1"]


def lose_a_waiting_pod(world: InProcess) -> None:
    world.queue.delete(_uid(world, "huge"))


def lose_a_pod_without_a_profile(world: InProcess) -> None:
    world.operator.without_profile.pods.pop(_uid(world, "others"))


def lose_a_bound_pod(world: InProcess) -> None:
    world.cache.remove_pod(_uid(world, "bound"))


def keep_a_pod(world: InProcess) -> None:
    del world.client.objects["/api/v1/namespaces/default/pods/huge"]


def count_a_pod_elsewhere(world: InProcess) -> None:
    world.cache.set_pod(parse_pod(make_pod("bound", cpu="1", node_name="n2")))


def count_an_unbound_pod(world: InProcess) -> None:
    world.cache.set_pod(parse_pod(make_pod("huge", cpu="99", node_name="n1")))


def strand_a_pod(world: InProcess) -> None:
    entry = world.queue.entries.get(_uid(world, "huge"))
    assert entry is not None
    world.queue.activate([entry.pod], world.clock.monotonic())
    assert world.queue.pop(ActiveItem(entry.sort_key, entry.sequence, entry))
    assert entry.place is Place.IN_FLIGHT


@pytest.mark.parametrize(
    ("lose", "found"),
    [
        (miss_a_node, Discrepancies(nodes_only_in_api=frozenset({"n1"}))),
        (keep_a_node, Discrepancies(nodes_only_in_cache=frozenset({"n1"}))),
        (lose_a_waiting_pod, Discrepancies(pods_only_in_api=frozenset({"default/huge"}))),
        (
            lose_a_pod_without_a_profile,
            Discrepancies(pods_only_in_api=frozenset({"default/others"})),
        ),
        (lose_a_bound_pod, Discrepancies(pods_only_in_api=frozenset({"default/bound"}))),
        (keep_a_pod, Discrepancies(pods_only_in_cache=frozenset({"default/huge"}))),
        (count_a_pod_elsewhere, Discrepancies(misplaced_pods=frozenset({"default/bound"}))),
        (count_an_unbound_pod, Discrepancies(misplaced_pods=frozenset({"default/huge"}))),
        (strand_a_pod, Discrepancies(stranded_pods=frozenset({"default/huge"}))),
    ],
)
def test_what_is_lost_is_named(lose: Any, found: Discrepancies) -> None:
    async def flow(world: InProcess) -> None:
        lose(world)
        assert await world.operator.audit.run(settle_seconds=0) == found

    play(flow)


def test_the_signal_writes_comparison_cache_and_queues(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)

    async def flow(world: InProcess) -> None:
        debugger = Debugger(world.operator.world, world.operator.audit)
        caplog.clear()
        debugger.on_signal()
        debugger.on_signal()
        await quiet()
        lines = caplog.messages
        assert lines[0] == "cache compared with the API: no discrepancies"
        assert "activeQ:0; backoffQ:0; unschedulablePods:1" in lines
        assert any(line.startswith("node n1: allocatable cpu=4000,") for line in lines)
        assert "  default/bound: requests cpu=1000" in lines
        assert "  default/huge: UNSCHEDULABLE, attempts 1, rejected by NodeResourcesFit" in lines
        assert lines.count("activeQ:0; backoffQ:0; unschedulablePods:1") == 1

    play(flow)


def test_without_the_api_the_rest_is_written_all_the_same(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)

    async def away(*_: object, **__: object) -> None:
        raise Unavailable("list /api/v1/nodes", 503, "ServiceUnavailable", "not now")

    async def flow(world: InProcess) -> None:
        monkeypatch.setattr(world.client, "get", away)
        await Debugger(world.operator.world, world.operator.audit).write()
        assert any("cannot compare the cache with the API" in line for line in caplog.messages)
        assert "activeQ:0; backoffQ:0; unschedulablePods:1" in caplog.messages

    play(flow)


def test_trace_tells_every_score_and_total_and_the_decision_how_many_nodes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(5, "stellwerk.scheduler")

    async def flow(world: InProcess) -> None:
        world.apply(make_node("n2", cpu="8"))
        world.apply(make_pod("traced", cpu="1"))
        await eventually(lambda: world.node_of("traced"))
        await quiet()
        lines = [line for line in caplog.messages if "default/traced" in line]
        fit = [line for line in lines if "n2: NodeResourcesFit" in line]
        assert "requested nothing, allocatable cpu=8000," in fit[0]
        assert [line for line in lines if "Host n2 => Score " in line]
        assert "default/traced is bound to n2 (2 nodes evaluated, 2 feasible)" in lines

    play(flow)
