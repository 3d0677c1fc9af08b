"""GpuShare: room on single devices, for pods that share one and for pods that want several whole.

Reserve chooses the devices, PreBind writes them into the annotation gpu.stellwerk.dev/device-ids.
Invariant: a device is never given more than its thousand thousandths, and a whole one to one pod.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

import numpy as np
from typing_extensions import override

from stellwerk.answers.gpus import GpusOfPod
from stellwerk.framework.changes import Change
from stellwerk.framework.events import Action, ClusterEventWithHint, Resource
from stellwerk.framework.filter_results import FilterResults
from stellwerk.framework.interface import (
    GO_ON,
    SKIP_FILTER,
    EnqueueExtensions,
    ExplainPlugin,
    FilterPlugin,
    PreBindPlugin,
    PreFilterPlugin,
    PreFilterResult,
    ProposePlugin,
    ReservePlugin,
    Reuse,
)
from stellwerk.framework.services import Handle
from stellwerk.framework.types import (
    OK,
    SKIP,
    CycleState,
    FilterResult,
    Status,
    error,
    unresolvable,
    unschedulable,
)
from stellwerk.models.gpu import DEVICE_IDS, GpuRequest, device_ids_text, gpu_request, refusal
from stellwerk.models.pod import PodInfo
from stellwerk.plugins.gpu.explain import free_gpus, smaller_gpu_request
from stellwerk.plugins.gpu.node_gpus import GpuDevices, best_fit
from stellwerk.plugins.shared.row_by_row import RowByRow
from stellwerk.profiles.spec.plugin_args import GpuShareArgs
from stellwerk.snapshot.snapshot import NodeView
from stellwerk_kube.errors import ApiError, Forbidden

_NAME: Final = "GpuShare"
_LACKS_ROOM: Final = 1
_LACKS_DEVICES: Final = 2
_STATUSES: Final = {
    _LACKS_ROOM: unschedulable(_NAME, "node(s) had no room on enough GPUs"),
    _LACKS_DEVICES: unresolvable(_NAME, "node(s) had too few GPUs"),
}


class GpuShare(
    RowByRow,
    PreFilterPlugin,
    FilterPlugin,
    ReservePlugin,
    PreBindPlugin,
    EnqueueExtensions,
    ExplainPlugin,
    ProposePlugin,
):
    """Keeps the account of devices; scores are other plugins' business."""

    name: ClassVar[str] = _NAME
    args_model: ClassVar[type[GpuShareArgs]] = GpuShareArgs
    filter_reuse: ClassVar[Reuse] = Reuse.USAGE

    def __init__(self, handle: Handle, args: GpuShareArgs) -> None:
        self._handle = handle
        self._devices = handle.snapshot.book(GpuDevices)
        self._random = args.device_selection == "Random"

    @override
    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> PreFilterResult:
        refused = refusal(pod.amounts.requests)
        if refused:
            return PreFilterResult(unresolvable(_NAME, refused))
        return GO_ON if gpu_request(pod.amounts.requests) else SKIP_FILTER

    @override
    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> FilterResult:
        request = gpu_request(pod.amounts.requests)
        if request is None:
            return FilterResult.everywhere(len(nodes))
        devices = nodes.snapshot.book(GpuDevices)
        fitting = (devices.free_milli(nodes) >= request.milli).sum(axis=1)
        codes = (fitting < request.devices).astype(np.int32)
        codes += codes & (devices.device_count(nodes) < request.devices)
        return FilterResult(codes, _STATUSES.__getitem__)

    # --- the devices of a pod that has a node ----------------------------------------------------

    @override
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        request = gpu_request(pod.amounts.requests)
        if request is None or pod.gpu_devices:
            return OK
        free = self._devices.in_row(self._handle.snapshot.row_of[node_name])
        pod.gpu_devices = self._choice(free, request)
        if not pod.gpu_devices:
            return unschedulable(_NAME, f"node {node_name} has no room on enough GPUs")
        return OK

    @override
    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """There is nothing to undo: the choice belongs to the assumed pod, which is forgotten."""

    def _choice(self, free: Sequence[int], request: GpuRequest) -> tuple[int, ...]:
        if not (self._random and request.shares):
            return best_fit(free, request)
        fitting = [number for number, milli in enumerate(free) if milli >= request.milli]
        return (fitting[self._handle.random(len(fitting))],) if fitting else ()

    @override
    def pre_bind_pre_flight(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return OK if pod.gpu_devices else SKIP

    @override
    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        annotations = {DEVICE_IDS: device_ids_text(pod.gpu_devices)}
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        # With the uid, so that a pod that was made anew under the name is left alone.
        patch = {"metadata": {"uid": pod.uid, "annotations": annotations}}
        try:
            await self._handle.client.patch(path, patch)
        except Forbidden as failure:
            hint = "the right to patch pods is in manifests/overlays/gpu/role.yaml"
            return error(_NAME, f"cannot write {DEVICE_IDS}: {failure.message}; {hint}")
        except ApiError as failure:
            return error(_NAME, failure.message or str(failure))
        return OK

    @override
    def explain(self, state: CycleState, pod: PodInfo, nodes: NodeView) -> GpusOfPod | None:
        results = FilterResults.of(state)
        return None if results is None else free_gpus(_NAME, pod, nodes, results)

    @override
    def propose(
        self, state: CycleState, pod: PodInfo, row: int | None, nodes: NodeView
    ) -> Iterator[Change]:
        return smaller_gpu_request(pod, nodes) if row is None else iter(())

    @override
    def events_to_register(self) -> Sequence[ClusterEventWithHint]:
        return (
            ClusterEventWithHint(Resource.POD, Action.DELETE),
            ClusterEventWithHint(Resource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE),
        )
