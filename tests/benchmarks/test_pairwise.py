"""What PodTopologySpread and InterPodAffinity cost per decision; `pytest -m benchmark -s`.

5,000 nodes in three zones, 30,000 bound pods. Between decisions one pod is bound, as the scheduler
does it, so that no count stays the same; its cost (update_snapshot) is shown apart.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from stellwerk.backend.cache import Cache
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.inter_pod_affinity import InterPodAffinity
from stellwerk.plugins.pod_topology_spread import PodTopologySpread
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.node import parse_node
from tests.support.builders import make_node, make_pod
from tests.support.plugin_runs import make_plugin

pytestmark = pytest.mark.benchmark

NODES, BOUND, DECISIONS = 5_000, 30_000, 300
ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
BUDGET_MICROSECONDS = 120


def _spread(key: str, action: str, labels: Mapping[str, str]) -> dict[str, Any]:
    selector = {"matchLabels": dict(labels)}
    return {
        "topologySpreadConstraints": [
            {
                "maxSkew": 5,
                "topologyKey": key,
                "whenUnsatisfiable": action,
                "labelSelector": selector,
            }
        ]
    }


def _affinity(side: str, when: str, key: str, labels: Mapping[str, str]) -> dict[str, Any]:
    term: dict[str, Any] = {"labelSelector": {"matchLabels": dict(labels)}, "topologyKey": key}
    if when == PREFERRED:
        term = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {side: {when: [term]}}}


Kind = Callable[[Mapping[str, str]], dict[str, Any]]

KINDS: dict[str, Kind] = {
    "basic": lambda _: {},
    "spread by zone": lambda own: _spread(ZONE, "DoNotSchedule", own),
    "spread by hostname": lambda own: _spread(HOSTNAME, "DoNotSchedule", own),
    "preferred spread by zone": lambda own: _spread(ZONE, "ScheduleAnyway", own),
    "preferred spread by hostname": lambda own: _spread(HOSTNAME, "ScheduleAnyway", own),
    "anti-affinity by hostname": lambda own: _affinity("podAntiAffinity", REQUIRED, HOSTNAME, own),
    "affinity by zone": lambda own: _affinity("podAffinity", REQUIRED, ZONE, own),
    "preferred anti-affinity": lambda own: _affinity("podAntiAffinity", PREFERRED, HOSTNAME, own),
    "preferred affinity by zone": lambda own: _affinity("podAffinity", PREFERRED, ZONE, own),
}


def _labels(index: int, *, unique: bool) -> dict[str, str]:
    return {"app": f"app-{index}" if unique else "green", "tier": f"tier-{index % 7}"}


def _pod(kind: Kind, index: int, *, unique: bool, node: str | None = None) -> PodInfo:
    labels = _labels(index, unique=unique)
    selected = {"app": labels["app"]}
    return parse_pod(make_pod(f"p{index}", labels=labels, node_name=node, **kind(selected)))


def _cluster(kind: Kind, *, unique: bool) -> Cache:
    cache = Cache()
    for index in range(NODES):
        cache.set_node(parse_node(make_node(f"n{index}", zone=f"z{index % 3}")))
    for index in range(BOUND):
        # The group itself is small enough to leave room: one pod in ten nodes.
        own_kind = kind if unique or index % 60 == 0 else KINDS["basic"]
        pod = _pod(own_kind, index, unique=unique or index % 60 != 0, node=f"n{index % NODES}")
        cache.set_pod(pod)
    cache.update_snapshot()
    return cache


@pytest.mark.parametrize("unique", [False, True], ids=["one group", "every pod its own group"])
@pytest.mark.parametrize("kind", KINDS)
def test_microseconds_per_decision(kind: str, *, unique: bool) -> None:
    cache = _cluster(KINDS[kind], unique=unique)
    snapshot = cache.snapshot
    plugins = (make_plugin(PodTopologySpread, snapshot), make_plugin(InterPodAffinity, snapshot))
    rows = np.arange(snapshot.size)
    rows = rows[rows != NODES // 2]  # Not all nodes are feasible.
    decisions, updates = [], []
    for index in range(BOUND, BOUND + DECISIONS):
        pod = _pod(KINDS[kind], index, unique=unique)
        started = time.perf_counter()
        for plugin in plugins:
            state, everything = CycleState(), NodeView(snapshot)
            if not plugin.pre_filter(state, pod, everything).status.skip:
                plugin.filter(state, pod, everything)
            feasible = NodeView(snapshot, rows)
            if not plugin.pre_score(state, pod, feasible).skip:
                plugin.normalize(state, pod, plugin.score(state, pod, feasible))
        decided = time.perf_counter()
        cache.assume_pod(pod.with_node(f"n{index * 7 % NODES}"))
        cache.update_snapshot()
        decisions.append(decided - started)
        updates.append(time.perf_counter() - decided)
    decision, update = (statistics.median(times) * 1e6 for times in (decisions, updates))
    print(f"\n{kind:30} {decision:7.1f} µs a decision, {update:6.1f} µs to bind and update")
    assert decision < 3 * BUDGET_MICROSECONDS, "far above the budget, machine noise aside"
