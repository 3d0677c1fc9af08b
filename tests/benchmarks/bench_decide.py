"""`python -m tests.benchmarks.bench_decide`: decisions per second, in process, for each workload.

Counts the synchronous path from a parsed pod to its assumption in the cache, all nodes scored, in
CPU time of one core: what others do on the machine does not count.
"""

import argparse
import gc
import json
import random
import time
from typing import Any, Final

import numpy as np

from stellwerk.backend.cache import Cache
from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.models.node import parse_node
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.models.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_simulation.workloads import KINDS, node_name
from tests.benchmarks.workloads import make_node, make_pod

BOUND_PER_NODE: Final = 6
_ROOM_PER_NODE: Final = {"anti": 1}
"""How many pods of a kind a node takes; of the others by far more than are decided."""
_USUAL_ROOM: Final = 20


def make_framework(cache: Cache) -> Framework:
    """The default profile over a cache."""
    services = offline_services(cache.snapshot, IndexedObjectStore(), Nominator(), random.Random(0))
    profile = load_profile(dict(DEFAULT_PROFILE_MANIFEST), known_plugins())
    return Assembly(profile, services).framework


def fill(cache: Cache, nodes: int, pods: int) -> None:
    """Nodes, and basic pods bound round robin."""
    for index in range(nodes):
        cache.set_node(parse_node(make_node(index)))
    for index in range(pods):
        cache.set_pod(parse_pod(make_pod("basic", index, node_name(index % nodes))))
    cache.update_snapshot()


def decide(cache: Cache, framework: Framework, pod: PodInfo) -> str:
    """One decision, as the scheduling cycle makes it; returns the node's name."""
    snapshot = cache.update_snapshot()
    found = framework.filtering.find_feasible(pod)
    view = found.view(NodeView(snapshot))
    total = framework.scoring.prioritize(found.state, pod, view).total
    best = np.flatnonzero(total == total.max())
    chosen = int(best[framework.handle.random(len(best))])
    row = chosen if view.whole else int(view.row_numbers()[chosen])
    name = snapshot.node_at(row).name
    cache.assume_pod(pod.with_node(name))
    return name


def measure(kind: str, nodes: int, decisions: int, pause_seconds: float = 0.0) -> dict[str, Any]:
    """Decisions per second of one workload; small clusters are filled anew when they are full.

    With a pause before each decision it is seen what caches gone cold cost.
    """
    room = nodes * _ROOM_PER_NODE.get(kind, _USUAL_ROOM) * 9 // 10
    in_a_row = min(decisions, room * 4 // 5)
    made, seconds = 0, 0.0
    while made < decisions:
        seconds += _decide_in_a_row(kind, nodes, in_a_row, pause_seconds)
        made += in_a_row
    return {
        "kind": kind,
        "nodes": nodes,
        "bound": BOUND_PER_NODE * nodes,
        "decisions": made,
        "per_second": round(made / seconds),
        "microseconds": round(1e6 * seconds / made, 1),
    }


def _decide_in_a_row(kind: str, nodes: int, decisions: int, pause_seconds: float) -> float:
    """CPU seconds of so many decisions in a fresh cluster, after some that do not count."""
    warm_up = max(10, decisions // 20)
    cache = Cache()
    fill(cache, nodes, BOUND_PER_NODE * nodes)
    framework = make_framework(cache)
    pods = [parse_pod(make_pod(kind, index)) for index in range(decisions + warm_up)]
    for pod in pods[:warm_up]:
        decide(cache, framework, pod)
    gc.collect()
    gc.disable()
    started = time.process_time()
    for pod in pods[warm_up:]:
        if pause_seconds:
            time.sleep(pause_seconds)
        decide(cache, framework, pod)
    seconds = time.process_time() - started
    gc.enable()
    return seconds


def main() -> None:
    """Print one JSON line per workload and size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, action="append", help="default: 5000")
    parser.add_argument("--decisions", type=int, default=2000)
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all of them")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds before each decision")
    options = parser.parse_args()
    for nodes in options.nodes or [5000]:
        for kind in options.kind or KINDS:
            figures = measure(kind, nodes, options.decisions, options.pause)
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
