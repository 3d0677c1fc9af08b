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
from stellwerk.framework.extension_points import FILTER, SCORE
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import DEFAULT_PROFILE_MANIFEST, load_profile
from stellwerk.snapshot.columns import ChangeCursor
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import parse_node
from stellwerk_simulation.workloads import KINDS, node_name
from tests.benchmarks.workloads import make_node, make_pod

BOUND_PER_NODE: Final = 6
_ROOM_PER_NODE: Final = {"anti": 1}
"""How many pods of a kind a node takes; of the others by far more than are decided."""
_USUAL_ROOM: Final = 20
_BATCH: Final = 100


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
    view = found.view()
    total = framework.scoring.prioritize(found.state, pod, view).total
    best = np.flatnonzero(total == total.max())
    chosen = int(best[framework.handle.random(len(best))])
    row = chosen if view.whole else int(view.row_numbers()[chosen])
    name = snapshot.node_at(row).name
    cache.assume_pod(pod.with_node(name))
    return name


class AlikeRun:
    """Basic pods decided as a run: totals are kept, and only changed rows are asked about again.

    PreFilter, PreScore, timings and columns are left out: it shows what a run could save at most.
    """

    def __init__(self, cache: Cache, framework: Framework, pod: PodInfo) -> None:
        """Everything that the first pod of the run finds out."""
        snapshot = cache.update_snapshot()
        found = framework.filtering.find_feasible(pod)
        scores = framework.scoring.prioritize(found.state, pod, found.view())
        if not scores.nodes.whole:
            raise RuntimeError("some node is full, so that a row is no position")
        self._state, self._total = found.state, scores.total
        by_name = {plugin.name: plugin for plugin in SCORE.among(framework.plugins)}
        of_all = [each for each in scores.by_plugin if isinstance(each.scored, int)]
        self._shared = sum(each.normalized_at(0) * each.weight for each in of_all)
        self._scorers = [
            (by_name[each.plugin], each.weight) for each in scores.by_plugin if each not in of_all
        ]
        self._fit = next(
            each for each in FILTER.among(framework.plugins) if each.name == "NodeResourcesFit"
        )
        self._cursor = ChangeCursor(snapshot.usage_changes)
        self._cursor.catch_up()

    def decide(self, cache: Cache, framework: Framework, pod: PodInfo) -> str:
        """One decision, as `decide` makes it."""
        snapshot, state = cache.update_snapshot(), self._state
        for row in self._cursor.advance() or ():
            nodes = NodeView(snapshot, np.array([row], np.intp))
            if self._fit.filter(state, pod, nodes).codes[0]:
                self._total[row] = -1
            else:
                raw = [int(each.score(state, pod, nodes)[0]) * w for each, w in self._scorers]
                self._total[row] = self._shared + sum(raw)
        best = (self._total == self._total[self._total.argmax()]).nonzero()[0]
        name = snapshot.node_at(int(best[framework.handle.random(len(best))])).name
        cache.assume_pod(pod.with_node(name))
        return name


def compare_runs(nodes: int, decisions: int) -> dict[str, Any]:
    """The quickest batch of alike basic pods, decided one by one and as a run, on equal clusters.

    Raises:
        RuntimeError: the two do not choose the same nodes.
    """
    figures: dict[str, Any] = {"kind": "basic", "nodes": nodes}
    chosen = []
    for title, as_run in (("microseconds", False), ("as_a_run", True)):
        cache = Cache()
        fill(cache, nodes, BOUND_PER_NODE * nodes)
        framework = make_framework(cache)
        pods = [parse_pod(make_pod("basic", index)) for index in range(decisions + _BATCH)]
        names = [decide(cache, framework, pod) for pod in pods[:_BATCH]]
        act = AlikeRun(cache, framework, pods[_BATCH]).decide if as_run else decide
        gc.collect()
        gc.disable()
        seconds = []
        for first in range(_BATCH, decisions + 1, _BATCH):
            started = time.process_time()
            names += [act(cache, framework, pod) for pod in pods[first : first + _BATCH]]
            seconds.append(time.process_time() - started)
        gc.enable()
        figures[title] = round(1e6 * min(seconds) / _BATCH, 1)
        chosen.append(names)
    if chosen[0] != chosen[1]:
        raise RuntimeError("the run chooses other nodes, so that the figures mean nothing")
    return figures


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
    parser.add_argument("--runs", action="store_true", help="what runs of alike pods could save")
    options = parser.parse_args()
    for nodes in options.nodes or [5000]:
        if options.runs:
            print(json.dumps(compare_runs(nodes, options.decisions)), flush=True)
            continue
        for kind in options.kind or KINDS:
            figures = measure(kind, nodes, options.decisions, options.pause)
            print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
