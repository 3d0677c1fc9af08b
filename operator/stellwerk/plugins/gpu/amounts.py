"""Amounts idle on nodes and requested by a pod, as the packing scores weigh them.

GpuDotProduct and GpuBestFit score with it. Invariant: the largest node is the largest there is,
not the largest of those that are asked about, so that a node's score does not depend on others
that are feasible.
"""

from stellwerk.models.gpu import WHOLE, gpu_request
from stellwerk.models.pod import PodInfo
from stellwerk.models.pod_resources import CPU
from stellwerk.plugins.gpu.devices import GpuDevices
from stellwerk.plugins.gpu.fragmentation import idle_cpu
from stellwerk.snapshot.snapshot import NodeView


class GpuAmounts:
    """Cpu in millicores, GPUs in thousandths of a device."""

    def __init__(self, nodes: NodeView, pod: PodInfo) -> None:
        everything = NodeView(nodes.snapshot)
        devices = nodes.snapshot.book(GpuDevices)
        request = gpu_request(pod.amounts.requests)
        self.idle_cpu = idle_cpu(nodes)
        """(n,) int64."""
        self.idle_milli = devices.free_milli(nodes).sum(axis=1)
        """(n,) int64, of all devices of a node together."""
        self.pod_cpu = pod.amounts.requests.get(CPU, 0)
        self.pod_milli = 0 if request is None else request.total_milli
        self.most_cpu = max(1, int(everything.allocatable(CPU).max(initial=0)))
        """The millicores of the largest node."""
        self.most_milli = largest_node_milli(nodes)


def largest_node_milli(nodes: NodeView) -> int:
    """The thousandths of all devices of the node that has most, at least those of one device."""
    devices = nodes.snapshot.book(GpuDevices)
    return WHOLE * max(1, int(devices.device_count(NodeView(nodes.snapshot)).max(initial=0)))
