"""What the audit finds twice is put right, whatever it was."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.models.pod import parse_pod
from stellwerk.scheduler.observers.audit_rounds import AuditRounds, Redeliver
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import Unavailable
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import run_skipping

PERIOD_SECONDS = 300.0


class Straight(Redeliver):
    """To the handlers, where nothing is watched that has a memory."""

    def __init__(self, world: InProcess) -> None:
        self._handlers = world.operator.handlers

    @override
    def put(self, kind: str, obj: JsonObject) -> None:
        self._tell(kind, "MODIFIED", obj)

    @override
    def gone(self, kind: str, uid: str, namespace: str | None, name: str) -> None:
        metadata = {"uid": uid, "name": name, "namespace": namespace}
        self._tell(kind, "DELETED", {"metadata": metadata})

    def _tell(self, kind: str, event_type: str, obj: JsonObject) -> None:
        tell = self._handlers.on_pod if kind == "Pod" else self._handlers.on_node
        tell(event_type, obj)


def play(flow: Any) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("default-scheduler"), make_node("n1", cpu="4"))
            world.apply(make_pod("bound", cpu="1"), make_pod("huge", cpu="99"))
            await eventually(lambda: world.node_of("bound"))
            await quiet()
            await flow(world)

    run_skipping(run)


def rounds(world: InProcess, period_seconds: float = PERIOD_SECONDS) -> AuditRounds:
    return AuditRounds(world.operator.audit, Straight(world), world.metrics, period_seconds)


def uid(world: InProcess, name: str) -> str:
    found: str = world.pod(name)["metadata"]["uid"]
    return found


def miss_a_node(world: InProcess) -> None:
    world.cache.remove_node("n1")


def keep_a_node(world: InProcess) -> None:
    world.operator.handlers.on_node("ADDED", make_node("n9"))


def miss_a_waiting_pod(world: InProcess) -> None:
    world.queue.delete(uid(world, "huge"))


def miss_a_bound_pod(world: InProcess) -> None:
    world.cache.remove_pod(uid(world, "bound"))


def keep_a_waiting_pod(world: InProcess) -> None:
    world.operator.handlers.on_pod("ADDED", make_pod("ghost", cpu="99"))


def keep_a_bound_pod(world: InProcess) -> None:
    world.operator.handlers.on_pod("ADDED", make_pod("ghost", cpu="1", node_name="n1"))


def count_a_pod_elsewhere(world: InProcess) -> None:
    world.cache.set_pod(parse_pod(make_pod("bound", cpu="1", node_name="n2")))


def strand_a_pod(world: InProcess) -> None:
    entry = world.queue.entries.get(uid(world, "huge"))
    assert entry is not None
    world.queue.activate([entry.pod], world.clock.monotonic())
    item = world.operator.active.get_nowait()  # it is lost here
    assert world.queue.pop(item)


@pytest.mark.parametrize(
    ("lose", "discrepancy"),
    [
        (miss_a_node, "missed_nodes"),
        (keep_a_node, "redundant_nodes"),
        (miss_a_waiting_pod, "missed_pods"),
        (miss_a_bound_pod, "missed_pods"),
        (keep_a_waiting_pod, "redundant_pods"),
        (keep_a_bound_pod, "redundant_pods"),
        (count_a_pod_elsewhere, "misplaced_pods"),
        (strand_a_pod, "stranded_pods"),
    ],
)
def test_what_is_lost_is_put_right(lose: Callable[[InProcess], None], discrepancy: str) -> None:
    async def flow(world: InProcess) -> None:
        lose(world)
        found = await rounds(world).round()
        assert found.by_label()[discrepancy]
        await quiet()
        assert str(await world.operator.audit.run()) == "no discrepancies"
        assert world.metrics.audit_repairs.labels(discrepancy).value == 1

    play(flow)


def test_the_rounds_go_on_after_one_that_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    async def flow(world: InProcess) -> None:
        miss_a_bound_pod(world)
        going = asyncio.create_task(rounds(world).run())
        with monkeypatch.context() as patch:
            patch.setattr(world.client, "get", _away)
            await asyncio.sleep(1.5 * PERIOD_SECONDS)
        assert world.cache.pod(uid(world, "bound")) is None
        await asyncio.sleep(PERIOD_SECONDS)
        assert world.cache.pod(uid(world, "bound")) is not None
        going.cancel()

    play(flow)


def test_by_default_there_is_an_audit_every_few_minutes() -> None:
    async def flow(world: InProcess) -> None:
        miss_a_bound_pod(world)
        default_seconds = world.operator.audit_rounds.period_seconds
        going = asyncio.create_task(rounds(world, default_seconds).run())
        await asyncio.sleep(600)
        assert world.cache.pod(uid(world, "bound")) is not None
        going.cancel()

    play(flow)


def test_without_a_period_nothing_is_read() -> None:
    async def flow(world: InProcess) -> None:
        miss_a_bound_pod(world)
        going = asyncio.create_task(rounds(world, 0.0).run())
        await asyncio.sleep(10 * PERIOD_SECONDS)
        assert world.cache.pod(uid(world, "bound")) is None
        going.cancel()

    play(flow)


async def _away(path: str) -> JsonObject:
    raise Unavailable(f"get {path}", 503, "ServiceUnavailable", "not now")
