"""Preemption that spares pods of equal priority equals its definition, written out here once more.

The definition is docs/profiles.md's: of all sets of pods that may stay beside the new one, those of
a node are the first in the order of sparing; the node is the first by the criteria in their order.
Pods here need cpu alone, so that whatever fits beside some pods fits beside fewer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.shared.disruption_budgets import DisruptionBudgets
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.preemption_cases import (
    Arena,
    costing,
    make_arena,
    make_budget,
    of_daemon_set,
    preempting,
    victim,
)

NODE_CPU, NEW_PRIORITY = 3, 10
STARTED_NEVER = float("inf")
COSTS = ("-3", "0", "4", "four")


@dataclass(frozen=True)
class Args:
    """The arguments, as drawn."""

    min_run_seconds: int
    daemons: bool
    costs: bool

    def profile(self) -> JsonObject:
        return preempting(
            minRunSeconds=self.min_run_seconds,
            spareDaemonSetPods=self.daemons,
            orderByDeletionCost=self.costs,
        )


@dataclass
class Case:
    """A cluster, the moment, the arguments, and a pod that has no room."""

    arena: Arena
    clock: VirtualClock
    args: Args
    pod: PodInfo
    objects: tuple[list[JsonObject], list[JsonObject], list[JsonObject]]
    """Nodes, pods and budgets."""


@st.composite
def placed(draw: st.DrawFn, number: int, node_name: str, cpu: int) -> JsonObject:
    """A pod; no two start in the same minute, but several may not have started."""
    minutes = 10 * draw(st.integers(1, 5)) + number
    pod = victim(
        f"p{number}",
        node_name,
        cpu=str(cpu),
        priority=draw(st.sampled_from([1, 1, 1, 1, 2])),
        start=None if draw(st.integers(0, 5)) == 0 else str(minutes),
        labels={"app": draw(st.sampled_from(["db", "web"]))},
    )
    if draw(st.booleans()):
        pod = costing(pod, draw(st.sampled_from(COSTS)))
    return of_daemon_set(pod) if draw(st.integers(0, 2)) == 0 else pod


@st.composite
def cases(draw: st.DrawFn, run_seconds: tuple[int, ...] = (0, 600, 1200)) -> Case:
    names = [f"n{number}" for number in range(draw(st.integers(1, 3)))]
    nodes = [make_node(name, cpu=str(NODE_CPU)) for name in names]
    pods: list[JsonObject] = []
    for name in names:
        left = NODE_CPU
        while left:
            cpu = min(left, draw(st.sampled_from([1, 1, 2])))
            left -= cpu
            pods.append(draw(placed(len(pods), name, cpu)))
    budgets = [
        make_budget(app, {"app": app}, draw(st.integers(0, 1)))
        for app in draw(st.sets(st.sampled_from(["db", "web"]), max_size=1))
    ]
    args = draw(
        st.builds(Args, st.sampled_from(run_seconds), st.booleans(), st.booleans()).filter(any_on)
    )
    clock = VirtualClock(datetime(2026, 1, 1, 0, draw(st.sampled_from([25, 35, 45])), tzinfo=UTC))
    arena = make_arena(nodes, pods, budgets=budgets, profile=args.profile(), clock=clock)
    cpu = draw(st.integers(1, 2))
    new = parse_pod(make_pod("new", cpu=str(cpu), priority=NEW_PRIORITY))
    return Case(arena, clock, args, new, (nodes, pods, budgets))


def any_on(args: Args) -> bool:
    return bool(args.min_run_seconds) or args.daemons or args.costs


# --- the definition -----------------------------------------------------------------------------


def is_daemon(pod: PodInfo) -> bool:
    return pod.owner is not None and pod.owner[0].endswith(" DaemonSet")


def is_young(pod: PodInfo, args: Args, now: datetime) -> bool:
    if args.min_run_seconds == 0:
        return False
    return pod.started_seconds is None or (
        now.timestamp() < pod.started_seconds + args.min_run_seconds
    )


def start(pod: PodInfo) -> float:
    return STARTED_NEVER if pod.started_seconds is None else pod.started_seconds


def order_of_sparing(pods: Sequence[PodInfo], args: Args, now: datetime) -> list[PodInfo]:
    return sorted(
        pods,
        key=lambda pod: (
            -pod.priority,
            0 if args.daemons and is_daemon(pod) else 1,
            0 if is_young(pod, args, now) else 1,
            -pod.deletion_cost if args.costs else 0,
            start(pod),
        ),
    )


def first_set(case: Case, node_name: str) -> tuple[list[PodInfo], int]:
    """The victims of a node and the budgets they overdraw: of all sets that may stay, the first."""
    pods = [pod for pod in case.arena.cache.pods() if pod.node_name == node_name]
    ordered = order_of_sparing(pods, case.args, case.clock.now())
    over = DisruptionBudgets(case.arena.objects).violating(ordered)
    ranked = [
        *(pod for pod, is_over in zip(ordered, over, strict=True) if is_over),
        *(pod for pod, is_over in zip(ordered, over, strict=True) if not is_over),
    ]
    room = NODE_CPU * 1000 - case.pod.spec.amounts.requests["cpu"]
    stays = max(
        each
        for each in product([False, True], repeat=len(ranked))
        if sum(
            pod.spec.amounts.requests["cpu"] for pod, kept in zip(ranked, each, strict=True) if kept
        )
        <= room
    )
    going = [pod for pod, kept in zip(ranked, stays, strict=True) if not kept]
    violated = {pod.uid for pod, is_over in zip(ordered, over, strict=True) if is_over}
    return going, sum(pod.uid in violated for pod in going)


def losses(case: Case, victims: Sequence[PodInfo], violations: int) -> tuple[float, ...]:
    """What is compared between nodes, in the order in which it is."""
    args, now = case.args, case.clock.now()
    highest = max(pod.priority for pod in victims)
    of_highest = [pod for pod in victims if pod.priority == highest]
    return (
        violations,
        highest,
        sum(map(is_daemon, victims)) if args.daemons else 0,
        sum(is_young(pod, args, now) for pod in victims),
        sum(pod.priority + 2**31 for pod in victims),
        len(victims),
        max(pod.deletion_cost for pod in of_highest) if args.costs else 0,
        -min(map(start, of_highest)),
    )


def keys(pods: Sequence[PodInfo], case: Case) -> list[tuple[object, ...]]:
    """What the order reads of victims: which of several equal ones goes is left open."""
    return sorted(
        (
            pod.priority,
            pod.spec.amounts.requests["cpu"],
            case.args.daemons and is_daemon(pod),
            pod.deletion_cost if case.args.costs else 0,
            start(pod),
        )
        for pod in pods
    )


def equal_ones(case: Case) -> Iterator[bool]:
    """Whether two pods of a node are equal to the order, but not to the node."""
    now = case.clock.now()
    by_place: dict[tuple[object, ...], set[object]] = {}
    for pod in case.arena.cache.pods():
        place = (
            pod.node_name,
            pod.priority,
            case.args.daemons and is_daemon(pod),
            is_young(pod, case.args, now),
            pod.deletion_cost if case.args.costs else 0,
            start(pod),
        )
        size = (pod.spec.amounts.requests["cpu"], pod.labels["app"])
        by_place.setdefault(place, set()).add(size)
    yield from (len(sizes) > 1 for sizes in by_place.values())


@settings(max_examples=examples(110), deadline=None)
@given(case=cases())
def test_victims_and_nodes_are_those_of_the_definition(case: Case) -> None:
    if any(equal_ones(case)):
        return
    result = case.arena.preempt(case.pod)
    names = {each.node_name for each in result.candidates}
    assert names == set(case.arena.cache.snapshot.row_of)
    expected = {}
    for candidate in result.candidates:
        going, violations = first_set(case, candidate.node_name)
        assert keys(candidate.victims, case) == keys(going, case)
        assert candidate.pdb_violations == violations
        expected[candidate.node_name] = losses(case, going, violations)
    assert result.best is not None
    best = {each.node_name for each in result.best(result.candidates)}
    assert best == {name for name, loss in expected.items() if loss == min(expected.values())}


@settings(max_examples=examples(45), deadline=None)
@given(case=cases())
def test_it_orders_victims_and_forbids_none(case: Case) -> None:
    nodes, pods, budgets = case.objects
    plain = make_arena(nodes, pods, budgets=budgets).preempt(case.pod)
    result = case.arena.preempt(case.pod)
    assert {each.node_name for each in result.candidates} == {
        each.node_name for each in plain.candidates
    }


@settings(max_examples=examples(45), deadline=None)
@given(case=cases((600, 1200)), minutes=st.lists(st.integers(3, 12), min_size=3, max_size=4))
def test_what_is_kept_between_attempts_is_what_is_found_anew(
    case: Case, minutes: list[int]
) -> None:
    nodes, pods, budgets = case.objects
    for passed in minutes:
        case.clock.advance(60 * passed)
        anew = make_arena(
            nodes, pods, budgets=budgets, profile=case.args.profile(), clock=case.clock
        )
        expected = {each.node_name: each.victims for each in anew.preempt(case.pod).candidates}
        found = {each.node_name: each.victims for each in case.arena.preempt(case.pod).candidates}
        assert {name: [pod.uid for pod in each] for name, each in found.items()} == {
            name: [pod.uid for pod in each] for name, each in expected.items()
        }
