"""GpuPatternPlan in cycles: plans arrive, are followed, repaired, and made anew."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from typing_extensions import override

from stellwerk.backend.cache import Cache
from stellwerk.framework.types import CycleState
from stellwerk.framework.worker import NoWorker, PendingResult, Worker
from stellwerk.models.gpu import DEVICE_IDS
from stellwerk.models.pod import parse_pod
from stellwerk.plugins.gpu_pattern_plan import GpuPatternPlan
from stellwerk.snapshot.snapshot import NodeView
from tests.support.gpu_cluster import gpu_cache, gpu_node, gpu_pod, gpu_pod_info
from tests.support.plugin_runs import make_plugin, raw_scores

Result = TypeVar("Result")

TYPICAL = {
    "typicalPods": [
        {"cpuMillis": 1000, "gpuMilli": 700, "count": 5},
        {"cpuMillis": 1000, "gpuMilli": 300, "count": 5},
    ]
}


class Held(Worker, PendingResult[Any]):
    """Does work when a test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], Any]] = []
        self.value: Any = None

    @override
    def compute(self, work: Callable[[], Result]) -> PendingResult[Result]:
        self.asked.append(work)
        self.value = None
        return self

    def deliver(self) -> None:
        self.value = self.asked[-1]()

    @override
    def ready(self) -> bool:
        return self.value is not None

    @override
    def result(self) -> Any:
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


def scores(plugin: GpuPatternPlan, cache: Cache, **asked: Any) -> dict[str, int] | None:
    cache.update_snapshot()
    return raw_scores(plugin, gpu_pod_info("new", **asked), NodeView(cache.snapshot))


def planned(cache: Cache, worker: Worker, **args: Any) -> GpuPatternPlan:
    plugin = make_plugin(GpuPatternPlan, cache.snapshot, args or TYPICAL, worker=worker)
    cache.update_snapshot()
    return plugin


def bind(cache: Cache, name: str, node: str, **fields: Any) -> None:
    cache.set_pod(parse_pod(gpu_pod(name, on=node, **fields)))


def test_until_a_plan_is_there_all_nodes_score_the_same() -> None:
    cache, worker = gpu_cache([gpu_node("a", 2), gpu_node("b", 1)]), Held()
    plugin = planned(cache, worker)
    assert scores(plugin, cache, milli=700) == {"a": 1, "b": 1}
    assert len(worker.asked) == 1
    assert scores(plugin, cache, milli=700) == {"a": 1, "b": 1}
    assert len(worker.asked) == 1


def test_nodes_with_an_open_slot_come_first_the_fuller_the_sooner() -> None:
    cache, worker = gpu_cache([gpu_node("a", 1), gpu_node("b", 2)]), Held()
    bind(cache, "old", "b", milli=700, ids="0")
    plugin = planned(cache, worker)
    scores(plugin, cache, milli=300)
    worker.deliver()
    found = scores(plugin, cache, milli=300)
    assert found is not None
    assert found["b"] > 1
    # A kind that no plan reckons with takes nothing that is kept.
    assert scores(plugin, cache, devices=1) == {"a": 0, "b": 0}


def test_a_pod_gets_the_devices_of_its_slot() -> None:
    cache, worker = gpu_cache([gpu_node("a", 2)]), Held()
    bind(cache, "old", "a", milli=700, ids="1")
    plugin = planned(cache, worker)
    scores(plugin, cache, milli=300)
    worker.deliver()
    pod = gpu_pod_info("new", milli=300)
    plugin.reserve(CycleState(), pod, "a")
    assert pod.gpu_devices == (1,)


def test_a_pod_that_left_opens_its_slot_again() -> None:
    cache, worker = gpu_cache([gpu_node("a", 1)]), Held()
    plugin = planned(cache, worker)
    scores(plugin, cache, milli=700)
    worker.deliver()
    assert (scores(plugin, cache, milli=700) or {})["a"] > 1
    bind(cache, "first", "a", milli=700, ids="0")
    assert (scores(plugin, cache, milli=700) or {})["a"] <= 1
    cache.remove_pod(parse_pod(gpu_pod("first", on="a")).uid)
    assert (scores(plugin, cache, milli=700) or {})["a"] > 1


