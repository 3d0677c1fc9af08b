"""Random arrivals of groups and pods in namespaces with quotas: all or none, none for ever.

A group is let in only when its quorum fits the quota, in one step; so no two groups each hold a
part of a quota that both need.
"""

import asyncio
from collections import Counter
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_node, make_pod
from tests.support.examples import examples
from tests.support.in_process import InProcess, make_profile, quiet, running
from tests.support.pod_groups import make_group, make_member
from tests.support.skipped_time import run_skipping

MIN, MAX = 4, 6
ANSWERED_SECONDS: Final = 30.0
"""Every backoff has passed; what waits has been woken by what became free, not by the time."""
PROFILE: Final = make_profile(
    "stellwerk",
    gangScheduling=True,
    plugins={
        "multiPoint": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"disabled": [{"name": "DefaultPreemption"}]},
    },
)

namespaces = st.sampled_from(["default", "other"])
steps = st.one_of(
    st.tuples(st.just("group"), namespaces, st.integers(1, 6), st.integers(1, 6)),
    st.tuples(st.just("member of the last"), st.integers(1, 3)),
    st.tuples(st.just("single"), namespaces, st.integers(1, 3)),
    st.tuples(st.just("pod gone"), st.integers(0, 20)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.0, 5.0])),
)


class Namespaces:
    """Two namespaces that lend each other, and what has to hold of them at any moment."""

    def __init__(self, world: InProcess) -> None:
        self.world = world
        self.quorums: dict[str, int] = {}
        self.made: Counter[str] = Counter()
        """The pods of each group that there ever were."""
        world.apply(PROFILE, make_node("node", cpu="100"))
        for namespace in ("default", "other"):
            amounts = {"min": {"cpu": str(MIN), "memory": "1Ti"}, "max": {"cpu": str(MAX)}}
            amounts["max"]["memory"] = "1Ti"
            metadata = {"name": "quota", "namespace": namespace}
            world.operator.handlers.on_object(
                "ElasticQuota", "ADDED", {"metadata": metadata, "spec": amounts}
            )
        world.operator.sources.on_synced("ElasticQuota")
        self._delete_pod = world.client.delete_pod
        world.client.delete_pod = self._evict  # type: ignore[method-assign]
        self.number = 0
        self.last: tuple[str, str] | None = None

    async def _evict(self, namespace: str, name: str, uid: str) -> bool:
        """Delete a victim, and deliver that it is gone."""
        pod = self.world.client.objects[f"/api/v1/namespaces/{namespace}/pods/{name}"]
        gone = await self._delete_pod(namespace, name, uid)
        self.world.operator.handlers.on_pod("DELETED", pod)
        return gone

    async def happen(self, what: str, *details: Any) -> None:
        self.number += 1
        match what:
            case "wait":
                await asyncio.sleep(details[0])
            case "group":
                namespace, members, wanted = details
                self._add_group(namespace, members, min(members, wanted))
            case "member of the last" if self.last is not None:
                self._add_members(*self.last, details[0])
            case "single":
                namespace, cpu = details
                name = f"single-{self.number}"
                self.world.apply(
                    make_pod(name, cpu=str(cpu), namespace=namespace, scheduler_name="stellwerk")
                )
            case "pod gone" if (pods := self.pods()) and details[0] < len(pods):
                self.delete(pods[details[0]])
        await quiet()

    def _add_group(self, namespace: str, members: int, quorum: int) -> None:
        group = make_group(f"group-{self.number}", quorum)
        name = group["metadata"]["name"]
        group["metadata"]["namespace"] = namespace
        self.quorums[name] = quorum
        self.last = (namespace, name)
        self.world.apply(group)
        self._add_members(namespace, name, members)

    def _add_members(self, namespace: str, group: str, members: int) -> None:
        for _ in range(members):
            name = f"{group}-{self.made[group]}"
            self.made[group] += 1
            self.world.apply(make_member(name, group, cpu="1", namespace=namespace))

    def pods(self) -> list[JsonObject]:
        return [each for each in self.world.client.objects.values() if each["kind"] == "Pod"]

    def delete(self, pod: JsonObject) -> None:
        metadata = pod["metadata"]
        self.world.delete("Pod", metadata["name"], metadata["namespace"])

    def bound(self) -> list[JsonObject]:
        return [each for each in self.pods() if each["spec"].get("nodeName")]

    def check(self) -> None:
        used: Counter[str] = Counter()
        of_group: Counter[str] = Counter()
        for pod in self.bound():
            amounts = pod["spec"]["containers"][0]["resources"]["requests"]
            used[pod["metadata"]["namespace"]] += int(amounts["cpu"])
            of_group[group_of(pod)] += 1
        assert max(used.values(), default=0) <= MAX
        assert used.total() <= 2 * MIN
        there = Counter(map(group_of, self.pods()))
        for name, quorum in self.quorums.items():
            if there[name] == self.made[name]:  # it has lost none
                assert of_group[name] == 0 or of_group[name] >= quorum, name

    async def let_all_run(self) -> None:
        """Whatever runs ends, until there is nothing more that could run."""
        await asyncio.sleep(ANSWERED_SECONDS)
        while bound := self.bound():
            self.check()
            for pod in bound:
                self.delete(pod)
            await asyncio.sleep(ANSWERED_SECONDS)
        waiting = Counter(map(group_of, self.pods()))
        for name, members in waiting.items():
            quorum = self.quorums.get(name, 1)
            # What is left lacks members, or asks for more than the namespace may have.
            assert members < quorum or quorum > MAX, (name, members, quorum)


def group_of(pod: JsonObject) -> str:
    name: str = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName", "")
    return name


@settings(max_examples=examples(12), deadline=None)
@given(st.lists(steps, max_size=12))
@example([("group", "default", 4, 4), ("group", "default", 4, 4), ("group", "other", 4, 4)])
@example([("group", "default", 6, 6), ("group", "other", 6, 6), ("single", "other", 2)])
def test_groups_are_let_in_whole_and_none_waits_for_another(
    happened: list[tuple[Any, ...]],
) -> None:
    async def play(clock: VirtualClock) -> None:
        async with running(clock) as world:
            story = Namespaces(world)
            for what, *details in happened:
                await story.happen(what, *details)
                story.check()
            await story.let_all_run()

    run_skipping(play)
