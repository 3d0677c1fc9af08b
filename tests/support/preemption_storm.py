"""Hundreds of pods that preempt at once, on nodes whose victims end one after the other.

A flow and a benchmark run it, in skipped time. Invariant: each node is full of four pods of low
priority, a preemptor needs the room of three of them, and no two victims of a node end at the same
moment, so that each victim's end is a change of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from stellwerk.models.pod import PodInfo
from stellwerk.plugins.resources.freed_room import FreedRoom
from stellwerk_cluster.cluster import ClusterOptions
from stellwerk_cluster.hollow.kubelet import KubeletOptions
from tests.support.builders import make_node, make_pod
from tests.support.skipped_time import run_skipping
from tests.support.virtual_cluster import open_virtual_cluster

if TYPE_CHECKING:
    from stellwerk.framework.events import ClusterChange
    from stellwerk_kube.clock import VirtualClock
    from stellwerk_kube.json_values import JsonObject
    from tests.support.virtual_cluster import VirtualCluster

_LOW_PER_NODE: Final = 4
_SHORTEST_GRACE_SECONDS: Final = 5


@dataclass
class Outcome:
    """What became of a storm."""

    attempts: int = 0
    """Rejections of preemptors, events of repeated ones included."""
    bound: int = 0
    """Preemptors on a node in the end."""
    victims: int = 0
    """Pods that had to go."""
    per_node: Counter[str] = field(default_factory=Counter)
    """How many preemptors each node has."""
    seconds: float = 0.0
    """Of cluster time from the arrivals to the last binding."""


def preemption_storm(nodes: int, preemptors: int) -> Outcome:
    """Let the preemptors arrive at once, and see them all bound."""

    async def flow(clock: VirtualClock) -> Outcome:
        options = ClusterOptions(
            seed=1, heartbeats=False, kubelet=KubeletOptions(respect_grace=True)
        )
        manifests = [make_node(f"n{index}", cpu="4") for index in range(nodes)]
        async with open_virtual_cluster(clock, manifests, options) as world:
            world.apply(*(_priority_class(name, value) for name, value in _PRIORITIES.items()))
            world.apply(*(_low(index, nodes) for index in range(_LOW_PER_NODE * nodes)))
            await world.settle()
            began = clock.monotonic()
            world.apply(*(_preemptor(index) for index in range(preemptors)))
            await world.until(lambda: len(_nodes_of_preemptors(world)) == preemptors, 600)
            return _outcome(world, nodes, clock.monotonic() - began)

    return run_skipping(flow)


def every_end_may_help(_: FreedRoom, __: PodInfo, change: ClusterChange) -> bool:
    """What kube-scheduler answers: every victim's end wakes every preemptor."""
    gone = change.old
    return not isinstance(gone, PodInfo) or bool(gone.node_name or gone.nominated_node_name)


def as_kube_scheduler(nodes: int, preemptors: int) -> Outcome:
    """The same where no preemptor is spared."""
    with patch.object(FreedRoom, "may_help", every_end_may_help):
        return preemption_storm(nodes, preemptors)


_PRIORITIES: Final = {"low": 1, "high": 1000}


def _priority_class(name: str, value: int) -> JsonObject:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _low(index: int, nodes: int) -> JsonObject:
    return make_pod(
        f"low-{index}",
        cpu="1",
        node_name=f"n{index % nodes}",
        priorityClassName="low",
        terminationGracePeriodSeconds=_SHORTEST_GRACE_SECONDS + (7 * index + index // nodes) % 20,
    )


def _preemptor(index: int) -> JsonObject:
    return make_pod(f"high-{index}", cpu="3", priorityClassName="high")


def _nodes_of_preemptors(world: VirtualCluster) -> list[str]:
    return [
        pod["spec"]["nodeName"]
        for name, pod in world.pods.items()
        if name.startswith("high-") and "nodeName" in pod["spec"]
    ]


def _outcome(world: VirtualCluster, nodes: int, seconds: float) -> Outcome:
    on_nodes = _nodes_of_preemptors(world)
    left = sum(
        name.startswith("low-") and "deletionTimestamp" not in pod["metadata"]
        for name, pod in world.pods.items()
    )
    rejections = [
        name
        for name, _, reason, _ in world.notes.events
        if reason == "FailedScheduling" and name.startswith("high-")
    ]
    return Outcome(
        len(rejections),
        len(on_nodes),
        _LOW_PER_NODE * nodes - left,
        Counter(on_nodes),
        seconds,
    )
