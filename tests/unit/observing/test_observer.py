"""An operator that observes another scheduler: it decides, compares, and writes nothing."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from stellwerk.answers.observed import ObservedProfile
from stellwerk.backend.queued_pod import Place
from stellwerk.framework.types import PluginFailure
from stellwerk.observing.trailing import AROUND, FAILED, LATE, LEFT, TOO_MANY, VICTIMS
from stellwerk_kube.clock import VirtualClock, rfc3339_seconds
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.in_process import InProcess, eventually, make_profile, quiet, running
from tests.support.skipped_time import clock_of_loop

pytestmark = pytest.mark.skips_time

OTHERS = "default-scheduler"
_PACKING = {
    "name": "NodeResourcesFit",
    "args": {
        "scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}
    },
}


def _clock() -> VirtualClock:
    clock = clock_of_loop()
    assert isinstance(clock, VirtualClock)
    return clock


@asynccontextmanager
async def observing(*nodes: JsonObject, **spec: Any) -> AsyncIterator[InProcess]:
    """An operator with a profile that observes default-scheduler, and these nodes."""
    async with running(_clock()) as world:
        world.apply(make_profile("observed", OTHERS, mode="Observe", **spec), *nodes)
        await quiet()
        yield world


def report(world: InProcess) -> ObservedProfile:
    """What was found so far."""
    (found,) = world.operator.observer.described(100)
    return found


def bind(world: InProcess, name: str, node_name: str) -> None:
    """Bind a pod, as the other scheduler does."""
    pod = world.pod(name)
    world.apply({**pod, "spec": {**pod["spec"], "nodeName": node_name}})


async def decided(world: InProcess, name: str) -> None:
    """Wait until a pod has been decided, and waits for the other scheduler or a change."""
    places = {Place.OBSERVED, Place.UNSCHEDULABLE}
    uid = world.pod(name)["metadata"]["uid"]
    await eventually(lambda: world.queue.place(uid) in places)


async def compared(world: InProcess, bindings: int) -> ObservedProfile:
    """Wait until this many bindings were compared."""
    await quiet()
    world.clock.advance(1.1)
    await eventually(lambda: report(world).compared == bindings)
    return report(world)


def written(world: InProcess) -> list[tuple[str, str]]:
    """Requests that write, but those for statuses of profiles."""
    return [each for each in world.client.requests if "schedulerprofiles" not in each[1]]


async def test_a_pod_of_another_scheduler_is_decided_and_waits() -> None:
    async with observing(make_node("small", cpu="4"), make_node("large", cpu="16")) as world:
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        assert world.queue.place("uid-default-web") is Place.OBSERVED
        assert (report(world).decisions, report(world).waiting) == (1, 1)
        assert world.cache.pod("uid-default-web") is None
        assert (written(world), world.notes.events) == ([], [])


async def test_a_rejected_pod_is_decided_again_by_a_change_that_may_help() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_pod("web", cpu="8"))
        await decided(world, "web")
        assert world.queue.place("uid-default-web") is Place.UNSCHEDULABLE
        world.clock.advance(3600)
        await quiet()
        assert report(world).decisions == 1
        world.apply(make_node("large", cpu="16"))
        await eventually(lambda: world.queue.place("uid-default-web") is Place.OBSERVED)
        assert report(world).decisions == 2
        assert (written(world), world.notes.events) == ([], [])


async def test_a_pod_that_changes_is_decided_again() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        pod = make_pod("web", cpu="1")
        world.apply(pod)
        await decided(world, "web")
        world.apply({**pod, "metadata": {**pod["metadata"], "labels": {"a": "b"}}})
        await eventually(lambda: report(world).decisions == 2)


async def test_a_binding_to_one_of_our_best_nodes_is_equal() -> None:
    async with observing(make_node("small", cpu="4"), make_node("large", cpu="16")) as world:
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        bind(world, "web", "large")
        found = await compared(world, 1)
        assert (found.counts.equal, found.shares.equal, found.waiting) == (1, 1.0, 0)
        (comparison,) = found.comparisons
        assert (comparison.node, comparison.best_nodes) == ("large", ["large"])
        assert comparison.total == comparison.best_total
        assert world.cache.pod("uid-default-web") is not None


async def test_ties_are_equal() -> None:
    nodes = [make_node(f"n{number}", cpu="4") for number in range(3)]
    async with observing(*nodes) as world:
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "n2")
        found = await compared(world, 1)
        assert (found.counts.equal, found.comparisons[0].best) == (1, 3)


async def test_a_binding_that_differs_names_plugin_and_points() -> None:
    async with observing(make_node("small", cpu="4"), make_node("large", cpu="16")) as world:
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "small")
        found = await compared(world, 1)
        (comparison,) = found.comparisons
        assert comparison.result == "differs"
        assert (comparison.plugin, comparison.points) == ("NodeResourcesFit", 9)
        assert comparison.best_total is not None
        assert comparison.total is not None
        assert comparison.best_total - comparison.total == sum(
            each.points for each in comparison.plugins
        )
        (reason,) = found.reasons
        assert (reason.plugin, reason.count, reason.points) == ("NodeResourcesFit", 1, 9)


async def test_a_binding_to_a_node_that_our_filters_reject_differs() -> None:
    taint = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
    async with observing(make_node("open", cpu="4"), make_node("shut", taints=[taint])) as world:
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "shut")
        found = await compared(world, 1)
        (comparison,) = found.comparisons
        assert (comparison.result, comparison.plugin) == ("differs", "TaintToleration")
        assert comparison.reason == "node(s) had untolerated taint(s)"
        assert (comparison.total, found.reasons[0].points) == (None, 0)


async def test_a_binding_where_we_find_no_node() -> None:
    async with observing(make_node("small", cpu="1")) as world:
        world.apply(make_pod("web", cpu="8"))
        bind(world, "web", "small")
        found = await compared(world, 1)
        (comparison,) = found.comparisons
        assert (comparison.result, comparison.plugin) == ("foundNone", "NodeResourcesFit")
        assert comparison.reason == "0/1 nodes are available: 1 Insufficient cpu."


async def test_a_scheduler_that_scores_some_nodes_may_miss_the_best() -> None:
    nodes = [make_node(f"n{number}", cpu="4") for number in range(150)]
    async with observing(*nodes, make_node("large", cpu="16")) as world:
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "n7")
        found = await compared(world, 1)
        assert (found.counts.sampled, found.percentage_of_nodes_to_score) == (1, 0)


async def test_a_scheduler_that_scores_all_nodes_does_not() -> None:
    nodes = [make_node(f"n{number}", cpu="4") for number in range(150)]
    spec = {"percentageOfNodesToScore": 100}
    async with observing(*nodes, make_node("large", cpu="16"), **spec) as world:
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "n7")
        found = await compared(world, 1)
        assert (found.counts.differs, found.percentage_of_nodes_to_score) == (1, 100)


async def test_bindings_are_compared_on_the_state_before_them_however_late() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        for number in range(4):
            world.apply(make_pod(f"p{number}", cpu="1"))
        await decided(world, "p3")
        # Each goes to the node that is emptier at that moment; more comes before any is compared.
        for number, node_name in enumerate("abba"):
            bind(world, f"p{number}", node_name)
            world.clock.advance(5)
        world.apply(make_node("c", cpu="64"))
        found = await compared(world, 4)
        assert found.counts.equal == 4


async def test_a_binding_in_another_order_within_a_second_is_not_comparable() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        for name in ("first", "second"):
            world.apply(make_pod(name, cpu="1"))
        await decided(world, "second")
        # The other scheduler decided on neither before it knew of the other.
        bind(world, "first", "a")
        bind(world, "second", "a")
        found = await compared(world, 2)
        assert [each.result for each in found.comparisons] == ["notComparable", "equal"]
        assert found.incomparable[0].reason == AROUND
        assert found.comparisons[0].best_nodes == ["b"]


async def test_neighbours_in_another_order_are_not_comparable_among_many_bindings() -> None:
    async with observing(make_node("a", cpu="40"), make_node("b", cpu="40")) as world:
        # 13 pods go to b until both nodes are equal, and only the order of the last two is unknown.
        world.apply(*(make_pod(f"a-{number}", cpu="1", node_name="a") for number in range(13)))
        names = [*(f"b-{number}" for number in range(13)), "first", "second"]
        for name in names:
            world.apply(make_pod(name, cpu="1"))
        await decided(world, "second")
        for name in names[:13]:
            bind(world, name, "b")
        bind(world, "first", "a")
        bind(world, "second", "a")
        found = await compared(world, 15)
        assert (found.counts.equal, found.counts.differs) == (14, 0)
        assert found.incomparable[0].reason == AROUND


@pytest.mark.parametrize(
    ("seconds", "counts"),
    [
        pytest.param(0.5, (0, 1), id="the other scheduler may not have seen it leave"),
        pytest.param(3.0, (1, 0), id="it left long before"),
    ],
)
async def test_a_binding_after_a_pod_has_left(seconds: float, counts: tuple[int, int]) -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        world.apply(
            make_pod("old", cpu="2", node_name="a"), make_pod("other", cpu="1", node_name="b")
        )
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        world.delete("Pod", "old")
        world.clock.advance(seconds)
        bind(world, "web", "b")
        found = await compared(world, 1)
        assert (found.counts.differs, found.counts.not_comparable) == counts
        assert [each.reason for each in found.incomparable] == [LEFT] * counts[1]


async def test_a_binding_long_after_another_one_differs() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        for name in ("first", "second"):
            world.apply(make_pod(name, cpu="1"))
        await decided(world, "second")
        bind(world, "first", "a")
        world.clock.advance(3)
        bind(world, "second", "a")
        found = await compared(world, 2)
        assert found.counts.differs == 1


async def test_one_pod_in_flight_differs_whatever_was_bound_before_and_after() -> None:
    async with observing(make_node("a", cpu="8"), make_node("b", cpu="8")) as world:
        # A scheduler that packs: without its last bindings, its node would be among our best.
        for number in range(4):
            world.apply(make_pod(f"pod-{number}", cpu="1"))
            await decided(world, f"pod-{number}")
            world.clock.advance(0.01)
            bind(world, f"pod-{number}", "a")
            world.clock.advance(0.01)
        found = await compared(world, 4)
        assert (found.counts.equal, found.counts.differs) == (1, 3)


async def test_a_binding_in_a_backlog_is_not_comparable() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        names = ["first", "second", "third"]
        world.apply(make_pod("there", cpu="1", node_name="a"))
        world.apply(*(make_pod(name, cpu="500m") for name in names))
        await decided(world, "third")
        world.clock.advance(1.5)
        bind(world, "first", "b")
        bind(world, "second", "a")
        world.clock.advance(1.5)
        bind(world, "third", "a")
        found = await compared(world, 3)
        # The third one has no neighbour.
        results = [each.result for each in found.comparisons]
        assert results == ["differs", "notComparable", "equal"]
        assert found.incomparable[0].reason == LATE


async def test_a_binding_whose_pod_was_seen_late_is_not_comparable_among_others() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        created = rfc3339_seconds(world.clock.now() - timedelta(seconds=3))
        world.apply(make_pod("there", cpu="1", node_name="a"))
        for name in ("first", "second"):
            pod = make_pod(name, cpu="500m")
            world.apply({**pod, "metadata": {**pod["metadata"], "creationTimestamp": created}})
        await decided(world, "second")
        bind(world, "first", "b")
        bind(world, "second", "a")
        found = await compared(world, 2)
        assert [each.result for each in found.comparisons] == ["notComparable", "equal"]
        assert found.incomparable[0].reason == LATE


async def test_a_pod_whose_victims_were_evicted_is_not_comparable() -> None:
    async with observing(make_node("a", cpu="4"), make_node("b", cpu="4")) as world:
        victim = make_pod("victim", cpu="4", node_name="a")
        world.apply(victim, make_pod("other", cpu="1", node_name="b"))
        world.apply(make_pod("web", cpu="4", nominated_node_name="a"))
        await decided(world, "web")
        target = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        world.apply({**victim, "status": {"phase": "Running", "conditions": [target]}})
        world.delete("Pod", "victim")
        bind(world, "web", "a")
        found = await compared(world, 1)
        assert found.counts.not_comparable == 1
        assert found.incomparable[0].reason == VICTIMS


async def test_the_time_to_a_binding_is_measured() -> None:
    async with observing(make_node("a", cpu="4")) as world:
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        world.clock.advance(2)
        bind(world, "web", "a")
        found = await compared(world, 1)
        assert found.latency is not None
        assert found.latency.count == 1
        assert found.latency.p50_seconds == pytest.approx(2, abs=0.1)


async def test_a_pod_that_came_before_observing_began_has_no_time() -> None:
    async with running(_clock()) as world:
        world.apply(make_pod("web", cpu="1"), make_node("a", cpu="4"))
        world.apply(make_profile("observed", OTHERS, mode="Observe"))
        await decided(world, "web")
        bind(world, "web", "a")
        found = await compared(world, 1)
        assert (found.counts.equal, found.latency) == (1, None)


async def test_no_metric_of_kube_scheduler_counts_an_observed_pod() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_profile("served"))
        await quiet()
        before = of_kube_scheduler(world)
        gated = make_pod("gated", schedulingGates=[{"name": "wait"}])
        world.apply(make_pod("web", cpu="1"), make_pod("large", cpu="8"), gated)
        await decided(world, "large")
        assert of_kube_scheduler(world) == before
        # A hint is asked, and the pod is tried again and bound.
        world.apply(make_node("large", cpu="16"))
        world.clock.advance(3)
        await eventually(lambda: report(world).decisions == 3)
        bind(world, "web", "small")
        bind(world, "large", "large")
        await compared(world, 2)
        after = of_kube_scheduler(world)
        # Of nodes, profiles and bound pods, the cache and the events count every one.
        counts_all = re.compile(
            r'scheduler_cache_size|event="(Node|SchedulerProfile|AssignedPodAdd)'
        )
        assert [line for line in after ^ before if not counts_all.search(line)] == []
        shown = world.operator.exposition().decode()
        assert 'stellwerk_observed_bindings_total{profile="default-scheduler"' in shown
        assert "stellwerk_observed_pending_pods 1.0" in shown
        world.delete("Pod", "gated")
        assert "UnschedulablePodDelete" not in world.operator.exposition().decode()


async def test_a_shadow_decides_beside_an_observed_profile() -> None:
    async with observing(make_node("small", cpu="4"), make_node("large", cpu="16")) as world:
        shadow = make_profile(
            "packing", shadowOf="observed", sampleOneIn=1, pluginConfig=[_PACKING]
        )
        del shadow["spec"]["schedulerName"]
        world.apply(shadow)
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "large")
        found = await compared(world, 1)
        assert found.counts.equal == 1
        diff = world.operator.loader.shadows.described("packing")
        assert diff is not None
        assert (diff.compared, diff.differing) == (1, 1)
        assert (diff.differences[0].node, diff.differences[0].shadow_node) == ("large", "small")


async def test_an_unbound_observed_pod_holds_no_room() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_profile("served"))
        world.apply(make_pod("observed", cpu="4", nominated_node_name="small", priority=100))
        await decided(world, "observed")
        world.apply(make_pod("mine", cpu="4", scheduler_name="served"))
        await eventually(lambda: world.node_of("mine") == "small")
        assert world.node_of("observed") is None


async def test_a_profile_that_begins_to_schedule_takes_its_pods_over() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_pod("web", cpu="1"), make_pod("large", cpu="8"))
        await decided(world, "large")
        assert written(world) == []
        world.apply(make_profile("observed", OTHERS, mode="Schedule", allowBeside=True))
        await eventually(lambda: world.node_of("web") == "small")
        await eventually(lambda: world.condition("large") is not None)
        assert list(world.operator.observer.described(1)) == []
        assert world.operator.handlers.trail is None


async def test_a_profile_that_begins_to_observe_lets_its_pods_go() -> None:
    async with running(_clock()) as world:
        world.apply(make_profile("observed", OTHERS, allowBeside=True), make_node("a", cpu="4"))
        world.apply(make_pod("large", cpu="8"))
        await eventually(lambda: world.condition("large") is not None)
        world.apply(make_profile("observed", OTHERS, mode="Observe", allowBeside=True))
        await decided(world, "large")
        before = written(world)
        world.apply(make_node("b", cpu="16"))
        world.clock.advance(3)
        await eventually(lambda: world.queue.place("uid-default-large") is Place.OBSERVED)
        await quiet()
        assert (world.node_of("large"), written(world)) == (None, before)
        assert world.queue.pending() == dict.fromkeys(world.queue.pending(), 0)


async def test_a_profile_that_goes_leaves_no_condition_on_observed_pods() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        world.delete("SchedulerProfile", "observed", "")
        await eventually(lambda: "uid-default-web" not in world.queue.entries)
        world.clock.advance(60)
        await quiet()
        assert (written(world), world.notes.events) == ([], [])


async def test_a_new_version_of_the_profile_begins_with_new_counts() -> None:
    async with observing(make_node("small", cpu="4"), make_node("large", cpu="16")) as world:
        world.apply(make_pod("one", cpu="1"), make_pod("two", cpu="1"))
        bind(world, "one", "small")
        await compared(world, 1)
        world.apply(make_profile("observed", OTHERS, mode="Observe", pluginConfig=[_PACKING]))
        await eventually(lambda: report(world).compared == 0)
        bind(world, "two", "small")
        found = await compared(world, 1)
        assert found.counts.equal == 1


async def test_the_audit_knows_where_observed_pods_are() -> None:
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_pod("web", cpu="1"), make_pod("large", cpu="8"))
        await decided(world, "large")
        assert not await world.operator.audit.run(0.0)


async def test_late_decisions_are_skipped_and_bindings_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stellwerk.observing.observer.MAX_WAIT_SECONDS", -1.0)
    async with observing(make_node("small", cpu="4")) as world:
        world.apply(make_pod("web", cpu="1"))
        await decided(world, "web")
        assert (report(world).decisions, report(world).skipped_decisions) == (0, 1)
        bind(world, "web", "small")
        assert (await compared(world, 1)).counts.equal == 1


async def test_what_comes_faster_than_it_can_be_compared_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stellwerk.observing.trailing.MAX_CHANGES", 10)
    async with observing(make_node("a", cpu="64"), make_node("b", cpu="64")) as world:
        for number in range(30):
            world.apply(make_pod(f"p{number}", cpu="1"))
        for number in range(30):
            bind(world, f"p{number}", "a")
            assert world.operator.handlers.trail is not None
            assert len(world.operator.handlers.trail.changes) <= 10
        found = await compared(world, 30)
        too_many = {each.reason: each.count for each in found.incomparable}[TOO_MANY]
        assert too_many >= 20
        assert found.counts.not_comparable >= too_many
        # It follows again from there.
        world.apply(make_pod("last", cpu="1"))
        world.clock.advance(3)
        bind(world, "last", "b")
        assert (await compared(world, 31)).comparisons[0].result == "equal"


async def test_a_plugin_that_fails_makes_its_binding_not_comparable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with observing(make_node("a", cpu="4")) as world:
        await quiet()

        def fail(*_: object) -> None:
            raise PluginFailure("NodeName", "Filter", "it fails")

        monkeypatch.setattr("stellwerk.observing.trailing.compare", fail)
        world.apply(make_pod("web", cpu="1"))
        bind(world, "web", "a")
        found = await compared(world, 1)
        assert found.incomparable[0].reason == FAILED
        assert world.operator.handlers.trail is not None
        copy = world.operator.handlers.trail.copy
        assert copy.world.cache.pod("uid-default-web") is not None


def of_kube_scheduler(world: InProcess) -> set[str]:
    """Every series of kube-scheduler's families."""
    lines = world.operator.exposition().decode().splitlines()
    return {line for line in lines if line.startswith("scheduler_")}
