"""Random gangs, nodes, refused bindings and restarts: all or none, and no room is lost."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stellwerk.answers.group import GroupExplanation
from stellwerk.explain.pod_groups import explain_group
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.errors import ApiError
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

ANSWERED_SECONDS = 700.0
"""Every backoff has passed, and what was unschedulable for too long was flushed."""

cpus = st.integers(1, 3)
steps = st.one_of(
    st.tuples(st.just("node"), st.integers(1, 5)),
    st.tuples(st.just("node gone"), st.integers(0, 5)),
    st.tuples(st.just("gang"), st.lists(cpus, min_size=1, max_size=5), st.integers(1, 5)),
    st.tuples(st.just("single"), cpus),
    st.tuples(st.just("pod gone"), st.integers(0, 20)),
    st.tuples(st.just("refused"), st.integers(0, 20)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0])),
)


class Story:
    """A cluster that things happen to, and what has to hold for it at any moment."""

    def __init__(self, clock: VirtualClock, stack: AsyncExitStack) -> None:
        self._clock, self._stack = clock, stack
        self.world: InProcess
        self.min_counts: dict[str, int] = {}
        self.troubled: set[str] = set()
        """Gangs that lost a pod or had a binding refused."""
        self.made = 0

    async def start(self) -> None:
        """Start the operator, on what the store has."""
        objects = list(self.world.client.objects.values()) if self.made else []
        await self._stack.aclose()
        self.world = await self._stack.enter_async_context(running(self._clock))
        self.made += 1
        self.world.apply(*objects)

    def pods(self) -> list[JsonObject]:
        return [each for each in self.world.client.objects.values() if each["kind"] == "Pod"]

    async def happen(self, what: str, *details: Any) -> None:
        self.made += 1
        match what:
            case "restart":
                await self.start()
            case "wait":
                await asyncio.sleep(details[0])
            case "node" | "gang" | "single":
                self._add(what, *details)
            case _:
                self._disturb(what, *details)
        await quiet()

    def _add(self, what: str, *details: Any) -> None:
        world, name = self.world, f"{what}-{self.made}"
        if what == "node":
            world.apply(make_node(name, cpu=str(details[0])))
        elif what == "single":
            world.apply(make_pod(name, cpu=str(details[0]), scheduler_name="stellwerk"))
        else:
            sizes, wanted = details
            self.min_counts[name] = min(wanted, len(sizes))
            world.apply(make_group(name, self.min_counts[name]))
            for index, size in enumerate(sizes):
                world.apply(make_member(f"{name}-{index}", name, cpu=str(size)))

    def _disturb(self, what: str, number: int) -> None:
        pods, client = self.pods(), self.world.client
        nodes = [key.rpartition("/")[2] for key in client.objects if "/nodes/" in key]
        if what == "node gone" and number < len(nodes):
            # Its pods go with it, as the garbage collector would have it.
            for pod in pods:
                if pod["spec"].get("nodeName") == nodes[number]:
                    self.delete(pod)
            self.world.delete("Node", nodes[number])
        elif what == "pod gone" and number < len(pods):
            self.delete(pods[number])
        elif what == "refused" and number < len(pods):
            self.troubled.add(group_of(pods[number]))
            name = pods[number]["metadata"]["name"]
            if not pods[number]["spec"].get("nodeName"):
                path = f"/api/v1/namespaces/default/pods/{name}/binding"
                client.failures[path] = ApiError("bind", 403, "Forbidden", "not yet")

    def delete(self, pod: JsonObject) -> None:
        self.troubled.add(group_of(pod))
        self.world.delete("Pod", pod["metadata"]["name"])

    def check(self) -> None:
        used: Counter[str] = Counter()
        bound: Counter[str] = Counter()
        for pod in self.pods():
            node = pod["spec"].get("nodeName")
            if node:
                used[node] += int(pod["spec"]["containers"][0]["resources"]["requests"]["cpu"])
                bound[group_of(pod)] += 1
        for node, cpu in used.items():
            obj = self.world.client.objects[f"/api/v1/nodes/{node}"]
            assert cpu <= int(obj["status"]["allocatable"]["cpu"])
        for name, needed in self.min_counts.items():
            if name not in self.troubled:
                assert bound[name] == 0 or bound[name] >= needed, name

    def check_at_rest(self) -> None:
        """What waits could not be placed now."""
        for name in self.min_counts:
            explanation = explained(self.world, name)
            would_happen = explanation.would_happen
            assert would_happen is None or not would_happen.placed, explanation


def group_of(pod: JsonObject) -> str:
    name: str = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    return name


def explained(world: InProcess, name: str) -> GroupExplanation:
    steps_of = explain_group(world.operator.world, "default", name)
    assert steps_of is not None
    while True:
        try:
            next(steps_of)
        except StopIteration as ended:
            result: GroupExplanation = ended.value
            return result


@settings(max_examples=examples(20))
@given(st.lists(steps, max_size=14), st.sampled_from(["auto", "1.38"]))
def test_gangs_are_bound_whole_and_what_fits_is_bound(
    happened: list[tuple[Any, ...]], release: str
) -> None:
    async def play(clock: VirtualClock) -> None:
        async with AsyncExitStack() as stack:
            story = Story(clock, stack)
            await story.start()
            profile = make_profile("stellwerk", gangScheduling=True, compatibility=release)
            story.world.apply(profile)
            for what, *details in happened:
                await story.happen(what, *details)
                story.check()
            await asyncio.sleep(ANSWERED_SECONDS)
            story.check()
            story.check_at_rest()

    run_skipping(play)


@settings(max_examples=6)
@given(st.integers(4, 6), st.integers(4, 6), st.integers(0, 1 << 30))
def test_two_gangs_never_starve_each_other(size_of_a: int, size_of_b: int, seed: int) -> None:
    """Each has room for itself, and for a part of the other; one after the other runs."""
    sizes = {"a": size_of_a, "b": size_of_b}

    async def play(clock: VirtualClock) -> None:
        async with running(clock) as world:

            def bound(name: str) -> int:
                names = [f"{name}-{number}" for number in range(sizes[name])]
                return sum(world.node_of(each) is not None for each in names)

            world.apply(make_profile("stellwerk", gangScheduling=True))
            world.apply(*(make_node(f"node-{number}", cpu="3") for number in range(2)))
            world.apply(*(make_group(name, size) for name, size in sizes.items()))
            members = [
                make_member(f"{name}-{number}", name, cpu="1")
                for name, size in sizes.items()
                for number in range(size)
            ]
            Random(seed).shuffle(members)
            for member in members:
                world.apply(member)
                await quiet()
            await asyncio.sleep(30)
            (first,) = [name for name in sizes if bound(name)]
            (second,) = {*sizes} - {first}
            assert bound(first) == sizes[first]
            for number in range(sizes[first]):
                world.delete("Pod", f"{first}-{number}")
            await asyncio.sleep(30)
            assert bound(second) == sizes[second]

    run_skipping(play)