def test_what_came_while_a_plan_was_made_is_taken_into_account() -> None:
    cache, worker = gpu_cache([gpu_node("a", 1)]), Held()
    plugin = planned(cache, worker)
    scores(plugin, cache, milli=700)
    bind(cache, "meanwhile", "a", milli=500, ids="0")
    worker.deliver()
    assert (scores(plugin, cache, milli=700) or {})["a"] == 0
    assert (scores(plugin, cache, milli=300) or {})["a"] > 1, "repaired: what is left is for it"


def test_a_plan_that_failed_is_left_out_and_made_anew_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cache, worker = gpu_cache([gpu_node("a", 1), gpu_node("b", 1)]), Held()
    plugin = planned(cache, worker)
    scores(plugin, cache, milli=700)
    worker.value = MemoryError("too small")
    assert scores(plugin, cache, milli=700) == {"a": 1, "b": 1}
    assert "no plan for GPUs" in caplog.text
    assert len(worker.asked) == 1
    bind(cache, "taken", "a", devices=1, ids="0")
    scores(plugin, cache, milli=700)
    assert len(worker.asked) == 2


def test_without_typical_pods_those_of_the_cluster_count() -> None:
    cache, worker = gpu_cache([gpu_node("a", 2)]), Held()
    bind(cache, "old", "a", milli=600, ids="0")
    bind(cache, "other", "a", milli=400, ids="1")
    plugin = planned(cache, worker, solverSeconds=5)
    scores(plugin, cache, milli=600)
    worker.deliver()
    pod = gpu_pod_info("new", milli=600)
    assert (scores(plugin, cache, milli=600) or {})["a"] > 1
    plugin.reserve(CycleState(), pod, "a")
    assert pod.gpu_devices == (1,)


def test_kinds_that_come_up_are_planned_for_though_nothing_was_used_up() -> None:
    cache, worker = gpu_cache([gpu_node("a", 2)]), Held()
    plugin = planned(cache, worker, solverSeconds=5)
    plugin.pre_enqueue(gpu_pod_info("first", milli=600))
    scores(plugin, cache, milli=600)
    worker.deliver()
    assert (scores(plugin, cache, milli=600) or {})["a"] > 1
    assert (scores(plugin, cache, milli=900) or {})["a"] <= 1
    for number in range(40):
        plugin.pre_enqueue(gpu_pod_info(f"waits-{number}", milli=900))
    scores(plugin, cache, milli=900)
    assert len(worker.asked) == 2
    worker.deliver()
    assert (scores(plugin, cache, milli=900) or {})["a"] > 1


def test_pods_of_kinds_that_were_not_given_make_plans_go_by_those_seen() -> None:
    cache, worker = gpu_cache([gpu_node("a", 4)]), Held()
    plugin = planned(cache, worker)
    for number in range(40):
        plugin.pre_enqueue(gpu_pod_info(f"unknown-{number}", milli=900))
    scores(plugin, cache, milli=900)
    worker.deliver()
    assert (scores(plugin, cache, milli=900) or {})["a"] > 1


def test_a_few_pods_of_other_kinds_leave_the_plan_to_those_given() -> None:
    cache, worker = gpu_cache([gpu_node("a", 4)]), Held()
    plugin = planned(cache, worker)
    for number in range(20):
        plugin.pre_enqueue(gpu_pod_info(f"unknown-{number}", milli=900))
    scores(plugin, cache, milli=900)
    worker.deliver()
    assert (scores(plugin, cache, milli=900) or {})["a"] <= 1
    assert (scores(plugin, cache, milli=700) or {})["a"] > 1


def test_a_decision_that_is_only_looked_at_begins_no_plan() -> None:
    cache = gpu_cache([gpu_node("a", 2)])
    plugin = planned(cache, NoWorker())
    assert scores(plugin, cache, milli=700) == {"a": 1}
    assert DEVICE_IDS not in gpu_pod("new", milli=700)["metadata"].get("annotations", {})
