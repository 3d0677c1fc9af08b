"""Queues of groups in strict order: what is placed behind the first cannot delay it."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk_kube.clock import VirtualClock
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.in_process import InProcess, make_profile, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

QUEUE = {"scheduling.stellwerk.dev/queue": "q"}
ROOM = {"maxNodes": "100%", "maxSeconds": 1_000_000}
STRICT = [{"name": "GangScheduling", "args": {"strictQueues": True, "reservation": ROOM}}]
HIGHEST = 2
BACKOFF_SECONDS = 30.0

cores = st.integers(1, 4)
running_pods = st.lists(
    st.tuples(st.integers(0, 3), cores, st.integers(0, HIGHEST)), min_size=2, max_size=8
)
"""Node, cores and priority of each."""
arrivals = st.lists(
    st.tuples(st.integers(0, 8), st.integers(1, 3), cores, st.integers(0, HIGHEST)), max_size=6
)
"""After how many ends, number of pods, cores and priority of each gang."""


class Contest:
    """One gang that waits for room, others that come behind it, and pods that end one by one."""

    def __init__(self, world: InProcess, nodes: int, taken: list[tuple[int, int, int]]) -> None:
        self._world = world
        world.apply(make_profile("stellwerk", gangScheduling=True, pluginConfig=STRICT))
        world.apply(*(make_node(f"n{number}", cpu="4") for number in range(nodes)))
        free = [4] * nodes
        self.others: list[tuple[int, str]] = []
        """(priority, name) of what runs."""
        for number, (node, cpu, priority) in enumerate(taken):
            if free[node % nodes] >= cpu:
                free[node % nodes] -= cpu
                pod = make_pod(f"r{number}", cpu=str(cpu), node_name=f"n{node % nodes}")
                pod["spec"]["activeDeadlineSeconds"] = 3600
                pod["spec"]["priority"] = priority
                world.apply(pod)
                self.others.append((priority, f"r{number}"))

    def arrive(self, name: str, size: int, cpu: int, priority: int, created: int) -> None:
        """A gang that evicts no pods joins the queue."""
        group = make_group(name, size, QUEUE)
        group["metadata"]["creationTimestamp"] = f"2026-01-01T00:00:{created:02}Z"
        members = [
            make_member(
                f"{name}-{number}",
                name,
                cpu=str(cpu),
                priority=priority,
                preemptionPolicy="Never",
            )
            for number in range(size)
        ]
        self._world.apply(group, *members)

    def is_placed(self, name: str) -> bool:
        """Whether any member has a node; then all have."""
        pods = [obj for obj in self._world.client.objects.values() if obj["kind"] == "Pod"]
        own = [pod for pod in pods if pod["metadata"]["name"].startswith(f"{name}-")]
        nodes = [bool(pod["spec"].get("nodeName")) for pod in own]
        assert any(nodes) == all(nodes)
        return any(nodes)

    async def ends_until_placed(
        self, order: list[str], later: list[tuple[int, int, int, int]]
    ) -> int:
        """How many pods have to end before the first gang is placed; one more: it never is."""
        for ended, gone in enumerate([*order, None]):
            for number, (at, size, cpu, priority) in enumerate(later):
                if at == ended:
                    self.arrive(f"later{number}", size, cpu, priority, 10 + number)
            await asyncio.sleep(BACKOFF_SECONDS)
            if self.is_placed("first"):
                return ended
            if gone is not None:
                self._world.delete("Pod", gone)
        return len(order) + 1


def ends(
    nodes: int,
    taken: list[tuple[int, int, int]],
    gang: tuple[int, int],
    later: list[tuple[int, int, int, int]],
    order: list[int] | None = None,
) -> tuple[int, int]:
    """How many pods end before the gang is placed, and how many there are.

    They end in the order of the estimate, the least important first, unless it is given.
    """
    found: list[tuple[int, int]] = []

    async def flow(clock: VirtualClock) -> None:
        async with running(clock) as world:
            contest = Contest(world, nodes, taken)
            contest.arrive("first", *gang, priority=HIGHEST, created=0)
            estimate = sorted(contest.others, key=lambda each: (each[0], _descending(each[1])))
            names = [name for _, name in estimate]
            if order is not None:
                names.sort(key=lambda name: order[int(name[1:])])
            found.append((await contest.ends_until_placed(names, later), len(names)))

    run_skipping(flow)
    return found[0]


def _descending(name: str) -> int:
    return -int(name[1:])


CASES: dict[str, Any] = {
    "nodes": st.integers(1, 4),
    "taken": running_pods,
    "gang": st.tuples(st.integers(1, 4), cores),
    "later": arrivals,
}


def never_later(
    nodes: int,
    taken: list[tuple[int, int, int]],
    gang: tuple[int, int],
    later: list[tuple[int, int, int, int]],
) -> None:
    behind, _ = ends(nodes, taken, gang, later)
    alone, _ = ends(nodes, taken, gang, [])
    assert behind == alone


@settings(max_examples=8)
@given(**CASES)
def test_the_first_is_placed_as_early_as_without_those_behind_it(**case: Any) -> None:
    never_later(**case)


@pytest.mark.long
@settings(max_examples=examples(150))
@given(**CASES)
def test_the_first_is_placed_as_early_in_many_cases(**case: Any) -> None:
    never_later(**case)


@settings(max_examples=8)
@given(order=st.permutations(range(8)), **CASES)
def test_whatever_ends_first_the_first_is_placed_once_all_that_ran_have_ended(
    order: list[int], **case: Any
) -> None:
    placed, running_at_first = ends(**case, order=order)
    size, cpu = case["gang"]
    fits = size <= case["nodes"] * (4 // cpu)
    assert (placed <= running_at_first) == fits
