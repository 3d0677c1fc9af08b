"""What unschedulable pods cost: 10,000 of 500 specs while the cluster changes around them.

The plugins are the real ones. A change is reported to the queue, and the pods that it moves are
popped and rejected again, as the scheduling coroutine would, without the decision itself.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import cycle, islice
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from stellwerk.backend.queued_pod import Place
from stellwerk.framework.events import Action, ClusterChange, Resource, node_update_actions
from stellwerk.framework.extension_points import ENQUEUE_EXTENSIONS
from stellwerk.plugins.node_affinity import NodeAffinity
from stellwerk.plugins.node_resources_fit import NodeResourcesFit
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.plugins.taint_toleration import TaintToleration
from stellwerk_kube.node import NodeInfo, parse_node
from tests.support.builders import make_node, pod_info
from tests.support.plugin_runs import make_plugin
from tests.support.queue_driver import Policy, QueueDriver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from stellwerk.models.pod import PodInfo

pytestmark = pytest.mark.benchmark

PODS, SPECS, NODES = 10_000, 500, 1_000
PLUGINS = (NodeResourcesFit, NodeAffinity, TaintToleration, PodTopologySpread)
ZONE = "topology.kubernetes.io/zone"


def rejected_pod(number: int) -> PodInfo:
    """A pod of one of 500 specs, which no node takes for four reasons."""
    spec = number % SPECS
    app = {"app": f"app-{spec}"}
    constraint: dict[str, Any] = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": app},
    }
    return pod_info(
        f"p{number}",
        cpu=f"{100_000 + spec}m",
        labels=app,
        nodeSelector={"pool": f"pool-{spec}"},
        topologySpreadConstraints=[constraint],
    )


def full_queue(*, several_plugins: bool) -> QueueDriver:
    plugins = [make_plugin(plugin) for plugin in PLUGINS]
    registered = {
        plugin.name: plugin.events_to_register()
        for plugin in plugins
        if ENQUEUE_EXTENSIONS.implemented_by(plugin)
    }
    driver = QueueDriver(Policy(registered=registered))
    names = [plugin.name for plugin in plugins]
    for number in range(PODS):
        driver.reject(
            rejected_pod(number), *(names if several_plugins else [names[number % SPECS % 4]])
        )
    return driver


def changes(nodes: list[NodeInfo], random: Random) -> Iterator[tuple[NodeInfo, NodeInfo]]:
    """A second of a large cluster: 900 heartbeats, 50 label changes, 50 allocatable growths."""
    kinds = ["heartbeat"] * 18 + ["label", "growth"]
    for number, kind in enumerate(islice(cycle(kinds), 1_000)):
        row = random.randrange(len(nodes))
        old = nodes[row]
        new = replace(old, resource_version=str(number))
        if kind == "label":
            new = replace(new, labels={**old.labels, "revision": str(number)})
        elif kind == "growth":
            cpu = old.allocatable["cpu"] + 1
            new = replace(new, allocatable={**old.allocatable, "cpu": cpu})
        nodes[row] = new
        yield old, new


@pytest.mark.parametrize("several_plugins", [False, True], ids=["one plugin", "all four"])
def test_a_second_of_node_updates_costs_a_fraction_of_a_second(*, several_plugins: bool) -> None:
    driver = full_queue(several_plugins=several_plugins)
    nodes = [parse_node(make_node(f"n{number}", zone=f"z{number % 3}")) for number in range(NODES)]
    calls_before, worst = sum(driver.observed.hints.values()), 0.0
    started = time.process_time()
    for old, new in changes(nodes, Random(1)):
        before = time.perf_counter()
        if not new.same_for_scheduling(old):
            for action in node_update_actions(old, new):
                driver.change(ClusterChange(Resource.NODE, action, old, new))
        worst = max(worst, time.perf_counter() - before)
    spent = time.process_time() - started
    calls = sum(driver.observed.hints.values()) - calls_before
    print(
        f"\n{PODS} pods, {SPECS} specs: 1,000 node updates took {spent * 1e3:.0f} ms "
        f"({calls} hints, slowest update {worst * 1e3:.1f} ms)"
    )
    assert calls <= 100 * SPECS * 2, "hints run per spec, not per pod"
    assert driver.queue.counted(Place.UNSCHEDULABLE) == PODS


def test_requeueing_and_rejecting_every_pod() -> None:
    driver = full_queue(several_plugins=True)
    names = [plugin.name for plugin in PLUGINS]
    driver.now += 60
    node = parse_node(make_node("new", cpu="200", labels={ZONE: "z9"}))
    started = time.process_time()
    driver.change(ClusterChange(Resource.NODE, Action.ADD, None, node))
    while driver.queue.backlog.work_off():
        pass
    moving = time.process_time() - started
    started, tried = time.process_time(), 0
    while (entry := driver.pop()) is not None:
        driver.fail(entry, *names)
        tried += 1
    attempts = time.process_time() - started
    print(
        f"\nwaking {tried} pods: {moving / tried * 1e6:.1f} µs a pod; "
        f"popping and giving back: {attempts / tried * 1e6:.1f} µs a pod"
    )
    assert tried == PODS


def test_a_pods_way_through_the_queue() -> None:
    driver = QueueDriver()
    pods = [rejected_pod(number) for number in range(PODS)]
    started = time.process_time()
    for pod in pods:
        driver.add(pod)
    while (entry := driver.pop()) is not None:
        driver.queue.done(entry.pod.uid)
        driver.queue.delete(entry.pod.uid)
    spent = time.process_time() - started
    print(f"\nadd, pop, done, delete: {spent / PODS * 1e6:.1f} µs a pod")
    assert len(driver.queue.entries) == 0
