"""What each plugin that people add costs a pod, against the default profile, in CPU time.

    python -m tests.benchmarks.bench_plugins --nodes 5000 --pods 300

In process, from a parsed pod to its assumption in the cache, every node scored. The pods are of
one spec, or each of its own with --unique; usage is measured on every node, and every node has a
topology of --zones zones; four namespaces have quotas.
"""

import argparse
import statistics
import time
from datetime import UTC, datetime
from random import Random
from typing import Any

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.backend.priority_classes import PriorityClasses
from stellwerk.clock import VirtualClock
from stellwerk.framework.types import CycleState
from stellwerk.models.json_values import JsonObject
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.profile import load_profile
from stellwerk.plugins.registry import known_plugins
from stellwerk.snapshot.snapshot import NodeView
from stellwerk.world.decide import decide
from stellwerk.world.profiles import Profiles, RecordedRandom
from stellwerk.world.world import World, offline_profile, offline_queue
from stellwerk_plugins.numa.plugin import NodeResourceTopologyMatch
from tests.support.builders import make_node
from tests.support.plugin_runs import make_plugin

GIB = 1 << 30
STRATEGIES = ("LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes")
WATCHED: JsonObject = {"watcherAddress": "http://watcher:2020", "maxAgeSeconds": 0}
MODELS = {"k0": 100.0, "k1": 2.0, "k2": 0.01}
PLUGINS: dict[str, JsonObject] = {
    "": {},
    "NodeResourcesAllocatable": {},
    "PodState": {},
    "TargetLoadPacking": WATCHED,
    "LoadVariationRiskBalancing": WATCHED,
    "LowRiskOverCommitment": WATCHED,
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


def microseconds(world: World, plugin: str, pods: int, *, unique: bool) -> list[float]:
    enabled = [{"name": plugin}] if plugin else []
    spec: JsonObject = {
        "schedulerName": "default-scheduler",
        "plugins": {"multiPoint": {"enabled": enabled}},
    }
    if plugin and PLUGINS[plugin]:
        spec["pluginConfig"] = [{"name": plugin, "args": PLUGINS[plugin]}]
    loaded = load_profile({"metadata": {"name": "bench"}, "spec": spec}, known_plugins())
    served = offline_profile(
        loaded, world.cache, world.objects, world.nominator, world.random, world.clock
    )
    times, placed = [], []
    for number in range(pods + 1):
        pod = pod_of(number, unique=unique)
        began = time.process_time()
        world.cache.update_snapshot()
        decision = decide(world, pod, served)
        if decision.node_name:
            world.cache.assume_pod(pod.with_node(decision.node_name))
        times.append((time.process_time() - began) * 1e6)
        placed.append(pod.uid)
    for uid in placed:
        world.cache.forget_pod(uid)
    world.cache.update_snapshot()
    return times[1:]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=300)
    parser.add_argument("--zones", type=int, default=4)
    parser.add_argument("--unique", action="store_true", help="each pod has a spec of its own")
    parser.add_argument("--zones-alone", action="store_true", help="NUMA alignment by itself")
    options = parser.parse_args()
    if options.zones_alone:
        zones_alone(options.nodes)
        return
    world = world_of(options.nodes, options.zones)
    base = 0.0
    results: list[tuple[str, Any]] = []
    for plugin in PLUGINS:
        cost = statistics.median(microseconds(world, plugin, options.pods, unique=options.unique))
        base = base or cost
        results.append((plugin or "the default profile", cost))
    print("| profile | µs a pod | more than the default |\n| --- | --- | --- |")
    for name, cost in results:
        print(f"| {name} | {cost:.0f} | {cost - base:+.0f} |")


if __name__ == "__main__":
    main()
