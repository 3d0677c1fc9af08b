"""A supposed act changes what the real one does, once the controllers have acted.

Each real act is done on the embedded cluster, whose node lifecycle controller, ReplicaSets and
evictions answer it; the supposition is asked of the operator before.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import yaml

from stellwerk.clock import VirtualClock
from stellwerk.explain.what_if import what_if
from stellwerk.models.answers.what_if import Supposition
from stellwerk.models.node import NodeInfo, parse_node
from stellwerk.models.supposed_acts import (
    cordoned,
    relabelled,
    settled,
    tainted,
    uncordoned,
    untainted,
)
from stellwerk.models.taints import NO_SCHEDULE, Taint
from tests.support.answers import written
from tests.support.builders import make_node
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import VirtualCluster, open_virtual_cluster

CONTROLLED_SECONDS = 5.0
"""Virtual time in which the controllers have acted."""
MINE = Taint("mine", "yes", NO_SCHEDULE)
TAINT = {"key": "mine", "value": "yes", "effect": "NoSchedule"}
CORDON = {"spec": {"unschedulable": True}}


def play(flow: Callable[[VirtualCluster], Awaitable[None]], nodes: int = 3) -> None:
    async def run(clock: VirtualClock) -> None:
        made = [
            make_node(f"node-{n}", cpu="4", labels={"kubernetes.io/hostname": f"node-{n}"})
            for n in range(1, nodes + 1)
        ]
        async with open_virtual_cluster(clock, made) as world:
            await flow(world)

    run_skipping(run)


def node(world: VirtualCluster, name: str = "node-1") -> NodeInfo:
    return parse_node(world.api.find("nodes", "", name) or {})


@pytest.mark.parametrize(
    ("prepared", "act", "supposed"),
    [
        pytest.param([], CORDON, cordoned, id="cordon"),
        pytest.param([CORDON], {"spec": {"unschedulable": None}}, uncordoned, id="uncordon"),
        pytest.param(
            [],
            {"metadata": {"labels": {"disk": "ssd"}}},
            lambda before: relabelled(before, {"disk": "ssd"}),
            id="relabel",
        ),
        pytest.param(
            [CORDON],
            {"metadata": {"labels": {"disk": "ssd"}}},
            lambda before: relabelled(before, {"disk": "ssd"}),
            id="relabel a cordoned node",
        ),
        pytest.param(
            [],
            {"spec": {"taints": [TAINT]}},
            lambda before: tainted(before, [MINE]),
            id="taint",
        ),
        pytest.param(
            [{"spec": {"taints": [TAINT]}}],
            {"spec": {"taints": None}},
            lambda before: untainted(before, [MINE]),
            id="untaint",
        ),
        pytest.param(
            [CORDON],
            {"spec": {"taints": None}},
            lambda before: untainted(before, before.taints),
            id="untaint a cordoned node: the taint comes back",
        ),
    ],
)
def test_an_act_on_a_node_is_supposed_with_all_that_it_changes(
    prepared: list[Any], act: Any, supposed: Callable[[NodeInfo], NodeInfo]
) -> None:
    async def flow(world: VirtualCluster) -> None:
        for each in prepared:
            world.patch("nodes", "node-1", each)
            await asyncio.sleep(CONTROLLED_SECONDS)
        before = node(world)
        world.patch("nodes", "node-1", act)
        await asyncio.sleep(CONTROLLED_SECONDS)
        after, expected = node(world), supposed(before)
        assert set(after.taints) == set(expected.taints)
        assert after.unschedulable == expected.unschedulable
        assert dict(after.labels) == dict(expected.labels)

    play(flow, nodes=1)


def test_a_node_that_is_added_cordoned_gets_its_taint() -> None:
    async def flow(world: VirtualCluster) -> None:
        manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "new"},
            "spec": {"unschedulable": True},
            "status": {
                "allocatable": {"cpu": "4", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        expected = settled(parse_node(manifest))
        world.apply(manifest)
        await asyncio.sleep(CONTROLLED_SECONDS)
        assert set(expected.taints) <= set(node(world, "new").taints)
        assert [each.key for each in expected.taints] == ["node.kubernetes.io/unschedulable"]

    play(flow, nodes=1)


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: spread, namespace: default}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: spread}}
  template:
    metadata: {labels: {app: spread}}
    spec:
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          nodeTaintsPolicy: Honor
          labelSelector: {matchLabels: {app: spread}}
      containers:
        - {name: c, image: registry.example/x:1, resources: {requests: {cpu: 500m}}}
"""


@pytest.mark.parametrize("replicas", [3, 6])
def test_a_drain_is_supposed_as_it_comes(replicas: int) -> None:
    async def flow(world: VirtualCluster) -> None:
        world.apply(yaml.safe_load(DEPLOYMENT.replace("REPLICAS", str(replicas))))
        await world.until(lambda: len(world.pods) == replicas)
        await world.settle()
        leaving = [name for name in world.pods if world.node_of(name) == "node-3"]
        answer = written(what_if(world.operator.world, Supposition(drain="node-3")))
        assert len(answer["placed"]) == len(leaving) == replicas // 3
        assert answer["unplaced"] == []
        world.patch("nodes", "node-3", CORDON)
        await asyncio.sleep(CONTROLLED_SECONDS)
        for name in leaving:
            world.delete("pods", name)
        await world.until(lambda: not set(leaving) & set(world.pods))
        await world.settle()
        assert {world.node_of(name) for name in world.pods} == {"node-1", "node-2"}

    play(flow)


def test_a_pod_that_is_being_deleted_need_not_move() -> None:
    async def flow(world: VirtualCluster) -> None:
        text = DEPLOYMENT.replace("REPLICAS", "3")
        deployment = yaml.safe_load(text)
        deployment["spec"]["template"]["metadata"]["finalizers"] = ["example.com/hold"]
        world.apply(deployment)
        await world.until(lambda: len(world.pods) == 3)
        await world.settle()
        [leaving] = [name for name in world.pods if world.node_of(name) == "node-3"]
        world.patch("nodes", "node-3", CORDON)
        world.delete("pods", leaving)
        await world.until(lambda: len(world.pods) == 4)
        await world.until(lambda: all(world.node_of(name) for name in world.pods))
        answer = written(what_if(world.operator.world, Supposition(drain="node-3")))
        assert (answer["placed"], answer["unplaced"]) == ([], [])
        world.patch("pods", leaving, {"metadata": {"finalizers": None}})

    play(flow)
