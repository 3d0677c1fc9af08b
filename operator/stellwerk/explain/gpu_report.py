"""What is free of GPUs that pods share, node by node, for a pod that gets none; lines for people.

`report` asks for it, tables print it. Invariant: what is free is what GpuShare filtered by, and a
line says nothing that is not in the field `gpus` of the answer.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from stellwerk.explain.findings import Findings
from stellwerk.models.gpu import WHOLE, GpuRequest, gpu_request
from stellwerk.models.json_values import JsonObject
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.devices import GpuDevices
from stellwerk.plugins.gpu_share import GpuShare
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_NODES: Final = 20
"""So many nodes are named, those first that lack least."""
_LINES: Final = 5


def gpu_report(snapshot: Snapshot, pod: PodInfo, found: Findings) -> JsonObject:
    """The field `gpus` of a pod that fits nowhere, for want of GPUs among others; else none."""
    request, result = gpu_request(pod.amounts.requests), found.results.get(GpuShare.name)
    if request is None or result is None or not result.codes.any() or found.fits.any():
        return {}
    nodes, book = NodeView(snapshot, found.rows), snapshot.book(GpuDevices)
    counts, free = book.device_count(nodes), book.free_milli(nodes)
    if not counts.any():
        return {}
    enough = (free >= request.milli).sum(axis=1)
    others = found.fails - (result.codes != 0)
    # Those that nothing else turns away, then those that come nearest to what is asked.
    order = np.lexsort((-free.max(axis=1), -enough, others > 0, counts == 0))[:_NODES].tolist()
    names = snapshot.names(found.rows[order].tolist())
    return {
        "gpus": {
            "devices": request.devices,
            "milliOfEach": request.milli,
            "nodesWithGpus": int((counts > 0).sum()),
            "idleMilli": int(free.sum()),
            "mostFreeMilli": int(free.max()),
            "wholeDevicesIdle": int((free == WHOLE).sum()),
            "nearest": [
                {
                    "node": name,
                    "freeMilli": free[at, : counts[at]].tolist(),
                    "rejectedByOthers": bool(others[at]),
                }
                for name, at in zip(names, order, strict=True)
                if counts[at]
            ],
        }
    }


def held_gpus(pod: PodInfo) -> JsonObject:
    """The field `gpus` of a pod that has a node: the numbers of its devices there."""
    request = gpu_request(pod.amounts.requests)
    if request is None or not pod.gpu_devices:
        return {}
    held = {"devices": request.devices, "milliOfEach": request.milli}
    return {"gpus": held | {"numbers": list(pod.gpu_devices)}}


def gpu_lines(gpus: Mapping[str, Any]) -> Iterator[str]:
    """What the pod asks for or holds, and what is free on the nearest nodes."""
    asked = _amount(GpuRequest(gpus["devices"], gpus["milliOfEach"]))
    if "numbers" in gpus:
        numbers = ", ".join(map(str, gpus["numbers"]))
        yield f"It holds {asked}: number {numbers}."
        return
    yield (
        f"It asks for {asked}. {_nodes(gpus['nodesWithGpus'])} with GPUs: {gpus['idleMilli']} "
        f"thousandths are idle together, at most {gpus['mostFreeMilli']} of one device, and "
        f"{gpus['wholeDevicesIdle']} whole devices."
    )
    for each in gpus["nearest"][:_LINES]:
        other = " (other plugins turn it away, too)" if each["rejectedByOthers"] else ""
        free = ", ".join(map(str, each["freeMilli"]))
        yield f"  {each['node']}: {free} free of its devices{other}"


def _amount(request: GpuRequest) -> str:
    if request.shares:
        return f"{request.milli} thousandths of one GPU"
    return "one whole GPU" if request.devices == 1 else f"{request.devices} whole GPUs"


def _nodes(number: int) -> str:
    return "1 node" if number == 1 else f"{number} nodes"
