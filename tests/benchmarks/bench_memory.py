"""`python -m tests.benchmarks.bench_memory`: where the memory of a large cluster goes, by part.

Nodes and bound pods are listed as in `bench_scale`, and what is held afterwards is counted by the
module that asked for it: bytes a node, a pod, and a distinct spec with its label set. One JSON line
for each part.
"""

import argparse
import asyncio
import gc
import json
import tracemalloc
from collections import Counter
from collections.abc import Mapping
from typing import Final

from stellwerk_kube.json_values import JsonObject
from tests.benchmarks.bench_scale import Cluster, Size

_PARTS: Final[Mapping[str, str]] = {
    "tests/benchmarks/": "texts of the API: names, uids, versions",
    "stellwerk_kube/node": "records of nodes",
    "stellwerk/models/": "records of pods, specs, label sets",
    "stellwerk/handlers/": "what deliveries know",
    "stellwerk/backend/": "the cache: maps, and usage of each node",
    "stellwerk/snapshot/": "the snapshot: columns and books",
    "numpy/": "the snapshot: columns and books",
    "stellwerk/": "all else",
}
"""Part of a path → what is asked for there; the first that fits."""


def _held() -> Counter[str]:
    """Bytes by part."""
    gc.collect()
    held: Counter[str] = Counter()
    for statistic in tracemalloc.take_snapshot().statistics("filename"):
        name = statistic.traceback[0].filename
        held[next((part for path, part in _PARTS.items() if path in name), "all else")] += (
            statistic.size
        )
    return held


async def _of(size: Size, kind: str) -> tuple[Counter[str], Counter[str]]:
    """Bytes by part that nodes take, and what bound pods of a workload take beside them."""
    cluster = Cluster(size, kind)
    tracemalloc.start()
    await cluster.list("Node")
    cluster.operator.world.cache.update_snapshot()
    nodes = _held()
    await cluster.list("Pod")
    cluster.operator.world.cache.update_snapshot()
    pods = _held()
    tracemalloc.stop()
    pods.subtract(nodes)
    return nodes, pods


def measure(nodes: int, pods: int) -> list[JsonObject]:
    """The rows of the table."""
    size = Size(nodes, pods, 0)
    of_nodes, of_pods = asyncio.run(_of(size, "basic"))
    _, of_unique = asyncio.run(_of(size, "unique"))
    parts = dict.fromkeys(_PARTS.values())
    rows: list[JsonObject] = [
        {
            "part": part,
            "node": round(of_nodes[part] / nodes),
            "pod": round(of_pods[part] / pods),
            "spec_and_label_set": round((of_unique[part] - of_pods[part]) / pods),
        }
        for part in parts
    ]
    keys = ("node", "pod", "spec_and_label_set")
    return [*rows, {"part": "all"} | {key: sum(row[key] for row in rows) for key in keys}]


def main() -> None:
    """Print one JSON line per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000, help="all bound")
    options = parser.parse_args()
    for row in measure(options.nodes, options.pods):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
