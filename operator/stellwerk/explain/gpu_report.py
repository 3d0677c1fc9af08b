"""What is free of GPUs that pods share, node by node, for a pod that gets none.

`report` asks for it. Invariant: what is free is what GpuShare filtered by.
"""

from typing import Final

import numpy as np

from stellwerk.explain.findings import Findings
from stellwerk.models.answers.gpus import GpusOfNode, GpusOfPod
from stellwerk.models.gpu import WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.devices import GpuDevices
from stellwerk.plugins.gpu_share import GpuShare
from stellwerk.snapshot.snapshot import NodeView, Snapshot

_NODES: Final = 20
"""So many nodes are named, those first that lack least."""


def gpu_report(snapshot: Snapshot, pod: PodInfo, found: Findings) -> GpusOfPod | None:
    """The field `gpus` of a pod that fits nowhere, for want of GPUs among others; else None."""
    request, result = gpu_request(pod.amounts.requests), found.results.get(GpuShare.name)
    if request is None or result is None or not result.codes.any() or found.fits.any():
        return None
    nodes, book = NodeView(snapshot, found.rows), snapshot.book(GpuDevices)
    counts, free = book.device_count(nodes), book.free_milli(nodes)
    if not counts.any():
        return None
    enough = (free >= request.milli).sum(axis=1)
    others = found.fails - (result.codes != 0)
    # Those that nothing else turns away, then those that come nearest to what is asked.
    order = np.lexsort((-free.max(axis=1), -enough, others > 0, counts == 0))[:_NODES].tolist()
    names = snapshot.names(found.rows[order].tolist())
    nearest = [
        GpusOfNode(
            node=name,
            free_milli=free[at, : counts[at]].tolist(),
            rejected_by_others=bool(others[at]),
        )
        for name, at in zip(names, order, strict=True)
        if counts[at]
    ]
    return GpusOfPod(
        devices=request.devices,
        milli_of_each=request.milli,
        nodes_with_gpus=int((counts > 0).sum()),
        idle_milli=int(free.sum()),
        most_free_milli=int(free.max()),
        whole_devices_idle=int((free == WHOLE).sum()),
        nearest=nearest,
    )


def held_gpus(pod: PodInfo) -> GpusOfPod | None:
    """The field `gpus` of a pod that has a node: the numbers of its devices there; None: none."""
    request = gpu_request(pod.amounts.requests)
    if request is None or not pod.gpu_devices:
        return None
    return GpusOfPod(
        devices=request.devices, milli_of_each=request.milli, numbers=list(pod.gpu_devices)
    )
