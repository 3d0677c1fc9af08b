"""Decisions per second, in process: parse, filter, score, choose, assume, for each workload.

Run by `make bench-decide`. Counts the synchronous path from a parsed pod to its assumption in the
cache, all nodes scored, in CPU time of one core: what others do on the machine does not count.
"""

import argparse
import gc
import json
import random
import time

import numpy as np

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import ObjectStore
from stellwerk.framework.handle import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.snapshot.node_view import NodeView
from tests.benchmarks.workloads import KINDS, make_node, make_pod


def make_framework(cache: Cache) -> Framework:
    """The default profile over a cache."""
    services = offline_services(cache.snapshot, ObjectStore(), Nominator(), random.Random(0))
    profile = load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins())
    return Assembly(profile, services).framework


def fill(cache: Cache, nodes: int, pods: int) -> None:
    """Nodes, and basic pods bound round robin."""
    for index in range(nodes):
        cache.set_node(parse_node(make_node(index)))
    for index in range(pods):
        cache.set_pod(parse_pod(make_pod("basic", index, f"node-{index % nodes:05d}")))
    cache.update_snapshot()


def decide(cache: Cache, framework: Framework, pod: PodInfo) -> str:
    """One decision, as the scheduling cycle makes it; returns the node's name."""
    snapshot = cache.update_snapshot()
    found = framework.find_feasible(pod)
    view = found.view(NodeView(snapshot))
    total = framework.prioritize(found.state, pod, view).total
    best = np.flatnonzero(total == total.max())
    chosen = int(best[framework.handle.random(len(best))])
    row = chosen if view.whole else int(view.row_numbers()[chosen])
    name = snapshot.node_at(row).name
    cache.assume_pod(pod.with_node(name))
    return name


def measure(kind: str, nodes: int, bound: int, decisions: int) -> dict[str, object]:
    """Decisions per second of one workload, after a warm-up."""
    cache = Cache()
    fill(cache, nodes, bound)
    framework = make_framework(cache)
    warm_up = max(20, decisions // 20)
    pods = [parse_pod(make_pod(kind, index)) for index in range(decisions + warm_up)]
    for pod in pods[:warm_up]:
        decide(cache, framework, pod)
    gc.collect()
    gc.disable()
    started = time.process_time()
    for pod in pods[warm_up:]:
        decide(cache, framework, pod)
    seconds = time.process_time() - started
    gc.enable()
    return {
        "kind": kind,
        "nodes": nodes,
        "bound": bound,
        "decisions": decisions,
        "per_second": round(decisions / seconds),
        "microseconds": round(1e6 * seconds / decisions, 1),
    }


def main() -> None:
    """Print one JSON line per workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--bound", type=int, default=30000, help="pods on nodes before")
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all of them")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        print(
            json.dumps(measure(kind, options.nodes, options.bound, options.decisions)), flush=True
        )


if __name__ == "__main__":
    main()
