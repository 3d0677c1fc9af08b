"""What a shadow profile costs beside the decisions of the active one, in pairs of whole runs.

    python -m tests.benchmarks.bench_shadow --nodes 5000 --pods 1000 --pairs 3

CPU time of a pod's whole way in process, from its event to the one that confirms its binding,
without and with a shadow that packs and looks at one decision in ten. Nothing goes over sockets, so
that the share of the shadow is larger here than in a cluster.
"""

import argparse
import asyncio
import gc
import statistics
import time

from stellwerk_kube.clock import VirtualClock
from stellwerk_kube.json_values import JsonObject
from stellwerk_simulation.workloads import KINDS
from tests.benchmarks.workloads import make_node, make_pod
from tests.support.in_process import make_profile, quiet, running

_TURNS = 200
_WARM_UP = 50


def make_shadow(sample_one_in: int) -> JsonObject:
    shadow = make_profile("next", created=5, sampleOneIn=sample_one_in, shadowOf="stellwerk")
    shadow["spec"]["pluginConfig"] = [
        {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
    ]
    del shadow["spec"]["schedulerName"]
    return shadow


async def way(kind: str, nodes: int, pods: int, sample_one_in: int) -> float:
    """CPU microseconds a pod; `sample_one_in` 0: without a shadow."""
    async with running(VirtualClock()) as world:
        world.apply(make_profile("stellwerk"))
        if sample_one_in:
            world.apply(make_shadow(sample_one_in))
        world.apply(*({"kind": "Node", **make_node(index)} for index in range(nodes)))
        manifests = [_posted(kind, index) for index in range(pods + _WARM_UP)]
        world.apply(*manifests[:_WARM_UP])
        await quiet(_TURNS)
        gc.collect()
        gc.freeze()
        gc.disable()
        began = time.process_time()
        for first in range(_WARM_UP, len(manifests), 50):
            world.apply(*manifests[first : first + 50])
            await quiet(_TURNS)
        took = time.process_time() - began
        gc.enable()
        gc.unfreeze()
        served = world.profiles.served["stellwerk"]
        assert served.activity.scheduled_pods == len(manifests), "every pod has a node"
        if sample_one_in:
            (shadow,) = world.operator.loader.shadows.by_name.values()
            assert shadow.compared == len(manifests) // sample_one_in
        return 1e6 * took / pods


def _posted(kind: str, index: int) -> JsonObject:
    pod = make_pod(kind, index)
    spec = {**pod["spec"], "schedulerName": "stellwerk"}
    return {"apiVersion": "v1", **pod, "kind": "Pod", "spec": spec}


async def main() -> None:
    """Measure and print a line for each workload."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--one-in", type=int, default=10)
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all of them")
    options = parser.parse_args()
    for kind in options.kind or KINDS:
        found: dict[int, list[float]] = {0: [], options.one_in: []}
        for _ in range(options.pairs):
            for sample_one_in, runs in found.items():
                runs.append(await way(kind, options.nodes, options.pods, sample_one_in))
        without, beside = (statistics.median(runs) for runs in found.values())
        share = 100 * (1 - without / beside)
        print(
            f"{kind}: {without:.0f} µs, with a shadow {beside:.0f} µs: {share:.1f} % of throughput"
        )


if __name__ == "__main__":
    asyncio.run(main())
