"""The published experiment node by node and device by device, in plain Python.

Written from its description, without anything of the scheduler's: what a vectorised run is compared
with. Slow, and meant to be read.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stellwerk.plugins.gpu.fragmentation import TypicalPod
from stellwerk_simulation.trace import TraceNode, TracePod


@dataclass
class Node:
    """A node while it fills."""

    trace: TraceNode
    cpu: int
    memory: int
    free: list[int]
    kinds: list[int] = field(default_factory=list)


class Reference:
    """Nodes in the order of their rank, largest sizes of all."""

    def __init__(
        self, nodes: Sequence[TraceNode], typical: Sequence[TypicalPod], policy: str
    ) -> None:
        self.nodes = [
            Node(node, node.cpu_millis, node.memory_mib, [1000] * node.devices) for node in nodes
        ]
        self.most_cpu = max(1, *(node.cpu_millis for node in nodes))
        self.most_gpu = 1000 * max(1, *(node.devices for node in nodes))
        self.typical = typical
        self.policy = policy

    def place(self, pod: TracePod) -> str:
        """The node that the policy chooses; empty: none fits."""
        fitting = [node for node in self.nodes if self.fits(node, pod)]
        if not fitting:
            return ""
        node = max(fitting, key=lambda each: self.score(each, pod))  # the first of the best
        devices = self.devices(node, pod)
        node.cpu -= pod.cpu_millis
        node.memory -= pod.memory_mib
        for device in devices:
            node.free[device] -= pod.gpu_milli
        if pod.devices:
            node.kinds.append(kind(pod))
        return node.trace.name

    def fits(self, node: Node, pod: TracePod) -> bool:
        room = sum(milli >= pod.gpu_milli for milli in node.free)
        return (
            node.cpu >= pod.cpu_millis
            and node.memory >= pod.memory_mib
            and (not pod.devices or room >= pod.devices)
            and (not pod.models or node.trace.model in pod.models)
        )

    def devices(self, node: Node, pod: TracePod) -> list[int]:
        fitting = [d for d, milli in enumerate(node.free) if milli >= pod.gpu_milli]
        if not pod.devices:
            return []
        if pod.gpu_milli == 1000:
            return fitting[: pod.devices]
        if self.policy == "fgd":
            return [max(fitting, key=lambda device: self.gain(node, pod, [device]))]
        return [min(fitting, key=lambda device: node.free[device])]

    def score(self, node: Node, pod: TracePod) -> int:
        idle, wanted = sum(node.free), pod.total_milli
        # With the divisions where the definition has them: a last bit may decide what is cut off.
        cpu, gpu = self.most_cpu, self.most_gpu
        if self.policy == "dot-product":
            product = node.cpu / cpu * (pod.cpu_millis / cpu) + idle / gpu * (wanted / gpu)
            return int(100 * (1 - product / 2))
        if self.policy == "best-fit":
            rest = (node.cpu - pod.cpu_millis) / cpu + (idle - wanted) / gpu
            return int(100 * (1 - rest / 2))
        if self.policy == "fgd":
            return self.gain(node, pod, self.devices(node, pod))
        if not pod.devices:
            return 0
        if self.policy == "gpu-clustering":
            return self.clustering(node, pod) + 25 * (self.most_gpu - idle) // self.most_gpu
        return self.packing(node, pod)

    def clustering(self, node: Node, pod: TracePod) -> int:
        own = node.kinds.count(kind(pod))
        if not node.kinds:
            return 25
        return 75 if own == len(node.kinds) else 50 if own else 0

    def packing(self, node: Node, pod: TracePod) -> int:
        untouched = node.free.count(1000)
        if untouched == len(node.free):
            return max(33 - untouched, untouched)
        taken = sorted(milli for milli in node.free if milli >= pod.gpu_milli)[: pod.devices]
        touched = taken.count(1000)
        if touched:
            return max(50 - touched, 33)
        return max(100 - sum(milli // 10 for milli in taken) // 10, 50)

    def gain(self, node: Node, pod: TracePod, devices: Sequence[int]) -> int:
        left = [
            milli - pod.gpu_milli * (device in devices) for device, milli in enumerate(node.free)
        ]
        before = self.fragments(node.trace.model, node.cpu, node.free)
        after = self.fragments(node.trace.model, node.cpu - pod.cpu_millis, left)
        return int(100 / (1 + math.exp(-(before - after) / 1000)))

    def fragments(self, model: str, cpu: int, free: Sequence[int]) -> float:
        """By class, in the order of the kinds; then the classes."""
        total, idle = sum(each.count for each in self.typical), sum(free)
        classes = [0.0] * 6
        for each in self.typical:
            share = each.count / total
            room = sum(milli >= each.gpu_milli for milli in free)
            enough, runs = room >= each.devices, cpu >= each.cpu_millis
            if not each.gpu_milli:
                classes[3 if runs else 4] += share * idle
            elif each.models and model not in each.models:
                classes[5] += share * idle
            elif enough and runs:
                classes[1] += share * sum(milli for milli in free if milli < each.gpu_milli)
            elif enough:
                classes[2] += share * idle
            else:
                classes[1 if runs else 0] += share * idle
        sum_ = classes[0]
        for part in classes[1:]:
            sum_ += part
        return sum_


def kind(pod: TracePod) -> int:
    """0 for a share, else the number of devices."""
    return 0 if pod.gpu_milli < 1000 else pod.devices
