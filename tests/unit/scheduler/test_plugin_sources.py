"""Sources, tasks and kinds of plugins: read beside the cycle, each for itself."""

import asyncio
import gc
from typing import Any

import pytest
from typing_extensions import override

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.metrics import Metrics
from stellwerk.profiles.spec.plugin_description import PluginKind
from stellwerk.scheduler.plugin_sources import PluginSources
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import SecretRefusedError
from tests.support.skipped_time import run_skipping


class Source:
    """Answers with how often it was asked, or fails."""

    kind, period_seconds = "Numbers", 30.0

    def __init__(self, name: str = "source") -> None:
        self.name, self.asked, self.fails, self.hangs = name, 0, False, False

    async def read(self, *_: Any) -> object:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(10_000)
        if self.fails:
            raise OSError("away")
        return self.asked

    def checked(self, answer: object) -> dict[str, Any]:
        return {"value": answer}


class Inputs:
    """PluginSources over an empty store."""

    def __init__(self, clock: VirtualClock, *, leads: bool = True) -> None:
        self.objects, self.metrics = IndexedObjectStore(), Metrics()
        client: Any = None
        self.sources = PluginSources(
            client, client, self.objects, clock, self.metrics, lambda: leads
        )

    def value(self, name: str = "source") -> object:
        shown = self.objects.get("Numbers", "", name)
        return None if shown is None else shown["value"]


def test_a_source_is_read_every_period_and_keeps_its_last_answer() -> None:
    async def flow(clock: VirtualClock) -> None:
        world, source = Inputs(clock), Source()
        world.sources.follow(source)
        await asyncio.sleep(1)
        assert world.value() == 1
        await asyncio.sleep(30)
        assert world.value() == 2
        source.fails = True
        await asyncio.sleep(300)
        assert world.value() == 2
        source.fails = False
        await asyncio.sleep(30)
        assert world.value() == source.asked
        await world.sources.close()

    run_skipping(flow)


def test_one_that_hangs_is_cut_off_and_holds_no_other_up() -> None:
    async def flow(clock: VirtualClock) -> None:
        world, hanging, other = Inputs(clock), Source("hanging"), Source("other")
        hanging.hangs = True
        world.sources.follow(hanging)
        world.sources.follow(other)
        await asyncio.sleep(100)
        assert (hanging.asked, other.asked) == (2, 4)
        assert world.value("hanging") is None
        await world.sources.close()

    run_skipping(flow)


def test_two_of_one_name_are_one_and_live_as_long_as_the_last() -> None:
    async def flow(clock: VirtualClock) -> None:
        world, first, second = Inputs(clock), Source(), Source()
        world.sources.follow(first)
        world.sources.follow(second)
        await asyncio.sleep(100)
        assert first.asked + second.asked == 4
        del first
        gc.collect()
        await asyncio.sleep(100)
        assert world.value() is not None
        del second
        gc.collect()
        await asyncio.sleep(100)
        assert world.value() is None
        await world.sources.close()

    run_skipping(flow)


@pytest.mark.parametrize(("leads", "runs"), [(True, 4), (False, 0)])
def test_a_task_runs_where_the_replica_leads(leads: bool, runs: int) -> None:  # noqa: FBT001
    class Task:
        name, period_seconds, runs = "task", 30.0, 0

        async def run(self, _: Any) -> None:
            self.runs += 1
            if self.runs == 2:
                raise OSError("away")

    async def flow(clock: VirtualClock) -> None:
        world, task = Inputs(clock, leads=leads), Task()
        world.sources.repeat(task)
        await asyncio.sleep(100)
        assert task.runs == runs
        await world.sources.close()

    run_skipping(flow)


def test_a_secret_that_refuses_the_address_is_known_by_profile_until_it_allows_it() -> None:
    class WithSecret(Source):
        profile_name, refusal = "by-load", "the Secret has to name http://a"

        @override
        async def read(self, *_: Any) -> object:
            if self.refusal:
                raise SecretRefusedError(self.refusal)
            return 1

    async def flow(clock: VirtualClock) -> None:
        world, source, other = Inputs(clock), WithSecret(), Source("other")
        world.sources.follow(source)
        world.sources.follow(other)
        await asyncio.sleep(1)
        assert world.sources.refused_secrets("by-load") == [WithSecret.refusal]
        assert world.sources.refused_secrets("another") == []
        source.refusal = ""
        await asyncio.sleep(30)
        assert world.sources.refused_secrets("by-load") == []
        await world.sources.close()

    run_skipping(flow)


def test_without_an_event_loop_nothing_is_read() -> None:
    world, source = Inputs(VirtualClock()), Source()
    world.sources.follow(source)
    assert source.asked == 0


def test_each_kind_is_asked_for_once() -> None:
    world = Inputs(VirtualClock())
    kinds: list[PluginKind] = []
    world.sources.on_kind = kinds.append
    quota = PluginKind("ElasticQuota", "scheduling.x-k8s.io", "v1alpha1", "elasticquotas")
    world.sources.watch(quota)
    world.sources.watch(quota)
    assert kinds == [quota]
    assert not world.sources.is_synced("ElasticQuota")
    world.sources.on_synced("ElasticQuota")
    assert world.sources.is_synced("ElasticQuota")
