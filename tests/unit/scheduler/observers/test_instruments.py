"""Metrics of points, plugins and events carry kube-scheduler's labels."""

import gc
from typing import Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.interface import PermitResult
from stellwerk.framework.types import Code, Status
from stellwerk.metrics import Metrics
from stellwerk.scheduler.observers.instruments import PluginFamilies, StaleWatches
from stellwerk.series import Family, Histogram
from stellwerk.serving.exposition import exposition
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.scripted_plugins import installed
from tests.support.skipped_time import run_skipping


async def one_bound_pod(world: InProcess) -> None:
    world.apply(make_profile("default-scheduler"))
    world.apply(make_node("n1", cpu="4"), make_node("n2", cpu="4"))
    world.apply(make_pod("a", cpu="1"))
    await eventually(lambda: world.node_of("a"))
    await quiet()


def series(family: Family[Any]) -> dict[tuple[str, ...], float]:
    """Values of counters, numbers of observations of histograms."""
    return {
        labels: float(each.count if isinstance(each, Histogram) else each.value)
        for labels, each in family.items()
    }


def play(flow: Any) -> None:
    async def run(clock: VirtualClock) -> None:
        async with running(clock) as world:
            await flow(world)

    run_skipping(run)


def test_every_point_of_a_successful_attempt_is_timed_once() -> None:
    async def flow(world: InProcess) -> None:
        await one_bound_pod(world)
        counts = series(world.metrics.framework_extension_point_duration)
        expected = {
            "PreEnqueue": "Success",
            "PreFilter": "Success",
            "Filter": "Success",
            "PreScore": "Success",
            "Score": "Success",
            "Reserve": "Success",
            "Permit": "Success",
            "PreBindPreFlight": "Skip",
            "PreBind": "Success",
            "Bind": "Success",
            "PostBind": "Success",
        }
        assert counts == {
            (point, status, "default-scheduler"): 1 for point, status in expected.items()
        }
        assert world.metrics.scheduling_algorithm_duration.labels().count == 1

    play(flow)


def test_plugins_that_skip_are_not_counted_as_evaluated() -> None:
    async def flow(world: InProcess) -> None:
        await one_bound_pod(world)
        counts = series(world.metrics.plugin_evaluation)
        assert counts["NodeResourcesFit", "PreFilter", "default-scheduler"] == 1
        assert counts["NodeResourcesFit", "Filter", "default-scheduler"] == 1
        assert counts["NodeResourcesBalancedAllocation", "Score", "default-scheduler"] == 1
        assert ("InterPodAffinity", "Filter", "default-scheduler") not in counts
        assert ("NodeAffinity", "Score", "default-scheduler") not in counts

    play(flow)


def test_one_attempt_in_ten_times_each_plugin() -> None:
    async def flow(world: InProcess) -> None:
        await one_bound_pod(world)
        assert not series(world.metrics.plugin_execution_duration)
        world.apply(*(make_pod(f"b{index}", cpu="10m") for index in range(19)))
        await eventually(lambda: all(world.node_of(f"b{index}") for index in range(19)))
        await quiet()
        counts = series(world.metrics.plugin_execution_duration)
        assert counts["NodeResourcesFit", "PreFilter", "Success"] == 2
        assert counts["DefaultBinder", "Bind", "Success"] == 2
        assert counts["InterPodAffinity", "PreFilter", "Skip"] == 2

    play(flow)


def test_events_are_timed_by_what_they_are() -> None:
    async def flow(world: InProcess) -> None:
        await one_bound_pod(world)
        world.apply(make_node("n1", cpu="8"))
        world.delete("Pod", "a")
        counts = series(world.metrics.event_handling_duration)
        assert counts == {
            # Applied, and the echo of its status.
            ("SchedulerProfileUpdate",): 2,
            ("NodeAdd",): 2,
            ("NodeUpdate",): 1,
            ("UnschedulablePodAdd",): 1,
            ("AssignedPodAdd",): 1,
            ("AssignedPodDelete",): 1,
        }

    play(flow)


