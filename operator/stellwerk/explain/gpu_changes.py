"""Smaller requests for GPUs that nodes could serve: what to try for a pod that gets none.

`counterfactuals` asks for them where GpuShare filters. Invariant: the request stays of its kind, a
share or whole devices, and is the largest that one of the nodes has room for.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from stellwerk.explain.candidates import with_request
from stellwerk.explain.changes import EditPod, amount_text
from stellwerk.models.gpu import DEVICES, MILLI, WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.devices import GpuDevices
from stellwerk.snapshot.snapshot import NodeView, Snapshot


def smaller_gpu_request(snapshot: Snapshot, pod: PodInfo, rows: Sequence[int]) -> Iterator[EditPod]:
    """The most that one of the rows could give, where that is less than the pod asks for."""
    request = gpu_request(pod.amounts.requests)
    if request is None or not rows:
        return
    free = snapshot.book(GpuDevices).free_milli(NodeView(snapshot, np.array(rows, np.intp)))
    if request.shares:
        resource, wanted, most = MILLI, request.milli, int(free.max())
    else:
        resource, wanted = DEVICES, request.devices
        most = int((free == WHOLE).sum(axis=1).max())
        if MILLI in pod.amounts.requests:
            resource, wanted, most = MILLI, WHOLE * wanted, WHOLE * most
    if 0 < most < wanted:
        words = f"request {amount_text(resource, most)} instead of {amount_text(resource, wanted)}"
        yield EditPod(words, with_request(resource, most))
