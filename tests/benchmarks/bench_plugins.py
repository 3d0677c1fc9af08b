"""What each plugin that people add costs a pod, against the default profile, in CPU time.

    python -m tests.benchmarks.bench_plugins --nodes 5000 --pods 300

In process, from a parsed pod to its assumption in the cache, every node scored. The pods are of
one spec, or each of its own with --unique; usage is measured on every node, and every node has a
topology of --zones zones; four namespaces have quotas.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import entry_points
from random import Random
from typing import Any

import numpy as np

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.world.decide import decide
from stellwerk.world.profiles import Profiles, RecordedRandom
from stellwerk.world.world import World, offline_profile, offline_queue
from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_kube.node import parse_node
from stellwerk_plugins.numa.plugin import NodeResourceTopologyMatch
from tests.support.builders import make_node
from tests.support.plugin_runs import make_plugin

GIB = 1 << 30
STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
WATCHED: JsonObject = {"watcherAddress": "http://watcher:2020", "maxAgeSeconds": 0}
MODELS = {"k0": 100.0, "k1": 2.0, "k2": 0.01}
PLUGINS: dict[str, JsonObject] = {
    "NodeResourcesAllocatable": {},
    "PodState": {},
    "TargetLoadPacking": WATCHED,
    "LoadVariationRiskBalancing": WATCHED,
    "LowRiskOverCommitment": WATCHED,
    "Peaks": {"WatcherAddress": "http://watcher:2020", "maxAgeSeconds": 0},
    "NodeResourceTopologyMatch": {"cacheResyncPeriodSeconds": 60},
    "CapacityScheduling": {},
}


def world_of(nodes: int, zones: int) -> World:
    profiles, nominator = Profiles(), Nominator()
    world = World(
        cache=Cache(),
        objects=IndexedObjectStore(),
        priority_classes=PriorityClasses(),
        nominator=nominator,
        queue=offline_queue(profiles, nominator),
        profiles=profiles,
        clock=VirtualClock(datetime(2026, 1, 1, tzinfo=UTC)),
        random=RecordedRandom(Random(0)),
    )
    for number in range(nodes):
        name = f"n{number}"
        node = make_node(name, cpu="64", memory="256Gi")
        node["status"]["capacity"] = node["status"]["allocatable"]
        world.cache.set_node(parse_node(node))
        world.objects.set("NodeResourceTopology", topology(name, zones))
    for name in ("default", "a", "b", "c"):
        bounds = {"min": {"cpu": "100k", "memory": "1Pi"}}
        metadata = {"namespace": name, "name": "quota"}
        world.objects.set("ElasticQuota", {"metadata": metadata, "spec": bounds})
    names = [f"n{number}" for number in range(nodes)]
    load = [float(number % 90) for number in range(nodes)]
    columns = ("cpuFirst", "cpuLast", "cpuMean", "cpuDeviation", "memoryMean", "memoryDeviation")
    usage = {"end": 0, "nodes": names, "known": [True] * nodes, "at": [None] * nodes}
    held = {"metadata": {"name": "load-watcher http://watcher:2020"}, **usage}
    world.objects.hold("NodeUsage", held | dict.fromkeys(columns, load))
    return world


def topology(name: str, zones: int) -> JsonObject:
    amounts = {"cpu": str(64 // zones), "memory": f"{256 // zones}Gi"}
    resources = [{"name": each, "available": amount} for each, amount in amounts.items()]
    return {
        "metadata": {"name": name},
        "zones": [
            {"name": f"node-{number}", "type": "Node", "resources": resources}
            for number in range(zones)
        ],
        "attributes": [{"name": "topologyManagerPolicy", "value": "single-numa-node"}],
    }


def pod_of(number: int, *, unique: bool) -> PodInfo:
    memory = str(GIB // 4 + (number if unique else 0))
    amounts = {"cpu": "1", "memory": memory}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    spec = {"containers": [container, {**container, "name": "d"}]}
    return parse_pod({"metadata": {"name": f"p{number}", "uid": f"p{number}"}, "spec": spec})


class Profile:
    """A profile that decides in a world of its own, and what each of its pods took."""

    def __init__(self, world: World, plugin: str) -> None:
        enabled = [{"name": plugin}] if plugin else []
        spec: JsonObject = {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": enabled}},
        }
        if plugin and PLUGINS[plugin]:
            models = {f"n{number}": MODELS for number in range(len(world.cache.snapshot.row_of))}
            args = {**PLUGINS[plugin], **({"NodePowerModel": models} if plugin == "Peaks" else {})}
            spec["pluginConfig"] = [{"name": plugin, "args": args}]
        loaded = load_profile({"metadata": {"name": "bench"}, "spec": spec}, known_plugins())
        self._world = world
        self._served = offline_profile(
            loaded, world.cache, world.objects, world.nominator, world.random, world.clock
        )
        self.microseconds: list[float] = []
        self._placed: list[str] = []

    def place(self, pod: PodInfo) -> None:
        cache = self._world.cache
        began = time.process_time()
        cache.update_snapshot()
        decision = decide(self._world, pod, self._served)
        if decision.node_name:
            cache.assume_pod(pod.with_node(decision.node_name))
        self.microseconds.append((time.process_time() - began) * 1e6)
        self._placed.append(pod.uid)

    def clear(self) -> None:
        for uid in self._placed:
            self._world.cache.forget_pod(uid)
        self._world.cache.update_snapshot()


def against_default(
    worlds: tuple[World, World], plugin: str, pods: int, *, unique: bool
) -> tuple[float, float]:
    """Microseconds of a pod under the default profile, and what the plugin adds, in turn."""
    default, profile = Profile(worlds[0], ""), Profile(worlds[1], plugin)
    for number in range(pods + 10):
        default.place(pod_of(number, unique=unique))
        profile.place(pod_of(number, unique=unique))
    pairs = list(zip(default.microseconds, profile.microseconds, strict=True))[10:]
    default.clear()
    profile.clear()
    return statistics.median(base for base, _ in pairs), statistics.median(
        more - base for base, more in pairs
    )


def zones_alone(nodes: int, pods: int = 60) -> None:
    """Print what filter and score of NodeResourceTopologyMatch take where nothing is kept."""
    print("| zones | strategy | filter, µs | score, µs |\n| --- | --- | --- | --- |")
    for zones in (2, 4, 8):
        world = world_of(nodes, zones)
        for strategy in STRATEGIES:
            args = {"scoringStrategy": {"type": strategy}}
            snapshot = world.cache.snapshot
            plugin = make_plugin(NodeResourceTopologyMatch, snapshot, args, objects=world.objects)
            world.cache.update_snapshot()
            times: list[tuple[float, float]] = []
            for number in range(pods):
                pod, view = pod_of(number, unique=True), NodeView(snapshot)
                began = time.process_time()
                plugin.filter(CycleState(), pod, view)
                between = time.process_time()
                plugin.score(CycleState(), pod, view)
                times.append((between - began, time.process_time() - between))
            filtering, scoring = (min(each) * 1e6 for each in zip(*times, strict=True))
            print(f"| {zones} | {strategy} | {filtering:.0f} | {scoring:.0f} |")


def load_alone(nodes: int, pods: int = 300) -> None:
    """Print what scores by load take: of a request that is new, and of one that was there."""
    print(
        "| plugin | a new request, µs | a known one, one node changed, µs | a new measurement, ms |"
    )
    print("| --- | --- | --- | --- |")
    models = {"NodePowerModel": {f"n{number}": MODELS for number in range(nodes)}}
    for name in (
        "TargetLoadPacking",
        "LoadVariationRiskBalancing",
        "LowRiskOverCommitment",
        "Peaks",
    ):
        world = world_of(nodes, 2)
        snapshot, held = world.cache.snapshot, list(world.objects.list("NodeUsage"))
        (point,) = entry_points(group="stellwerk.plugins", name=name)
        args = (
            WATCHED
            if name != "Peaks"
            else {"WatcherAddress": WATCHED["watcherAddress"], "maxAgeSeconds": 0, **models}
        )
        plugin: Any = make_plugin(point.load(), snapshot, args, objects=world.objects)
        for number in range(nodes):
            world.cache.assume_pod(pod_of(number, unique=False).with_node(f"n{number}"))
        world.cache.update_snapshot()
        views = NodeView(snapshot), NodeView(snapshot, np.array([nodes // 2]))
        times: tuple[list[float], ...] = ([], [], [])
        for number in range(pods):
            pod, state = pod_of(number, unique=True), CycleState()
            if number % 100 == 0:
                world.objects.hold("NodeUsage", dict(held[0]))
                seconds = cpu_seconds(plugin.score_key, state, pod)
                times[2].append((seconds + cpu_seconds(plugin.score, state, pod, views[0])) * 1e3)
            for which, view in enumerate(views):
                seconds = cpu_seconds(plugin.score_key, state, pod)
                times[which].append((seconds + cpu_seconds(plugin.score, state, pod, view)) * 1e6)
        new, known, measured = (min(each) for each in times)
        print(f"| {name} | {new:.0f} | {known:.0f} | {measured:.1f} |")


def cpu_seconds(call: Callable[..., object], *args: object) -> float:
    began = time.process_time()
    call(*args)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--zones", type=int, default=4)
    parser.add_argument("--unique", action="store_true", help="each pod has a spec of its own")
    parser.add_argument("--zones-alone", action="store_true", help="NUMA alignment by itself")
    parser.add_argument("--load-alone", action="store_true", help="scores by load by themselves")
    options = parser.parse_args()
    if options.load_alone:
        load_alone(options.nodes)
        return
    if options.zones_alone:
        zones_alone(options.nodes)
        return
    worlds = world_of(options.nodes, options.zones), world_of(options.nodes, options.zones)
    print("| profile | µs a pod by default | more |\n| --- | --- | --- |")
    for plugin in PLUGINS:
        base, more = against_default(worlds, plugin, options.pods, unique=options.unique)
        print(f"| {plugin} | {base:.0f} | {more:+.0f} |")


if __name__ == "__main__":
    main()
