"""GPUs that pods share, in explanations: what is free for a pod that gets none.

GpuShare answers with it. Invariant: what is free is what GpuShare filtered by.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from stellwerk.answers.gpus import GpusOfNode, GpusOfPod
from stellwerk.framework.changes import Change, request_less
from stellwerk.framework.filter_results import FilterResults
from stellwerk.models.gpu import DEVICES, MILLI, WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.node_gpus import GpuDevices
from stellwerk.snapshot.snapshot import NodeView

_NODES: Final = 20
"""Nodes that are named, those first that lack least."""


def free_gpus(
    plugin: str, pod: PodInfo, nodes: NodeView, results: FilterResults
) -> GpusOfPod | None:
    """The free GPUs for a pod that fits nowhere, for want of GPUs among others; None: no need.

    `results`: what every plugin says of the nodes; `plugin`: which of them goes by GPUs.
    """
    request, result = gpu_request(pod.amounts.requests), results.results.get(plugin)
    if request is None or result is None or not result.codes.any() or results.fits.any():
        return None
    book = nodes.snapshot.book(GpuDevices)
    counts, free = book.device_count(nodes), book.free_milli(nodes)
    if not counts.any():
        return None
    enough = (free >= request.milli).sum(axis=1)
    others = results.fails - (result.codes != 0)
    # Those that nothing else turns away, then those that come nearest to what is asked.
    order = np.lexsort((-free.max(axis=1), -enough, others > 0, counts == 0))[:_NODES].tolist()
    names = nodes.snapshot.names(nodes.row_numbers()[order].tolist())
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


def smaller_gpu_request(pod: PodInfo, nodes: NodeView) -> Iterator[Change]:
    """The most that one of the nodes could give, where that is less than the pod asks for.

    It stays of its kind, a share or whole devices.
    """
    request = gpu_request(pod.amounts.requests)
    if request is None or not len(nodes):
        return
    free = nodes.snapshot.book(GpuDevices).free_milli(nodes)
    if request.shares:
        resource, wanted, most = MILLI, request.milli, int(free.max())
    else:
        resource, wanted = DEVICES, request.devices
        most = int((free == WHOLE).sum(axis=1).max())
        if MILLI in pod.amounts.requests:
            resource, wanted, most = MILLI, WHOLE * wanted, WHOLE * most
    if 0 < most < wanted:
        yield request_less(resource, most, wanted)
