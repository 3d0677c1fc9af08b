"""Kinds that the API serves no more, and serves again, while pods are decided and bound.

The operator waits in many places on the way of a pod: between slices of a decision, for an answer
of the API, at Permit. At each of them in turn the kind goes. What is tried then: nothing hangs, no
pod is bound without its claim or its group, none is lost, nothing stays assumed or reserved, and
with the kind back everything is bound.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from stellwerk.profiles.spec.profile import GROUP as PROFILES
from stellwerk.profiles.spec.profile import PLURAL
from stellwerk.scheduler import schedule_one, time_slice
from stellwerk.scheduler.gangs import group_cycle
from stellwerk_cluster.apimachinery.feature_gates import CLAIMS, GANGS
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from tests.flows.test_devices import CLASS, check_devices, claim_object, consumers, slice_of
from tests.flows.test_plugins_people_add import (
    QUOTAS,
    RIGHTS,
    define,
    profile,
    quota,
    topology,
)
from tests.flows.test_plugins_people_add import pod as limited
from tests.support.builders import make_node, make_pod
from tests.support.pod_groups import make_group
from tests.support.repository import ROOT
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster, read_manifests

IN_FLIGHT = "AllocationInFlight"
WRITES = ("bind", "patch_pod_status", "create", "replace", "patch", "get", "delete")


class Points:
    """The places at which the operator lets others go on, counted; something happens at one."""

    def __init__(self, at: int, act: Callable[[], None]) -> None:
        self.passed = 0
        self._at, self._act = at, act

    def passes(self) -> None:
        self.passed += 1
        if self.passed == self._at:
            self._act()

    @property
    def is_reached(self) -> bool:
        return self.passed >= self._at

    @contextmanager
    def counted(self, world: VirtualCluster) -> Iterator[None]:
        """Count calls of the API, before and after their answer, and slices of decisions."""
        client = world.client
        for name in WRITES:
            setattr(client, name, self._around(getattr(client, name)))
        pass_on = time_slice.TimeSlice.pass_on

        async def passed_on(slices: time_slice.TimeSlice, *, at_once: bool = False) -> None:
            del at_once
            self.passes()
            await pass_on(slices, at_once=True)

        with (
            patch.object(time_slice.TimeSlice, "pass_on", passed_on),
            patch.object(schedule_one, "FILTER_SLICE_SECONDS", -1.0),
            patch.object(group_cycle, "MEMBER_SLICE_SECONDS", -1.0),
        ):
            yield

    def _around(self, call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def counted(*args: Any, **kwargs: Any) -> Any:
            self.passes()
            await asyncio.sleep(0)
            try:
                return await call(*args, **kwargs)
            finally:
                await asyncio.sleep(0)
                self.passes()

        return counted


def check_nothing_is_left(world: VirtualCluster) -> None:
    """No binding is under way and nothing is kept for one."""
    operator = world.operator
    assert world.is_scheduling
    assert len(operator.bindings) == 0
    assert dict(operator.world.cache.assumed_pods) == {}
    assert list(operator.world.objects.list(IN_FLIGHT)) == []
    assert not operator.world.preempting


def is_bound(world: VirtualCluster, name: str) -> bool:
    return bool(world.node_of(name))


@dataclass(frozen=True)
class Story:
    """Pods, and the kind that goes while they are scheduled."""

    kind: str
    objects: Callable[[], list[JsonObject]]
    check_while_gone: Callable[[VirtualCluster], None]
    prepare: Callable[[VirtualCluster], None] = lambda _: None


async def goes_and_comes(clock: VirtualClock, story: Story, at: int, *, is_late: bool) -> bool:
    """Let the kind go at the point of this number; returns whether there are so many points."""
    options = ClusterOptions(seed=1, heartbeats=False, feature_gates=GANGS | {CLAIMS})
    nodes = [make_node(name, cpu="4") for name in ("a", "b")]
    async with open_virtual_cluster(clock, nodes, options, also_granted=RIGHTS) as world:
        with_groups = {"spec": {"gangScheduling": True}}
        world.patch(PLURAL, "default-scheduler", with_groups, PROFILES)
        story.prepare(world)

        def withdraw() -> None:
            world.withdraw(story.kind)
            if not is_late:
                world.notice(story.kind)

        points = Points(at, withdraw)
        with points.counted(world):
            world.apply(*story.objects())
            await asyncio.sleep(20)
        if not points.is_reached:
            return False
        if is_late:
            world.notice(story.kind)
        await asyncio.sleep(20)
        check_nothing_is_left(world)
        story.check_while_gone(world)
        world.restore(story.kind)
        await world.until(lambda: all(is_bound(world, name) for name in world.pods), 120)
        check_nothing_is_left(world)
        check_devices(world)
    return True


def points_in_steps_of(step: int, story: Story) -> int:
    """Play the story at every so many points that the operator passes; returns how many.

    The operator notices at once, or a while later; where every point is played, both.
    """
    at = 1
    while True:
        for is_late in (False, True) if step == 1 else (at % 2 == 0,):
            is_there = run_skipping(partial(goes_and_comes, story=story, at=at, is_late=is_late))
        if not is_there:
            return at - step
        at += step


def pod(name: str, **spec: Any) -> JsonObject:
    made = make_pod(name, cpu="1", **spec)
    del made["metadata"]["uid"]
    return {"apiVersion": "v1", "kind": "Pod", **made}


def group(name: str, count: int) -> JsonObject:
    made = make_group(name, count)
    del made["metadata"]["uid"]
    return {**made, "apiVersion": "scheduling.k8s.io/v1beta1"}


def claiming(name: str, **spec: Any) -> JsonObject:
    return pod(name, resourceClaims=[{"name": "c", "resourceClaimName": name}], **spec)


def with_devices(*pods: JsonObject) -> list[JsonObject]:
    """The pods, a claim for each, and a device for each on nodes of their own."""
    names = [each["metadata"]["name"] for each in pods]
    devices = [slice_of(node, {"name": "gpu-0"}) for node in ("a", "b")]
    return [CLASS, *devices, *map(claim_object, names), *pods]


def claimants() -> list[JsonObject]:
    return with_devices(claiming("p"), claiming("q"))


def gang() -> list[JsonObject]:
    members = [pod(f"m{number}", schedulingGroup={"podGroupName": "g"}) for number in range(3)]
    return [group("g", 3), *members]


def gang_with_claims() -> list[JsonObject]:
    in_group = {"schedulingGroup": {"podGroupName": "g"}}
    pods = [claiming(name, **in_group) for name in ("p", "q")]
    return [group("g", 2), *with_devices(*pods)]


def labelled_gang() -> list[JsonObject]:
    """The same of the coscheduling plugin."""
    made = {"apiVersion": "scheduling.x-k8s.io/v1alpha1", "kind": "PodGroup"}
    members = [pod(f"m{number}") for number in range(3)]
    for member in members:
        member["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
    return [{**made, "metadata": {"name": "g"}, "spec": {"minMember": 3}}, *members]


def define_labelled_groups(world: VirtualCluster) -> None:
    world.apply(*read_manifests(ROOT / "manifests" / "coscheduling" / "podgroups.yaml"))
    world.restore("CoschedulingPodGroup")


def define_quotas(world: VirtualCluster) -> None:
    define(world, "elasticquotas")
    world.apply(quota("default", min={"cpu": "3", "memory": "8Gi"}), QUOTAS)


def define_topologies(world: VirtualCluster) -> None:
    define(world, "noderesourcetopologies")
    plugins = {"multiPoint": {"enabled": [{"name": "NodeResourceTopologyMatch"}]}}
    world.apply(topology("a", "3", "3"), topology("b", "3", "3"), profile(plugins))


def of_plugins() -> list[JsonObject]:
    return [limited(f"p{number}", cpu="1", memory="1Gi") for number in range(3)]


def all_or_none(world: VirtualCluster) -> None:
    assert len({is_bound(world, name) for name in world.pods}) == 1
    bound_have_their_claim(world)


def bound_have_their_claim(world: VirtualCluster) -> None:
    for name, obj in world.pods.items():
        if is_bound(world, name) and obj["spec"].get("resourceClaims"):
            assert consumers(world, name) == [name]


def nothing_more(_: VirtualCluster) -> None:
    """Without the kind its plugin holds no pod back."""


STORIES = pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            Story("ResourceClaim", claimants, bound_have_their_claim), id="claims of pods"
        ),
        pytest.param(
            Story("ResourceClaim", gang_with_claims, all_or_none), id="claims of a group's members"
        ),
        pytest.param(Story("PodGroup", gang, all_or_none), id="groups"),
        pytest.param(Story("PodGroup", gang_with_claims, all_or_none), id="groups with claims"),
        pytest.param(
            Story("CoschedulingPodGroup", labelled_gang, all_or_none, define_labelled_groups),
            id="groups by label",
        ),
        pytest.param(Story("ElasticQuota", of_plugins, nothing_more, define_quotas), id="quotas"),
        pytest.param(
            Story("NodeResourceTopology", of_plugins, nothing_more, define_topologies),
            id="zones of nodes",
        ),
    ],
)


@STORIES
def test_a_kind_goes_on_the_way_of_pods_and_comes_back(story: Story) -> None:
    assert points_in_steps_of(7, story) > 7


@pytest.mark.long
@STORIES
def test_a_kind_goes_at_each_point_of_the_way_of_pods_and_comes_back(story: Story) -> None:
    assert points_in_steps_of(1, story) > 10
