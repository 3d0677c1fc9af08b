"""Pods that take long to decide on let others pass."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from stellwerk.framework.time_budget import TimeBudget
from stellwerk.framework.types import CycleState
from stellwerk.plugins.default_preemption.dry_run import DryRun, DryRunOutcome
from stellwerk.scheduler.throttle import (
    NAMESPACE_THROTTLED,
    SPEC_THROTTLED,
    SlowNamespaces,
    SlowSearch,
    SlowSpecs,
    Throttle,
)
from stellwerk.snapshot.columns import RowColumn
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk.world.decide import Failure
from stellwerk.world.profiles import ServedProfile
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod, pod_info
from tests.support.in_process import InProcess, make_profile, quiet, running

SLOW = pod_info("slow", cpu="1").spec
OTHER = pod_info("other", cpu="2").spec


@pytest.fixture(name="clock")
def a_clock() -> VirtualClock:
    return VirtualClock()


def slow_specs(clock: VirtualClock, *, waiting: int) -> SlowSpecs:
    return SlowSpecs(range(waiting), clock.monotonic)


def test_a_spec_is_set_back_nine_times_what_its_second_slow_attempt_took(
    clock: VirtualClock,
) -> None:
    specs = slow_specs(clock, waiting=1)
    specs.took(SLOW, 0.2)
    assert not specs.waits(SLOW), "caches may have been cold"
    specs.took(SLOW, 0.2)
    assert specs.waits(SLOW)
    assert not specs.waits(OTHER)
    clock.advance(1.7)
    assert specs.waits(SLOW)
    clock.advance(0.2)
    assert not specs.waits(SLOW)


def test_where_no_pod_waits_none_is_set_back(clock: VirtualClock) -> None:
    specs = slow_specs(clock, waiting=0)
    specs.took(SLOW, 5.0)
    specs.took(SLOW, 5.0)
    assert not specs.waits(SLOW)


def test_a_quick_attempt_ends_it(clock: VirtualClock) -> None:
    specs = slow_specs(clock, waiting=1)
    specs.took(SLOW, 5.0)
    specs.took(SLOW, 5.0)
    specs.took(SLOW, 0.1)
    assert not specs.waits(SLOW)


@contextmanager
def time_passes_in_each_attempt(world: InProcess, seconds: float) -> Iterator[None]:
    """Deciding takes so long, for pods whose attempt updates the snapshot."""
    update = world.cache.update_snapshot

    def slowly() -> Snapshot:
        world.clock.advance(seconds)
        return update()

    world.cache.update_snapshot = slowly  # type: ignore[method-assign]
    try:
        yield
    finally:
        world.cache.update_snapshot = update  # type: ignore[method-assign]


async def test_slow_attempts_are_counted_logged_and_set_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running() as world:
        world.apply(make_node("n0", cpu="4"), make_profile("default-scheduler"))
        await quiet(20)
        with time_passes_in_each_attempt(world, 0.3):
            world.apply(*(make_pod(f"p{number}", cpu="100m") for number in range(4)))
            await quiet(50)
        slow = world.metrics.slow_attempts.labels("default-scheduler").value
        assert slow >= 2
        assert "deciding took 300 ms" in caplog.text
        reason, message = world.condition("p2") or ("", "")
        assert reason == "Slow"
        assert "more than 100 ms" in message
        assert world.node_of("p3"), "no pod was waiting then"
        world.clock.advance(30)
        world.queue.flush_backoff(world.clock.monotonic())
        await quiet(50)
        assert all(world.node_of(f"p{number}") for number in range(4))


def test_attempts_in_vain_give_way_to_the_pods_of_others_for_so_long() -> None:
    clock = VirtualClock()
    slow = SlowNamespaces(clock.monotonic)
    slow.took("a", SlowSearch.GROUP, 0.02)
    assert not slow.waits("a", SlowSearch.GROUP, 0)  # nobody else has pods
    slow.tried("a", 0)
    assert not slow.waits("a", SlowSearch.GROUP, 0)
    slow.tried("b", 0)
    assert slow.waits("a", SlowSearch.GROUP, 0)
    assert not slow.waits("b", SlowSearch.GROUP, 0)
    clock.advance(1.5)
    assert not slow.waits("a", SlowSearch.GROUP, 0)  # b has none any more
    clock.advance(2.4)
    slow.tried("b", 0)
    assert slow.waits("a", SlowSearch.GROUP, 0)
    clock.advance(0.2)
    assert not slow.waits("a", SlowSearch.GROUP, 0)  # 200 times as long is over


def test_a_group_never_waits_for_pods_of_a_lower_priority() -> None:
    clock = VirtualClock()
    slow = SlowNamespaces(clock.monotonic)
    slow.took("a", SlowSearch.GROUP, 0.02)
    slow.tried("b", 5)
    assert slow.waits("a", SlowSearch.GROUP, 5)
    assert not slow.waits("a", SlowSearch.GROUP, 6)


def test_attempts_for_claims_are_counted_beside_those_of_groups() -> None:
    clock = VirtualClock()
    slow = SlowNamespaces(clock.monotonic)
    slow.took("a", SlowSearch.CLAIMS, 0.02)
    slow.tried("a", 0)
    assert not slow.waits("a", SlowSearch.CLAIMS, 0)
    slow.tried("b", 0)
    assert slow.waits("a", SlowSearch.CLAIMS, 0)
    assert not slow.waits("a", SlowSearch.GROUP, 0)


def test_what_a_namespace_may_take_early_comes_back() -> None:
    clock = VirtualClock()
    slow = SlowNamespaces(clock.monotonic)
    slow.took("a", SlowSearch.GROUP, 0.3)
    assert slow.waits_backoff_out("a")
    assert not slow.waits_backoff_out("b")
    clock.advance(6)
    assert not slow.waits_backoff_out("a")


def test_namespaces_are_forgotten() -> None:
    clock = VirtualClock()
    slow = SlowNamespaces(clock.monotonic)
    for number in range(3_000):
        slow.tried(f"n{number}", 0)
        slow.took(f"n{number}", SlowSearch.GROUP, 0.001)
        clock.advance(0.1)
    assert len(slow) <= 2 * 1025


def throttle_of(world: InProcess, *, waiting: int = 1) -> Throttle:
    """A throttle by itself, beside which this many pods wait."""
    budget = TimeBudget(world.clock.monotonic)
    return Throttle(world.operator.world, budget, range(waiting), world.metrics)


def served(world: InProcess, name: str) -> ServedProfile:
    return world.profiles.served[name]


def test_foreign_code_holds_a_profile_back_only_where_another_one_is_served() -> None:
    world, pod = InProcess(), pod_info("web")
    throttle = throttle_of(world)
    world.apply(make_profile("a"))
    throttle.budget.spent("a", 'plugin "Slow"', 9.0)
    assert throttle.begin(pod, served(world, "a")) == ""
    world.apply(make_profile("b"))
    assert 'plugin "Slow" is too slow' in throttle.begin(pod, served(world, "a"))
    assert throttle.begin(pod, served(world, "b")) == ""


def test_the_time_of_foreign_code_does_not_make_a_spec_slow() -> None:
    world, pod = InProcess(), pod_info("web")
    throttle = throttle_of(world)
    world.apply(make_profile("a"))
    profile, failure = served(world, "a"), Failure.error("none")
    for _ in range(2):
        throttle.took(pod, profile, CycleState(), failure, seconds=0.5, foreign_seconds=0.45)
    assert throttle.begin(pod, profile) == ""
    for _ in range(2):
        throttle.took(pod, profile, CycleState(), failure, seconds=0.5, foreign_seconds=0.0)
    assert throttle.begin(pod, profile) == SPEC_THROTTLED
    assert throttle.why_slow(pod, profile) == SPEC_THROTTLED


def test_a_search_for_victims_counts_unless_it_found_some_or_was_forgone() -> None:
    world = InProcess()
    throttle = throttle_of(world)
    world.apply(make_profile("a"))
    profile, failure = served(world, "a"), Failure.error("none")
    pod, other = pod_info("web", namespace="one"), pod_info("web", namespace="two")
    state = CycleState()
    throttle.took(pod, profile, state, failure, seconds=0.05, foreign_seconds=0.0)
    assert not throttle.slow_namespaces.spent, "it has not searched"
    state.victims_searched = state.without_victims = True
    throttle.took(pod, profile, state, failure, seconds=0.05, foreign_seconds=0.0)
    assert not throttle.slow_namespaces.spent, "it did without"
    state.without_victims = False
    throttle.took(pod, profile, state, failure, seconds=0.05, foreign_seconds=0.0)
    assert not throttle.forgoes_victims(pod), "no other namespace has pods"
    assert throttle.begin(other, profile) == ""
    assert throttle.forgoes_victims(pod)
    assert not throttle.forgoes_victims(other)


async def test_searches_for_victims_in_vain_give_way_to_the_pods_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = 0
    async with running() as world:
        run = DryRun.run

        def slowly(dry_run: DryRun, rows: RowColumn) -> list[DryRunOutcome]:
            nonlocal searched
            searched += 1
            world.clock.advance(0.02)
            return run(dry_run, rows)

        monkeypatch.setattr(DryRun, "run", slowly)
        world.apply(make_node("n0", cpu="4"), make_profile("default-scheduler"))
        world.apply(
            make_pod("high", cpu="2", node_name="n0", priority=100),
            make_pod("low", cpu="100m", node_name="n0", priority=1),
        )

        def greedy(name: str, priority: int) -> JsonObject:
            """A pod that does not fit, even without the pod of lower priority."""
            return make_pod(name, cpu="3", priority=priority)

        world.apply(greedy("first", 10), greedy("second", 10))
        await quiet(50)
        assert searched == 2, "no other namespace has pods"
        world.apply(make_pod("other", namespace="b", cpu="10m", priority=10))
        await quiet(20)
        world.apply(greedy("third", 10), greedy("higher", 11), make_pod("small", cpu="10m"))
        await quiet(50)
        assert world.condition("third") == ("Slow", NAMESPACE_THROTTLED)
        higher = world.condition("higher")
        assert higher != ("Slow", NAMESPACE_THROTTLED), "it waits for no lower priority"
        assert searched == 3
        assert world.node_of("small"), "who needs no victims waits for nobody"
        world.clock.advance(60)
        world.queue.flush_backoff(world.clock.monotonic())
        await quiet(50)
        assert searched == 4, "its time has come"
        assert (world.condition("third") or ("",))[0] == "Unschedulable"