@pytest.mark.parametrize(
    ("seconds", "line"),
    [
        (0, 'scheduler_goroutines{operation="binding"} 1.0'),
        (0, 'scheduler_cache_size{type="assumed_pods"} 1.0'),
        (0, 'scheduler_cache_size{type="nodes"} 2.0'),
        (0, 'scheduler_inflight_events{event="PodPopped"} 1.0'),
        (0, 'scheduler_inflight_events{event="NodeAdd"} 1.0'),
        (20, 'scheduler_inflight_events{event="NodeAdd"} 0.0'),
        (20, 'scheduler_permit_wait_duration_seconds_count{result="Unschedulable"} 1.0'),
        (20, 'scheduler_goroutines{operation="binding"} 0.0'),
    ],
)
def test_gauges_show_the_present(seconds: int, line: str) -> None:
    async def flow(clock: VirtualClock) -> None:
        async with running(clock) as world:
            world.apply(make_profile("default-scheduler", plugins=plugins))
            world.apply(make_node("n1", cpu="4"), make_pod("a", cpu="1"))
            script.answers["First.permit"] = PermitResult(Status(Code.WAIT), 10.0)
            await eventually(world.operator.waiting_pods.all)
            world.apply(make_node("n2", cpu="4"))
            script.answers["First.permit"] = PermitResult(Status(Code.UNSCHEDULABLE, ("no",)))
            if seconds:
                world.operator.exposition()
                await eventually(lambda: clock.monotonic() > seconds, 30)
            assert line in world.operator.exposition().decode().splitlines()

    plugins = {"multiPoint": {"enabled": [{"name": "First"}]}}
    with installed("First") as script:
        run_skipping(flow)


def test_a_pod_scheduled_after_the_flush_of_the_forgotten_is_counted() -> None:
    async def flow(world: InProcess) -> None:
        world.apply(make_profile("default-scheduler"), make_node("n1", cpu="1"))
        world.apply(make_pod("a", cpu="2"))
        await quiet()
        uid = world.pod("a")["metadata"]["uid"]
        assert world.queue.place(uid) is Place.UNSCHEDULABLE
        # Capacity without an event: as if a hint had missed it.
        world.cache.set_node(parse_node(make_node("n1", cpu="4")))
        await eventually(lambda: world.node_of("a"), 400)
        assert world.metrics.pod_scheduled_after_flush.labels().value == 1

    play(flow)


def silent_for(**seconds: float) -> Metrics:
    metrics = Metrics()
    for kind, age in seconds.items():
        metrics.watch_silence.labels(kind).set(age)
    return metrics


def test_nothing_is_wrong_while_every_kind_is_heard_of() -> None:
    assert StaleWatches(silent_for(Pod=89, Node=25, Service=0))() is None


def test_the_kind_that_was_silent_longest_comes_first() -> None:
    wrong = StaleWatches(silent_for(Pod=91.4, Node=120.6, Service=89))()
    assert wrong == "nothing was received about Node, Pod for 121 s"


def test_of_many_kinds_a_few_are_named() -> None:
    wrong = StaleWatches(silent_for(A=7, B=6, C=6, D=6, E=6), limit_seconds=5)()
    assert wrong == "nothing was received about A, B, C and 2 more for 7 s"


def test_families_of_plugins_are_shared_and_take_no_name_of_another_one() -> None:
    metrics = Metrics()
    families = PluginFamilies(metrics)
    for _ in range(2):
        families.counter("example_calls_total", "Calls.", "peer").inc("a")
    families.histogram("example_seconds", "Time.", buckets=(1.0, 0.1)).observe(0.5)
    text = exposition(metrics).decode()
    assert 'example_calls_total{peer="a"} 2.0' in text
    assert 'example_seconds_bucket{le="0.1"} 0.0' in text
    assert 'example_seconds_bucket{le="1.0"} 1.0' in text
    for name, labels in (
        ("example_calls_total", ("other",)),
        ("scheduler_pods", ()),
        ("stellwerk_source_failures_total", ()),
        ("example_seconds_sum", ()),
        ("no name", ()),
        ("example_labels", ("le",)),
    ):
        with pytest.raises(ValueError, match=r"another one's|not a name"):
            families.gauge(name, "Refused.", *labels)


def test_of_a_family_of_plugins_so_many_series_are_kept() -> None:
    metrics = Metrics()
    counter = PluginFamilies(metrics).counter("example_total", "Too many.", "pod")
    for number in range(10_100):
        counter.inc(str(number))
    assert metrics.counter_of_plugins("example_total", "", ("pod",)).size == 10_000
    counter.inc("0")
    assert metrics.counter_of_plugins("example_total", "", ("pod",)).labels("0").value == 2


def test_a_gauge_of_a_plugin_is_shown_while_an_instance_that_set_it_lives() -> None:
    metrics = Metrics()
    families = PluginFamilies(metrics)
    old, new = (families.gauge("example_nodes", "Nodes.", "profile") for _ in range(2))
    old.set(1, "a")
    new.set(2, "a")
    family = metrics.gauge_of_plugins("example_nodes", "", ("profile",))
    del old
    gc.collect()
    assert family.labels("a").current() == 2
    new.remove("a")
    assert family.size == 0
    new.set(3, "b")
    del new
    gc.collect()
    assert family.size == 0
