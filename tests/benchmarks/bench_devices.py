"""Decisions a second for pods with resource claims: `python -m tests.benchmarks.bench_devices`.

5,000 nodes with 8 devices each, a new claim for every pod; each decision is reserved, so that the
next one has to look at a changed node. CPU time of this process; the longest stretch is what the
first decision holds the loop for, as the scheduling coroutine divides it. Memory is what slices and
the first decision add to the process; `--kind` chooses what pods ask for.
"""

import argparse
import gc
import random
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stellwerk.backend.nominator import Nominator
from stellwerk.backend.object_store import IndexedObjectStore
from stellwerk.framework.offline import offline_services
from stellwerk.framework.runtime import Framework
from stellwerk.framework.types import CycleState
from stellwerk.garbage import collect_seldom
from stellwerk.models.pod import PodInfo, parse_pod
from stellwerk.plugins.assembly import Assembly
from stellwerk.plugins.registry import known_plugins
from stellwerk.profiles.spec.profile import load_profile
from stellwerk.scheduler.time_slice import FILTER_SLICE_SECONDS, TIME_SLICE_SECONDS
from stellwerk.snapshot.snapshot import Snapshot
from stellwerk_kube.json_values import JsonObject
from tests.support.builders import make_cache, make_node, make_pod

DRIVER = "gpu.example.com"
LARGE = f'device.capacity["{DRIVER}"].memory.isGreaterThan(quantity("40Gi"))'
NUMBERED = f'device.attributes["{DRIVER}"].uuid.endsWith("-7")'
PROFILE = {"metadata": {"name": "p"}, "spec": {"schedulerName": "s"}}


@dataclass(frozen=True)
class Kind:
    """What every pod asks for."""

    name: str
    count: int = 1
    selector: str = LARGE
    linked: bool = False


KINDS = (
    Kind("one device, two selectors"),
    Kind("four devices of one group", count=4, linked=True),
    Kind("one device, by a selector that reads what no two devices share", selector=NUMBERED),
)


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
                        "uuid": {"string": f"GPU-5b0e3a52-7f2c-4f64-{node}-{number}"},
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


def claim_of(name: str, kind: Kind) -> JsonObject:
    exactly: JsonObject = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": kind.count,
        "selectors": [{"cel": {"expression": kind.selector}}],
    }
    devices: JsonObject = {"requests": [{"name": "r", "exactly": exactly}]}
    if kind.linked:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/group"}]
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"devices": devices},
    }


def resident_bytes() -> int:
    """What this process has in memory now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


def stretches(framework: Framework, snapshot: Snapshot, pod: PodInfo) -> Iterator[float]:
    """Decide and reserve for one pod as the scheduling coroutine does; yields CPU seconds."""
    now = time.process_time
    while True:
        began, state = now(), CycleState()
        state.slice_seconds = FILTER_SLICE_SECONDS
        found = framework.filtering.find_feasible(pod, state)
        if state.unfinished is None:
            break
        yield now() - began
        yield from in_slices(state.unfinished, now)
    view = found.view()
    scores = framework.scoring.prioritize(state, pod, view)
    row = int(view.row_numbers()[int(scores.best_positions()[0])])
    status = framework.binding.reserve(state, pod, snapshot.node_at(row).name)
    assert status.ok, status
    yield now() - began


def in_slices(work: Iterator[None], now: Callable[[], float]) -> Iterator[float]:
    began = now()
    for _ in work:
        if now() - began > TIME_SLICE_SECONDS:
            yield now() - began
            began = now()
    yield now() - began


def measure(kind: Kind, nodes: int, devices: int, pods: int) -> str:
    names = [f"node-{number}" for number in range(nodes)]
    cache, objects = make_cache([make_node(name) for name in names]), IndexedObjectStore()
    before = resident_bytes()
    for name in names:
        objects.set("ResourceSlice", slice_of(name, devices))
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    objects.set("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})
    services = offline_services(cache.snapshot, objects, Nominator(), random.Random(1))
    services = replace(services, now_seconds=time.process_time)
    framework = Assembly(load_profile(PROFILE, known_plugins()), services).framework
    seconds: list[float] = []
    longest: list[float] = []
    grown = 0
    for number in range(pods):
        claim = f"claim-{number}"
        objects.set("ResourceClaim", claim_of(claim, kind))
        reference = {"name": "c", "resourceClaimName": claim}
        pod = parse_pod(make_pod(f"pod-{number}", resourceClaims=[reference]))
        taken = list(stretches(framework, cache.snapshot, pod))
        seconds.append(sum(taken))
        longest.append(max(taken))
        if not number:
            grown = resident_bytes() - before
    rest = seconds[1:]
    return (
        f"{kind.name}: the first takes {1000 * seconds[0]:.0f} ms, at most {1000 * longest[0]:.0f} "
        f"in one stretch; then {len(rest) / sum(rest):.0f} a second; "
        f"{grown / (nodes * devices):.0f} bytes a device"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--devices", type=int, default=8)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--kind", type=int, choices=range(1, len(KINDS) + 1), default=1)
    options = parser.parse_args()
    collect_seldom()
    for kind in KINDS:
        measure(kind, 16, options.devices, 4)  # what has to be imported
    number = options.kind - 1
    print(measure(KINDS[number], options.nodes, options.devices, options.pods))


if __name__ == "__main__":
    main()
