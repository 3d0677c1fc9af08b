"""The search for a large claim on one node: `python -m tests.benchmarks.bench_device_search`.

Claims for 1 to 32 devices in up to 8 requests on nodes with 1 to 128 devices of few kinds, without
a constraint and with each of the two. CPU time of this process, compiled selectors given, without
the collection of garbage; a search that takes too many steps is ended, as in a scheduling attempt.
"""

import gc
import time
from random import Random

from stellwerk.plugins.dynamic_resources.allocator import FilterTimeoutError
from stellwerk.plugins.dynamic_resources.node_verdicts import (
    _STEPS_OF_ONE_NODE as STEPS_OF_ONE_NODE,
)
from stellwerk_kube.json_values import JsonObject
from tests.properties.plugins.test_device_search import Node, device, large_claim

SEARCHES = 1000
TOO_FEW = ((17, 16), (20, 18), (32, 31), (32, 128))


def timed(node: Node, claim: JsonObject) -> tuple[float, bool]:
    """(milliseconds of CPU time, the best of three; whether the search came to its end)."""
    best_seconds, ended = float("inf"), True
    for _ in range(3):
        began_seconds = time.process_time()
        try:
            node.search([claim], STEPS_OF_ONE_NODE)
        except FilterTimeoutError:
            ended = False
        best_seconds = min(best_seconds, time.process_time() - began_seconds)
    return best_seconds * 1000, ended


def main() -> None:
    gc.disable()
    for wanted, there in TOO_FEW:
        node = Node([{"name": f"d{number}"} for number in range(there)])
        exactly = {"deviceClassName": "any", "count": wanted}
        claim = {"spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}}}
        milliseconds, ended = timed(node, claim)
        print(f"{wanted} of {there}: {milliseconds:.2f} ms{'' if ended else ', given up'}")
    for constraint in ("", "matchAttribute", "distinctAttribute"):
        results = []
        for seed in range(SEARCHES):
            rng = Random(seed)
            devices = [device(rng, f"d{n}", complete=True) for n in range(rng.randint(1, 128))]
            results.append(timed(Node(devices), large_claim(rng, constraint)))
        times = sorted(milliseconds for milliseconds, _ in results)
        given_up = sum(not ended for _, ended in results)
        print(
            f"{constraint or 'no constraint'}: median {times[SEARCHES // 2]:.2f} ms, "
            f"99 % within {times[SEARCHES * 99 // 100]:.2f} ms, longest {times[-1]:.2f} ms, "
            f"{given_up} of {SEARCHES} given up"
        )


if __name__ == "__main__":
    main()
