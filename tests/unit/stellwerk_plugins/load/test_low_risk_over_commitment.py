"""LowRiskOverCommitment on many nodes at once, and on those of which a pod came."""

from random import Random
from typing import Any

import numpy as np

from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.types import CycleState
from stellwerk.models.pod import parse_pod
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_plugins.load.low_risk_over_commitment import LowRiskOverCommitment
from stellwerk_plugins.load.node_usage import COLUMNS
from tests.support.builders import make_cache, make_node
from tests.support.plugin_runs import make_plugin

NODES = 200


def pod(name: str, cpu: int, limit: int) -> Any:
    resources = {
        "requests": {"cpu": str(cpu), "memory": f"{cpu}Gi"},
        "limits": {"cpu": str(limit), "memory": f"{limit}Gi"},
    }
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return parse_pod({"metadata": {"name": name, "uid": name}, "spec": spec})


def test_a_row_that_changed_is_reckoned_as_all_rows_at_once_are() -> None:
    drawn = Random(5)
    names = [f"n{number}" for number in range(NODES)]
    cache = make_cache([make_node(name, cpu="8", memory="8Gi") for name in names])
    objects = IndexedObjectStore()
    measured = [drawn.choice([None, 0, 100, drawn.uniform(0, 110)]) for _ in names]
    varying = [
        None if mean is None else drawn.choice([0, drawn.uniform(0, 60)]) for mean in measured
    ]
    columns = {name: varying if "Deviation" in name else measured for name in COLUMNS}
    known = [drawn.random() < 0.9 for _ in names]
    usage = {"end": 0, "nodes": names, "known": known, "at": [None] * NODES, **columns}
    held = {"metadata": {"name": "load-watcher http://watcher:2020"}, **usage}
    objects.hold("NodeUsage", held)
    args = {"watcherAddress": "http://watcher:2020", "maxAgeSeconds": 0}
    plugin = make_plugin(LowRiskOverCommitment, cache.snapshot, args, objects=objects)
    cache.update_snapshot()
    asking = pod("asking", 1, 3)
    for number, name in enumerate(names):
        cache.assume_pod(pod(f"p{number}", number % 5, number % 11).with_node(name))
        cache.update_snapshot()
        plugin.score(CycleState(), asking, NodeView(cache.snapshot))  # this row alone has changed
    one_by_one = plugin.score(CycleState(), asking, NodeView(cache.snapshot))
    objects.hold("NodeUsage", dict(held))
    at_once = plugin.score(CycleState(), asking, NodeView(cache.snapshot))
    assert np.array_equal(one_by_one, at_once)
    assert len(set(at_once.tolist())) > 10
