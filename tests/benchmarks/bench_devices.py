"""Decisions a second for pods with resource claims: `python -m tests.benchmarks.bench_devices`.

5,000 nodes with 8 devices each, a new claim for every pod; each decision is reserved, so that the
next one has to look at a changed node. CPU time of this process.
"""

import argparse
import random
import resource
import time

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.cycle_state import CycleState
from stellwerk.framework.offline import offline_services
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import parse_pod
from stellwerk.models.profile import load_profile
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.snapshot.node_view import NodeView
from tests.support.builders import make_cache, make_node, make_pod

DRIVER = "gpu.example.com"
LARGE = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'
PROFILE = {"metadata": {"name": "p"}, "spec": {"schedulerName": "s"}}


def slice_of(node: str, devices: int) -> JsonObject:
    return {
        "metadata": {"name": f"{node}-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"gpu-{number}",
                    "attributes": {
                        "uuid": {"string": f"{node}-{number}"},
                        "model": {"string": "large" if number % 2 else "small"},
                        "group": {"int": number // 4},
                        "driverVersion": {"version": "1.2.3"},
                    },
                    "capacity": {"memory": {"value": "80Gi"}},
                }
                for number in range(devices)
            ],
        },
    }


def claim_of(name: str, *, linked: bool) -> JsonObject:
    exactly: JsonObject = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 4 if linked else 1,
        "selectors": [{"cel": {"expression": LARGE}}],
    }
    devices: JsonObject = {"requests": [{"name": "r", "exactly": exactly}]}
    if linked:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/group"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": devices},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--pods", type=int, default=500)
    options = parser.parse_args()
    names = [f"node-{number}" for number in range(options.nodes)]
    for linked in (False, True):
        cache, objects = make_cache([make_node(name) for name in names]), IndexedObjectStore()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name in names:
            objects.set("ResourceSlice", slice_of(name, options.devices))
        selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
        objects.set("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
        services = offline_services(cache.snapshot, objects, Nominator(), random.Random(1))
        loaded = load_profile(PROFILE, known_plugins())
        framework = Assembly(loaded, services).framework
        seconds = []
        for number in range(options.pods):
            claim = f"claim-{number}"
            objects.set("ResourceClaim", claim_of(claim, linked=linked))
            reference = {"name": "c", "resourceClaimName": claim}
            pod = parse_pod(make_pod(f"pod-{number}", resourceClaims=[reference]))
            began = time.process_time()
            state = CycleState()
            found = framework.filtering.find_feasible(pod, state)
            view = found.view(NodeView(cache.snapshot))
            scores = framework.scoring.prioritize(state, pod, view)
            row = int(view.row_numbers()[int(scores.best_positions()[0])])
            status = framework.binding.reserve(state, pod, cache.snapshot.node_at(row).name)
            seconds.append(time.process_time() - began)
            assert status.ok, status
        after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        rest = seconds[1:]
        kind = "four devices of one group" if linked else "one device, two selectors"
        grown = (after - before) * 1024 / (options.nodes * options.devices)
        print(
            f"{kind}: first {1000 * seconds[0]:.0f} ms, then {len(rest) / sum(rest):.0f} a second; "
            f"{grown:.0f} bytes a device at the peak"
        )


if __name__ == "__main__":
    main()
